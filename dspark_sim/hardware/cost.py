"""What an engine step costs, in seconds: T = verify(padded B) + attention + host + draft (+ bubble).

Tables are expanded to flat arrays once; afterwards a step is a look-up, and the costs of all candidate
batches of a step are one array slice plus one scalar.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import Attention, EagerTail, HardwareProfile, ParallelDraft
from dspark_sim.hardware.tables import Table, capture_sizes, pad
from dspark_sim.schema import DraftKind, FloatArray

MS = 1e-3  # seconds
#: The context axis gets one point this many times past its end, so that reading never leaves the grid.
_FAR = 1024


class StepCost:
    """Durations of steps on one profile, for up to ``max_requests`` and ``max_tokens``.

    Sizes beyond those two are a caller's mistake, not a user's: an assertion.

    Args:
        profile: the machine and model.
        max_requests: most running requests that will be asked about.
        max_tokens: most batch tokens that will be asked about.
    """

    def __init__(self, profile: HardwareProfile, max_requests: int, max_tokens: int) -> None:
        self.profile = profile
        self.captured = capture_sizes(profile.capture, profile.verify.tokens)
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._verify_s_B = verify_ms(profile, max_tokens, self.captured) * MS
        self._host_s_R = _host_s(profile, max_requests)
        grid = profile.attention
        self._attention = None if grid is None else _AttentionGrid(grid, max_requests)
        self._bubble_s = profile.host.bubble_ms * MS
        self._draft_s: dict[tuple[str, int], list[float]] = {}

    def padded(self, batch_tokens: int) -> int:
        """Return the tokens that a step runs: the next captured size, or as they are when eager."""
        if not self.captured or batch_tokens > self.captured[-1]:
            return batch_tokens
        return self.captured[bisect_left(self.captured, batch_tokens)] if batch_tokens else 0

    def draft_s(self, kind: DraftKind, num_running: int, k: int) -> float:
        """Return the draft cost of one step [s]: one parallel pass and its serial loop, or k serial passes.

        Args:
            kind: of the drafter; ``none`` costs nothing.
            num_running: requests that draft.
            k: draft tokens per request; 0 drafts nothing.

        Raises:
            InputError: the profile has no draft cost for ``kind``.
        """
        if kind == "none":
            return 0.0
        table = self._draft_s.get((kind, k))
        if table is None:
            table = self._draft_s[kind, k] = self._draft_table(kind, k)
        return table[num_running]

    def step_s(
        self, batch_tokens: int, num_running: int, kv_tokens: int, draft_s: float, synchronous: bool
    ) -> float:
        """Return the duration of one step [s].

        Args:
            batch_tokens: tokens that the target runs, before padding.
            num_running: requests in the step.
            kv_tokens: sum of their KV contexts; each request's is read once for all its tokens.
            draft_s: cost of drafting in this step.
            synchronous: whether the host waits for this step's confidences (the pipeline bubble).
        """
        assert batch_tokens <= self._max_tokens
        rest_s = self._rest_s(num_running, kv_tokens, draft_s, synchronous)
        return float(self._verify_s_B[batch_tokens]) + rest_s

    def step_s_M(
        self, num_running: int, kv_tokens: int, max_draft_tokens: int, draft_s: float, synchronous: bool
    ) -> FloatArray:
        """Return :meth:`step_s` at B = R + m for m = 0..max_draft_tokens, bit for bit; shape [M+1].

        Args:
            num_running: R.
            kv_tokens: as in :meth:`step_s`.
            max_draft_tokens: M.
            draft_s: as in :meth:`step_s`.
            synchronous: as in :meth:`step_s`.
        """
        end = num_running + max_draft_tokens + 1
        assert end <= self._max_tokens + 1
        rest_s = self._rest_s(num_running, kv_tokens, draft_s, synchronous)
        return self._verify_s_B[num_running:end] + rest_s

    def attention_s(self, num_running: int, kv_tokens: int) -> float:
        """Return the attention of one step [s]; 0 where the verify table contains it."""
        if self._attention is None or not num_running:
            return 0.0
        return self._attention.read_s(num_running, kv_tokens / num_running)

    def _rest_s(self, num_running: int, kv_tokens: int, draft_s: float, synchronous: bool) -> float:
        """Return what does not depend on the batch tokens; one order of additions for every caller."""
        known_s = self.attention_s(num_running, kv_tokens) + self._host_s_R[num_running] + draft_s
        return known_s + self._bubble_s if synchronous else known_s

    def _draft_table(self, kind: DraftKind, k: int) -> list[float]:
        draft = self.profile.draft.get(kind)
        if draft is None:
            known = ", ".join(self.profile.draft.kinds) or "none"
            raise InputError(
                f"profile {self.profile.name}: no draft cost for a '{kind}' drafter (it has: {known}); "
                f"add draft.{kind} to the profile"
            )
        running_R = _counts(self._max_requests)
        captured = self.captured if draft.lookup == "ceil_to_capture" else []
        share = k / draft.gamma if isinstance(draft, ParallelDraft) else 1.0
        table = Table(draft.requests, draft.pass_ms, draft.beyond, floor=draft.lookup == "floor")
        pass_R = table.read(pad(running_R, captured) * share)
        if isinstance(draft, ParallelDraft):
            cost_R = pass_R + k * (draft.serial_ms + draft.serial_ms_per_request * running_R)
        else:
            cost_R = k * pass_R
        cost_R[0] = 0.0
        return cast(list[float], (cost_R * MS * (k > 0)).tolist())


class _AttentionGrid:
    """Attention [s] by requests (every R, expanded) and mean context (grid points, read linearly)."""

    def __init__(self, attention: Attention, max_requests: int) -> None:
        contexts, beyond = attention.context_tokens, attention.beyond
        far = [*contexts, contexts[-1] * _FAR]
        far_X, running_R = np.array(far, dtype=np.float64), _counts(max_requests)
        by_context = zip(*(Table(contexts, row, beyond).read(far_X) for row in attention.ms), strict=True)
        grid = [Table(attention.requests, column, beyond).read(running_R) for column in by_context]
        self._contexts = far
        self._s_RC: list[list[float]] = (np.array(grid).T * MS).tolist()

    def read_s(self, num_running: int, context: float) -> float:
        contexts, row = self._contexts, self._s_RC[num_running]
        right = min(bisect_right(contexts, context), len(contexts) - 1)
        left = right - 1 if right else 0
        if left == right or context <= contexts[left]:
            return row[left]
        share = (context - contexts[left]) / (contexts[right] - contexts[left])
        return row[left] + share * (row[right] - row[left])


def verify_ms(profile: HardwareProfile, max_tokens: int, captured: Sequence[int]) -> FloatArray:
    """Return the target's forward pass at every number of batch tokens; shape [max_tokens + 1], ms.

    Args:
        profile: its verify table, look-up convention and eager tail.
        max_tokens: last size wanted.
        captured: ascending captured sizes.
    """
    verify = profile.verify
    values = list(accumulate(verify.ms, max)) if verify.monotone else verify.ms
    table = Table(verify.tokens, values, verify.beyond, floor=verify.lookup == "floor")
    tokens_B = _counts(max_tokens)
    cost_B = table.read(pad(tokens_B, captured) if verify.lookup == "ceil_to_capture" else tokens_B)
    limit = captured[-1] if captured else 0
    if profile.eager is not None and max_tokens > limit:
        limit_ms = float(table.read(np.array([float(limit)]))[0])
        eager = _Eager(profile.eager, limit, limit_ms, verify.monotone)
        cost_B[limit + 1 :] = eager.read_ms(tokens_B[limit + 1 :], cost_B[limit + 1 :])
    cost_B[0] = 0.0
    return cost_B


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
        cost_X = Table(tail.tokens, values, tail.beyond).read(tokens_X)
        first = tail.tokens[0]
        if tail.below == "ramp" and self.limit < first:
            ramp_X = np.interp(tokens_X, [self.limit, first], [self.limit_ms, values[0]])
            cost_X = np.where(tokens_X < first, ramp_X, cost_X)
        return cost_X


def _host_s(profile: HardwareProfile, max_requests: int) -> list[float]:
    host = profile.host
    return cast(list[float], ((host.constant_ms + host.per_request_ms * _counts(max_requests)) * MS).tolist())


def _counts(last: int) -> FloatArray:
    """Return 0..last as floats."""
    return np.arange(last + 1, dtype=np.float64)
