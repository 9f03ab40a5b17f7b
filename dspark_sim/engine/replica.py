"""The engine step of one replica: admit, draft, decide, verify, commit, free.

The clock belongs to the caller, who lets ``decide``'s duration pass before ``commit``. A step is a
handful of vector operations on the running requests; Python loops over requests nowhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dspark_sim.engine.batching import Batch, LagRing, RequestStream
from dspark_sim.engine.recorder import Recorder
from dspark_sim.engine.replay import Replay
from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.base import BatchView, Decision, Past, Policy
from dspark_sim.schema import IntArray


class Replica:
    """One engine: a batch of running requests, a policy, the true and the believed cost.

    The KV cache of a running request holds its prompt and its output up to the anchor, included:
    prompt_tokens + i + 1 tokens.
    """

    def __init__(
        self,
        replay: Replay,
        policy: Policy,
        *,
        cost: StepCost,
        believed: StepCost,
        stream: RequestStream,
        recorder: Recorder,
        slots: int,
    ) -> None:
        self._replay = replay
        self._policy = policy
        self._cost = cost
        self._believed = believed
        self._captured = tuple(believed.captured)
        self._stream = stream
        self._recorder = recorder
        self.batch = Batch(slots)
        self.kv_tokens = 0
        self.steps = 0
        self._free: IntArray = np.arange(slots)
        self._ring = None
        if replay.lagged_LG is not None:
            self._ring = LagRing(policy.lag, replay.gamma, slots, nothing=len(replay.lagged_LG) - 1)
        self._verify_len_R = self._free
        self._state: Any = None
        self._past = Past.nothing(slots)
        self._unread = np.full((slots, replay.gamma), np.nan)
        self._unread.flags.writeable = False

    def start_in_mid_text(self, request: IntArray, row: IntArray) -> None:
        """Fill the first batch with requests whose earlier steps lie before the run."""
        self._place(self._free, request, row, math.nan)
        self._free = self._free[:0]

    def admit(self, now_s: float) -> bool:
        """Fill free slots from the stream, drop those it has nothing for; return whether any runs."""
        while self._free.size:
            request = self._stream.take(self._free.size)
            slots, spare = self._free[: len(request)], self._free[len(request) :]
            if spare.size:
                self._drop(spare)
            row = self._replay.first_row_Q[request]
            self._place(slots, request, row, now_s)
            self._free = spare[:0]
            whole = row == self._replay.last_row_Q[request]
            if whole.any():
                self._complete(slots[whole], now_s)
        return self.batch.size > 0

    def decide(self) -> float:
        """Draft, let the policy decide, and return the duration of the step [s]."""
        view = self._view()
        decision = self._policy.decide(view, self._state)
        self._state = decision.state
        self._verify_len_R = verify_len_R = self._lengths(decision)
        if self._ring is not None:
            self._ring.push(self.batch.row_R, verify_len_R)
        verified = int(np.add.reduce(verify_len_R))
        self._batch_tokens = view.num_running + verified
        if self._believed is self._cost and decision.draft_R is None:
            return float(view.step_s_M[verified + decision.padding])
        draft_s = self._draft_s(self._cost, decision.draft_R)
        return self._cost.step_s(
            self._batch_tokens + decision.padding,
            view.num_running,
            self.kv_tokens,
            draft_s,
            self._policy.synchronous,
        )

    def commit(self, start_s: float, step_s: float, end_s: float) -> None:
        """Commit what was verified and accepted, up to the end of each text; free finished requests."""
        batch = self.batch
        accepted_R = np.minimum(self._verify_len_R, self._replay.accepted_N.take(batch.row_R))
        committed_R = np.minimum(accepted_R + 1, batch.last_R - batch.row_R)
        batch.row_R += committed_R
        committed = int(np.add.reduce(committed_R))
        self.kv_tokens += committed
        self.steps += 1
        self._past = Past(np.arange(batch.size), self._verify_len_R, accepted_R, step_s)
        finished = (batch.row_R == batch.last_R).nonzero()[0]
        if finished.size:
            self._complete(finished, end_s)
        self._recorder.step(
            self._verify_len_R,
            accepted_R,
            start_s=start_s,
            step_s=step_s,
            batch_tokens=self._batch_tokens,
            committed=committed,
        )

    def check_laws(self) -> None:
        """Assert the laws of docs/concepts.md on the present state (for ``check=True``)."""
        batch, replay = self.batch, self._replay
        running = np.setdiff1d(np.arange(batch.size), self._free)
        request, row = batch.request_R[running], batch.row_R[running]
        first, last = replay.first_row_Q[request], replay.last_row_Q[request]
        assert ((first <= row) & (row < last)).all(), "a running request stands inside its text"
        assert (batch.last_R[running] == last).all(), "a slot knows where its text ends"
        kv_tokens = (replay.kv_base_Q[request] + row).sum()
        assert self.kv_tokens == kv_tokens, "KV held = prompts and outputs of the running requests"

    def _view(self) -> BatchView:
        replay, row_R, running = self._replay, self.batch.row_R, self.batch.size
        survival = confidence = lagged = self._unread[:running]
        if replay.survival_NG is not None and replay.confidence_NG is not None:
            survival = replay.survival_NG.take(row_R, axis=0)
            confidence = replay.confidence_NG.take(row_R, axis=0)
        if self._ring is not None and replay.lagged_LG is not None:
            lagged = replay.lagged_LG.take(self._ring.oldest_R(), axis=0).astype(np.float64)
        elif self._policy.info.reads == "lagged":
            lagged = survival
        draft_s = self._draft_s(self._believed)
        step_s_M = self._believed.step_s_M(
            running, self.kv_tokens, running * replay.gamma, draft_s, self._policy.synchronous
        )
        step_s_M.flags.writeable = False  # the clock may read it after the rule did
        return BatchView(
            survival,
            confidence,
            lagged,
            step_s_M,
            replay.gamma,
            self._policy.lag,
            draft_s=self._believed_draft_s,
            past=self._past,
            captured=self._captured,
            kv_tokens=self.kv_tokens,
        )

    def _draft_s(self, cost: StepCost, draft_R: IntArray | None = None) -> float:
        kind = self._replay.draft_kind
        if draft_R is None:
            return cost.draft_s(kind, self.batch.size, self._replay.draft_tokens)
        return cost.draft_s(kind, int(np.count_nonzero(draft_R)), int(np.max(draft_R)))

    def _believed_draft_s(self, requests: int, tokens: int) -> float:
        return self._believed.drafting_s(self._replay.draft_kind, requests, tokens)

    def _lengths(self, decision: Decision) -> IntArray:
        """Return the policy's answer [R], refused unless it is whole numbers in 0..gamma."""
        answer = np.asarray(decision.verify_len_R)
        verify_len_R = answer.astype(np.int64, copy=False)
        fits = answer.shape == (self.batch.size,) and answer.dtype.kind in "iu"
        # Negative lengths are huge as unsigned ones: one reduction looks at both ends.
        if not fits or np.maximum.reduce(verify_len_R.view(np.uint64)) > self._replay.gamma:
            raise InputError(
                f"policy {self._policy.label} returned {answer.tolist()}; a rule returns one whole number "
                f"in 0..{self._replay.gamma} for each of the {self.batch.size} requests of the step"
            )
        if decision.draft_R is not None or decision.padding:
            self._check_extras(decision)
        return verify_len_R

    def _check_extras(self, decision: Decision) -> None:
        draft_R, lengths_R, gamma = decision.draft_R, decision.verify_len_R, self._replay.gamma
        if draft_R is not None and ((draft_R < lengths_R) | (draft_R > gamma)).any():
            raise InputError(
                f"policy {self._policy.label} drafts {draft_R.tolist()} and verifies {lengths_R.tolist()}; "
                f"it may verify what it drafts, 0..{gamma}"
            )
        spare = gamma * self.batch.size - int(np.add.reduce(lengths_R))
        if not 0 <= decision.padding <= spare:
            raise InputError(f"policy {self._policy.label} pads by {decision.padding}; it may by 0..{spare}")

    def _place(self, slots: IntArray, request: IntArray, row: IntArray, start_s: float) -> None:
        replay = self._replay
        last = replay.last_row_Q[request]
        self.batch.place(slots, request, row, last, start_s=start_s, step=self.steps)
        self.kv_tokens += int(np.add.reduce(replay.kv_base_Q[request] + row))
        self._past.previous_R[slots] = -1
        if self._ring is not None:
            self._ring.forget(slots)

    def _complete(self, slots: IntArray, now_s: float) -> None:
        """Log the requests in ``slots``, give back their KV, and free the slots."""
        batch = self.batch
        request = batch.request_R[slots]
        self.kv_tokens -= int(np.add.reduce(self._replay.kv_base_Q[request] + batch.row_R[slots]))
        self._free = slots
        rounds = self.steps - batch.start_step_R[slots]
        self._recorder.finish(request, batch.start_s_R[slots], now_s, rounds)

    def _drop(self, slots: IntArray) -> None:
        kept = self.batch.remove(slots)
        self._past = self._past._replace(previous_R=self._past.previous_R[kept])
        if self._ring is not None:
            self._ring.keep(kept)
