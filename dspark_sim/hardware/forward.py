"""The target's forward pass at any number of tokens: look-up, eager tail, experts; prompts too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import numpy as np

from dspark_sim.hardware.profile import EagerTail, HardwareProfile
from dspark_sim.hardware.tables import Table, pad
from dspark_sim.schema import FloatArray


def verify_ms(profile: HardwareProfile, max_tokens: int, captured: Sequence[int]) -> FloatArray:
    """Return the target's forward pass at every number of batch tokens; shape [max_tokens + 1], ms.

    Args:
        profile: its verify table, look-up convention, experts and eager tail.
        max_tokens: last size wanted.
        captured: ascending captured sizes.
    """
    cost_B = forward_ms(profile, counts(max_tokens), captured)
    cost_B[0] = 0.0
    return cost_B


def forward_ms(profile: HardwareProfile, tokens_X: FloatArray, captured: Sequence[int]) -> FloatArray:
    """Return the target's forward pass at ``tokens_X`` tokens, any shape, ms; an additive part apart."""
    verify = profile.verify
    values = list(accumulate(verify.ms, max)) if verify.monotone else verify.ms
    table = Table(verify.tokens, values, verify.beyond, floor=verify.lookup == "floor")
    kernels_X = table.read(pad(tokens_X, captured) if verify.lookup == "ceil_to_capture" else tokens_X)
    if profile.experts is not None:
        kernels_X = kernels_X + _routing_ms(profile, tokens_X)
    limit = captured[-1] if captured else 0
    if profile.eager is None:
        return kernels_X
    limit_ms = float(table.read(np.array([float(limit)]))[0])
    eager = _Eager(profile.eager, limit, limit_ms, verify.monotone)
    return np.where(tokens_X > limit, eager.read_ms(tokens_X, kernels_X), kernels_X)


def _routing_ms(profile: HardwareProfile, tokens_X: FloatArray) -> FloatArray:
    experts = profile.experts
    assert experts is not None
    untouched_X = (1.0 - experts.active / experts.total) ** tokens_X
    return experts.all_ms * (1.0 - untouched_X)


def additive_ms(profile: HardwareProfile, max_requests: int) -> FloatArray:
    """Return what an additive table adds by running requests; shape [max_requests + 1], ms."""
    part, running_R = profile.verify.additive, counts(max_requests)
    if part is None:
        return np.zeros_like(running_R)
    return part.bias_ms + Table(part.requests, part.ms, "hold").read(running_R)


def prefill_ms(profile: HardwareProfile, prompt_tokens: int, captured: Sequence[int]) -> float:
    """Return the forward pass of a step of prompt tokens only [ms]; 0 for none.

    Read from the prefill table if the profile has one, else from the verify table.
    """
    if not prompt_tokens:
        return 0.0
    prefill, tokens_X = profile.prefill, np.array([float(prompt_tokens)])
    if prefill is None or prefill.tokens is None or prefill.ms is None or prefill.beyond is None:
        return float(forward_ms(profile, tokens_X, captured)[0])
    return float(Table(prefill.tokens, prefill.ms, prefill.beyond).read(tokens_X)[0])


def attention_pairs(new_tokens: int, context_tokens: int = 0) -> int:
    """Return the pairs that attention of a prompt's next chunk computes.

    Args:
        new_tokens: n prompt tokens of one request, in one step.
        context_tokens: c tokens of it that stand in the cache already.

    Returns:
        n * c + n * (n + 1) / 2: each token sees the cache, the chunk before it, and itself.
    """
    return new_tokens * context_tokens + new_tokens * (new_tokens + 1) // 2


@dataclass(frozen=True, slots=True)
class _Eager:
    """The tail past the last captured size ``limit``, which itself costs ``limit_ms``."""

    tail: EagerTail
    limit: int
    limit_ms: float
    monotone: bool

    def read_ms(self, tokens_X: FloatArray, kernels_X: FloatArray) -> FloatArray:
        """Return the cost at ``tokens_X``, all past the limit, where the verify table says ``kernels_X``."""
        tail = self.tail
        if tail.tokens is None or tail.ms is None or tail.beyond is None:
            return kernels_X + cast(float, tail.overhead_ms)
        values = list(accumulate(tail.ms, max, initial=self.limit_ms))[1:] if self.monotone else tail.ms
        read_X = pad(tokens_X, tail.tokens) if tail.lookup == "ceil" else tokens_X
        cost_X = Table(tail.tokens, values, tail.beyond).read(read_X)
        first = tail.tokens[0]
        if tail.below == "ramp" and self.limit < first:
            ramp_X = np.interp(tokens_X, [self.limit, first], [self.limit_ms, values[0]])
            cost_X = np.where(tokens_X < first, ramp_X, cost_X)
        return cost_X


def counts(last: int) -> FloatArray:
    """Return 0..last as floats."""
    return np.arange(last + 1, dtype=np.float64)
