"""Nightjar-like: a bandit over draft lengths."""

from __future__ import annotations

from math import isqrt
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.uniform import uniform
from dspark_sim.schema import FloatArray

_BINS = 12


class Bandit(NamedTuple):
    """Losses by bin of the batch size and arm, and the arm that is being played.

    loss_KA, plays_KA: mean loss [s a token] and steps of each arm in each bin.
    place: bin of the last step. arm: its length. left: steps to the end of its block.
    blocks_K: blocks begun in each bin.
    """

    loss_KA: FloatArray
    plays_KA: FloatArray
    blocks_K: FloatArray
    place: int = 0
    arm: int = 0
    left: int = 0


@policy("nightjar", source="Nightjar, arXiv 2512.22420", reads="none", verdict="lossless", basis="abstract")
def nightjar(
    view: BatchView,
    state: Bandit | None,
    *,
    block: Annotated[int, Ge(1)] = 8,
    switch_ms: Annotated[float, Ge(0)] = 1.0,
) -> Decision:
    """Contextual bandit: context the batch size (bins of a doubling), arms k = 0..gamma, loss the measured
    latency a token, plus ``switch_ms`` over a ``block`` for going from 0 to a length (the drafter's cache
    catches up). An arm is played for a block of steps; blocks number 1, 4, 9, ... explore the arm played
    least, the others exploit.

    ADA-BINGREEDY's schedule made deterministic; giving the drafter's memory to KV under pressure is left
    out. Lossless: chosen before anything is drafted.
    """
    empty = np.zeros((_BINS, view.gamma + 1))
    bandit = _learned(state or Bandit(empty, empty, np.zeros(_BINS)), view)
    place = min(view.num_running.bit_length() - 1, _BINS - 1)
    if bandit.left <= 0 or place != bandit.place:
        bandit = _next_block(bandit, place, block, switch_ms * 1e-3 / block)
    return uniform(view, bandit.arm, bandit._replace(left=bandit.left - 1))


def _learned(bandit: Bandit, view: BatchView) -> Bandit:
    """Return the bandit with the last step's loss in."""
    past = view.past
    if not len(past.accepted_P):
        return bandit
    seconds_a_token = past.step_s / float(past.accepted_P.mean() + 1.0)
    loss, plays, at = bandit.loss_KA.copy(), bandit.plays_KA.copy(), (bandit.place, bandit.arm)
    plays[at] += 1.0
    loss[at] += (seconds_a_token - loss[at]) / plays[at]
    return bandit._replace(loss_KA=loss, plays_KA=plays)


def _next_block(bandit: Bandit, place: int, block: int, switch_s: float) -> Bandit:
    """Return the bandit at the start of a block in bin ``place``."""
    blocks = bandit.blocks_K.copy()
    blocks[place] += 1
    number, plays_A = int(blocks[place]), bandit.plays_KA[place]
    loss_A = bandit.loss_KA[place] + switch_s * (np.arange(len(plays_A)) > 0) * (bandit.arm == 0)
    explores = isqrt(number) ** 2 == number or not plays_A.all()
    arm = int(plays_A.argmin()) if explores else int(loss_A.argmin())
    return bandit._replace(blocks_K=blocks, place=place, arm=arm, left=block)
