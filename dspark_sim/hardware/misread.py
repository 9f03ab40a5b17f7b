"""Believed tables that are wrong in one way: shifted, stale, cut short, profiled at another context.

Each takes the true profile and returns what a planner would believe; drafting, host and requests stay.
Tables are written out token by token first, so that rounding up and stairs are in them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dspark_sim.hardware.forward import verify_ms
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.hardware.sections import Attention
from dspark_sim.hardware.tables import Table, capture_sizes
from dspark_sim.schema import FloatArray

#: Batch tokens that are written out; past them the last two go on.
_MOST = 4096


def shifted(true: HardwareProfile, tokens: int) -> HardwareProfile:
    """Believe, at B tokens, what is true at B + ``tokens`` (at least 1): stairs in the wrong place."""
    place_B = np.clip(np.arange(_MOST + 1) + tokens, 1, None)
    return _believing(true, _verify_ms(true, _MOST + max(tokens, 0))[place_B])


def stale(true: HardwareProfile, factor: float) -> HardwareProfile:
    """Believe that every token after the first costs ``factor`` times what it does."""
    ms_B = _verify_ms(true, _MOST)
    return _believing(true, ms_B[1] + factor * (ms_B - ms_B[1]))


def truncated(true: HardwareProfile, tokens: int) -> HardwareProfile:
    """Believe that past ``tokens`` a step costs what it does there."""
    place_B = np.minimum(np.arange(_MOST + 1), tokens)
    table = _believing(true, _verify_ms(true, _MOST)[place_B])
    return replace(table, verify=replace(table.verify, beyond="hold"))


def at_context(true: HardwareProfile, context_tokens: int) -> HardwareProfile:
    """Believe the attention of ``context_tokens`` of KV a request, whatever it holds.

    A profile whose verify table contains its attention has one context already, and stays.
    """
    grid = true.attention
    if grid is None:
        return true
    at = np.array([float(context_tokens)])
    column = tuple((float(Table(grid.context_tokens, row, grid.beyond).read(at)[0]),) for row in grid.ms)
    frozen = Attention(grid.requests, (context_tokens,), column, "hold")
    return replace(true, attention=frozen)


def _verify_ms(profile: HardwareProfile, most: int) -> FloatArray:
    return verify_ms(profile, most, capture_sizes(profile.capture, profile.verify.tokens))


def _believing(true: HardwareProfile, ms_B: FloatArray) -> HardwareProfile:
    """Return the profile with the forward pass of B = 1, 2, ... tokens as given [ms]."""
    tokens = tuple(range(1, len(ms_B)))
    ms = tuple(float(value) for value in np.maximum(ms_B[1:], 0.0))
    table = replace(
        true.verify, lookup="linear", tokens=tokens, ms=ms, beyond="last_two", monotone=False
    )  # fmt: skip
    return replace(true, verify=table, capture=None, eager=None, experts=None)
