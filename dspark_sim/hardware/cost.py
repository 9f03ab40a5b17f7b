"""What an engine step costs, in seconds: T = verify(padded B) + attention + host + draft (+ bubble).

With prompt tokens mixed in, they count in B, and what mixing costs comes on top.

Tables are expanded to flat arrays once; afterwards a step is a look-up, and the costs of all candidate
batches of a step are one array slice plus one scalar.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import cast

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.hardware.forward import additive_ms, counts, prefill_ms, verify_ms
from dspark_sim.hardware.profile import Attention, HardwareProfile, ParallelDraft, Prefill
from dspark_sim.hardware.tables import Table, capture_sizes, pad
from dspark_sim.schema import DraftKind, FloatArray, IntArray

__all__ = ["StepCost", "verify_ms"]

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
        self._fixed_s_R = _fixed_s(profile, max_requests)
        row_ms = profile.host.per_logit_row_ms
        self._row_s_B = counts(max_tokens) * (row_ms * MS) if row_ms else None
        self._speculating_s = profile.host.speculating_ms * MS
        self._prefill = profile.prefill or Prefill()
        self._prefill_s: dict[int, float] = {}
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

    def drafting_s(self, kind: DraftKind, num_running: int, k: int) -> float:
        """Return :meth:`draft_s` with all that a step pays because it drafts [s]."""
        draft_s = self.draft_s(kind, num_running, k)
        return draft_s + self._speculating_s if draft_s else 0.0

    def step_s(
        self,
        batch_tokens: int,
        num_running: int,
        kv_tokens: int,
        draft_s: float,
        synchronous: bool,
        *,
        prefill_tokens: int = 0,
        prefill_pairs: int = 0,
    ) -> float:
        """Return the duration of one step [s].

        Args:
            batch_tokens: tokens that the target runs, before padding; prompt tokens of a mixed step
                included.
            num_running: requests that decode in the step.
            kv_tokens: sum of their KV contexts; each request's is read once for all its tokens.
            draft_s: cost of drafting in this step.
            synchronous: whether the host waits for this step's confidences (the pipeline bubble).
            prefill_tokens: how many of ``batch_tokens`` are prompt tokens.
            prefill_pairs: pairs that their attention computes (:func:`attention_pairs`, summed).
        """
        assert prefill_tokens <= batch_tokens <= self._max_tokens
        rest_s = self._rest_s(num_running, kv_tokens, draft_s, synchronous)
        if prefill_tokens:
            rest_s += self._mixed_s(prefill_pairs)
        forward_s = float(self._verify_s_B[batch_tokens])
        if self._row_s_B is not None:
            forward_s += float(self._row_s_B[batch_tokens - prefill_tokens])
        return forward_s + rest_s

    def step_s_M(
        self,
        num_running: int,
        kv_tokens: int,
        max_draft_tokens: int,
        draft_s: float,
        synchronous: bool,
        *,
        prefill_tokens: int = 0,
        prefill_pairs: int = 0,
    ) -> FloatArray:
        """Return :meth:`step_s` at B = R + prefill_tokens + m, m = 0..max_draft_tokens, bit for bit.

        Args:
            num_running: R.
            kv_tokens: as in :meth:`step_s`.
            max_draft_tokens: M.
            draft_s: as in :meth:`step_s`.
            synchronous: as in :meth:`step_s`.
            prefill_tokens: as in :meth:`step_s`.
            prefill_pairs: as in :meth:`step_s`.

        Returns:
            Shape [M+1], s.
        """
        start = num_running + prefill_tokens
        end = start + max_draft_tokens + 1
        assert end <= self._max_tokens + 1
        rest_s = self._rest_s(num_running, kv_tokens, draft_s, synchronous)
        if prefill_tokens:
            rest_s += self._mixed_s(prefill_pairs)
        forward_s_M = self._verify_s_B[start:end]
        if self._row_s_B is not None:
            forward_s_M = forward_s_M + self._row_s_B[num_running : end - prefill_tokens]
        return forward_s_M + rest_s

    def steps_s(
        self,
        batch_tokens_S: IntArray,
        num_running_S: IntArray,
        prefill_tokens_S: IntArray,
        draft_s_R: FloatArray,
    ) -> FloatArray:
        """Return :meth:`step_s` of many steps that decode [S], asynchronous, attention and bubble apart.

        Args:
            batch_tokens_S: as in :meth:`step_s`.
            num_running_S: as in :meth:`step_s`.
            prefill_tokens_S: as in :meth:`step_s`.
            draft_s_R: what a step of R requests pays because it drafts, :meth:`drafting_s` by R.
        """
        steps_s = self._verify_s_B[batch_tokens_S] + np.array(self._fixed_s_R)[num_running_S]
        if self._row_s_B is not None:
            steps_s += self._row_s_B[batch_tokens_S - prefill_tokens_S]
        mixed_s_S = np.where(prefill_tokens_S > 0, self._prefill.mixed_ms * MS, 0.0)
        return np.asarray(steps_s + draft_s_R[num_running_S] + mixed_s_S)

    def prefill_s(self, prompt_tokens: int, num_prompts: int, pairs: int = 0) -> float:
        """Return the duration of a step of prompt tokens only [s]: forward pass, attention, host.

        Args:
            prompt_tokens: tokens of all prompts in the step; any number.
            num_prompts: prompts in the step.
            pairs: pairs that attention computes (:func:`attention_pairs`, summed over prompts).
        """
        forward_s = self.prompts_s(prompt_tokens)
        host = self.profile.host
        by_prompt_ms = host.per_request_ms + host.per_logit_row_ms
        return forward_s + self._pairs_s(pairs) + (host.constant_ms + by_prompt_ms * num_prompts) * MS

    @property
    def reads_context(self) -> bool:
        """Whether a step that decodes costs more the more KV it holds."""
        return self._attention is not None

    def attention_s(self, num_running: int, kv_tokens: int) -> float:
        """Return the attention of one step [s]; 0 where the verify table contains it."""
        if self._attention is None or not num_running:
            return 0.0
        return self._attention.read_s(num_running, kv_tokens / num_running)

    def arrays(self, kind: DraftKind, k: int) -> dict[str, FloatArray | float]:
        """Return every term of a step for drafts of ``k`` tokens, for a caller that adds them up itself.

        Tables by batch tokens ``verify_s_B`` and ``row_s_B`` (of logit rows), by requests ``fixed_s_R`` and
        ``draft_s_R``, attention by requests and mean context ``attention_s_RC`` at ``contexts_C``; empty
        where a term is absent. The scalars are those of the sums in :meth:`step_s` and :meth:`prefill_s`.
        """
        none, host, grid = np.empty(0), self.profile.host, self._attention
        self.draft_s(kind, 0, k)
        draft = self._draft_s.get((kind, k), [0.0] * (self._max_requests + 1))
        return {
            "verify_s_B": self._verify_s_B,
            "row_s_B": none if self._row_s_B is None else self._row_s_B,
            "fixed_s_R": np.array(self._fixed_s_R),
            "draft_s_R": np.array(draft),
            "contexts_C": none if grid is None else np.array(grid.contexts, dtype=np.float64),
            "attention_s_RC": np.empty((0, 0)) if grid is None else np.array(grid.s_RC),
            "mixed_s": self._prefill.mixed_ms * MS,
            "ms_per_pair": self._prefill.ms_per_million_pairs * 1e-6,
            "bubble_s": self._bubble_s,
            "speculating_s": self._speculating_s,
            "constant_ms": float(host.constant_ms),
            "by_prompt_ms": float(host.per_request_ms + host.per_logit_row_ms),
        }

    def prompts_s(self, prompt_tokens: int) -> float:
        """Return the forward pass of a step of prompt tokens only [s], attention and host apart."""
        forward_s = self._prefill_s.get(prompt_tokens)
        if forward_s is None:
            forward_s = prefill_ms(self.profile, prompt_tokens, self.captured) * MS
            self._prefill_s[prompt_tokens] = forward_s
        return forward_s

    def _pairs_s(self, pairs: int) -> float:
        return self._prefill.ms_per_million_pairs * 1e-6 * pairs * MS

    def _mixed_s(self, pairs: int) -> float:
        return self._prefill.mixed_ms * MS + self._pairs_s(pairs)

    def _rest_s(self, num_running: int, kv_tokens: int, draft_s: float, synchronous: bool) -> float:
        """Return what does not depend on the batch tokens; one order of additions for every caller."""
        known_s = self.attention_s(num_running, kv_tokens) + self._fixed_s_R[num_running] + draft_s
        if draft_s:
            known_s += self._speculating_s
        return known_s + self._bubble_s if synchronous else known_s

    def _draft_table(self, kind: DraftKind, k: int) -> list[float]:
        draft = self.profile.draft.get(kind)
        if draft is None:
            known = ", ".join(self.profile.draft.kinds) or "none"
            raise InputError(
                f"profile {self.profile.name}: no draft cost for a '{kind}' drafter (it has: {known}); "
                f"add draft.{kind} to the profile"
            )
        running_R = counts(self._max_requests)
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
        far_X, running_R = np.array(far, dtype=np.float64), counts(max_requests)
        by_context = zip(*(Table(contexts, row, beyond).read(far_X) for row in attention.ms), strict=True)
        grid = [Table(attention.requests, column, beyond).read(running_R) for column in by_context]
        self.contexts = far
        self.s_RC: list[list[float]] = (np.array(grid).T * MS).tolist()

    def read_s(self, num_running: int, context: float) -> float:
        contexts, row = self.contexts, self.s_RC[num_running]
        right = min(bisect_right(contexts, context), len(contexts) - 1)
        left = right - 1 if right else 0
        if left == right or context <= contexts[left]:
            return row[left]
        share = (context - contexts[left]) / (contexts[right] - contexts[left])
        return row[left] + share * (row[right] - row[left])


def _fixed_s(profile: HardwareProfile, max_requests: int) -> list[float]:
    """Return what a step pays by its running requests alone: host time and an additive table's part."""
    host = profile.host
    host_R = host.constant_ms + host.per_request_ms * counts(max_requests)
    additive_R = additive_ms(profile, max_requests)
    return cast(list[float], ((host_R + additive_R) * MS).tolist())
