"""Draft and decide: what a step shows the policy, what it answers, and what the step then costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark_sim.engine.batching import Batch, LagRing
from dspark_sim.engine.prefill import Prompts
from dspark_sim.engine.replay import Replay
from dspark_sim.engine.shortcuts import Shortcut, shortcut
from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.base import BatchView, Decision, Past, Policy
from dspark_sim.schema import FloatArray, IntArray


class Decider:
    """The policy of one replica, what it looks back on, the true and the believed cost.

    Attributes:
        verify_len_R: lengths of the present step.
        batch_tokens: B of the present step.
    """

    def __init__(
        self, replay: Replay, policy: Policy, *, cost: StepCost, believed: StepCost, slots: int
    ) -> None:
        self._replay = replay
        self._policy = policy
        self._cost = cost
        self._believed = believed
        self._captured = tuple(believed.captured)
        self._ring = None
        if replay.lagged_LW is not None:
            self._ring = LagRing(policy.lag, replay.gamma, slots, nothing=len(replay.lagged_LW) - 1)
        self._shortcut = shortcut(policy, replay, slots)
        self._no_costs = np.empty(0)
        self._unread = np.full((slots, replay.gamma), np.nan)
        self._unread.flags.writeable = False
        self._state: Any = None
        self._places: IntArray = np.arange(slots)
        self._previous: IntArray = np.full(slots, -1)
        self._before = Past.nothing(0)[1:]
        self.verify_len_R: IntArray = np.empty(0, dtype=np.int64)
        self.batch_tokens = 0

    def forget(self, slots: IntArray) -> None:
        """Take it that ``slots`` have drafted nothing: new requests are in them."""
        self._previous[slots] = -1
        if self._ring is not None:
            self._ring.forget(slots)

    def keep(self, kept: IntArray) -> None:
        """Follow a batch that closed up."""
        self._previous[: kept.size] = self._previous[kept]
        if self._ring is not None:
            self._ring.keep(kept)

    def note(self, accepted_R: IntArray, step_s: float) -> None:
        """Take note of what the present step came to: draft tokens accepted, and its duration [s]."""
        if self._shortcut is not None:  # it asks for no past
            return
        running = accepted_R.size
        self._previous[:running] = self._places[:running]
        self._before = (self.verify_len_R, accepted_R, step_s)

    def step_s(self, batch: Batch, kv_tokens: int, prompts: Prompts, num_waiting: int) -> float:
        """Ask the policy for lengths, and return the duration of a step that decodes [s].

        Args:
            batch: the running requests, closed up.
            kv_tokens: sum of their KV contexts.
            prompts: chunks that ride along.
            num_waiting: requests that wait for a slot.
        """
        if self._shortcut is not None:
            return self._short_step_s(self._shortcut, batch, kv_tokens, prompts)
        view = self._view(batch, kv_tokens, prompts, num_waiting)
        decision = self._policy.decide(view, self._state)
        self._state = decision.state
        self.verify_len_R = self._lengths(decision, batch.size)
        if self._ring is not None:
            self._ring.push(batch.row_R, self.verify_len_R)
        verified = int(np.add.reduce(self.verify_len_R))
        self.batch_tokens = batch.size + verified + prompts.tokens
        if self._believed is self._cost and decision.draft_R is None:
            return float(view.step_s_M[verified + decision.padding])
        return self._cost.step_s(
            self.batch_tokens + decision.padding,
            batch.size,
            kv_tokens,
            self._draft_s(self._cost, batch.size, decision.draft_R),
            self._policy.synchronous,
            prefill_tokens=prompts.tokens,
            prefill_pairs=prompts.pairs,
        )

    def _short_step_s(self, rule: Shortcut, batch: Batch, kv_tokens: int, prompts: Prompts) -> float:
        """Return what :meth:`step_s` returns, of a rule that needs no view."""
        running, ring = batch.size, self._ring
        costs_M = self._believed_s_M(running, kv_tokens, prompts) if rule.needs_costs else self._no_costs
        oldest_R = batch.row_R if ring is None else ring.oldest_R(running)
        self.verify_len_R, verified = rule.lengths(batch.row_R, oldest_R, costs_M)
        if ring is not None:
            ring.push(batch.row_R, self.verify_len_R)
        self.batch_tokens = running + verified + prompts.tokens
        if rule.needs_costs and self._believed is self._cost:
            return float(costs_M[verified])
        return self._cost.step_s(
            self.batch_tokens,
            running,
            kv_tokens,
            self._draft_s(self._cost, running),
            self._policy.synchronous,
            prefill_tokens=prompts.tokens,
            prefill_pairs=prompts.pairs,
        )

    def _believed_s_M(self, running: int, kv_tokens: int, prompts: Prompts) -> FloatArray:
        return self._believed.step_s_M(
            running,
            kv_tokens,
            running * self._replay.gamma,
            self._draft_s(self._believed, running),
            self._policy.synchronous,
            prefill_tokens=prompts.tokens,
            prefill_pairs=prompts.pairs,
        )

    def prefill_s(self, prompts: Prompts) -> float:
        """Return the duration of a step that only computes prompts [s]; no policy is asked."""
        return self._cost.prefill_s(prompts.tokens, len(prompts.chunks), prompts.pairs)

    def _view(self, batch: Batch, kv_tokens: int, prompts: Prompts, num_waiting: int) -> BatchView:
        replay, row_R, running = self._replay, batch.row_R, batch.size
        survival = confidence = lagged = self._unread[:running]
        if replay.survival_NG is not None and replay.confidence_NG is not None:
            survival = replay.survival_NG.take(row_R, axis=0)
            confidence = replay.confidence_NG.take(row_R, axis=0)
        if self._ring is not None and replay.lagged_LW is not None:
            rows = replay.lagged_LW.take(self._ring.oldest_R(running), axis=0)
            lagged = rows[:, : replay.gamma].astype(np.float64)
        elif self._policy.info.reads == "lagged":
            lagged = survival
        step_s_M = self._believed_s_M(running, kv_tokens, prompts)
        step_s_M.flags.writeable = False  # the clock may read it after the rule did
        return BatchView(
            survival,
            confidence,
            lagged,
            step_s_M,
            replay.gamma,
            self._policy.lag,
            draft_s=self._believed_draft_s,
            past=Past(self._previous[:running], *self._before),
            captured=self._captured,
            kv_tokens=kv_tokens,
            prefill_tokens=prompts.tokens,
            num_waiting=num_waiting,
        )

    def _draft_s(self, cost: StepCost, running: int, draft_R: IntArray | None = None) -> float:
        kind = self._replay.draft_kind
        if draft_R is None:
            return cost.draft_s(kind, running, self._replay.draft_tokens)
        return cost.draft_s(kind, int(np.count_nonzero(draft_R)), int(np.max(draft_R)))

    def _believed_draft_s(self, requests: int, tokens: int) -> float:
        return self._believed.drafting_s(self._replay.draft_kind, requests, tokens)

    def _lengths(self, decision: Decision, running: int) -> IntArray:
        """Return the policy's answer [R], refused unless it is whole numbers in 0..gamma."""
        answer = np.asarray(decision.verify_len_R)
        fits = answer.shape == (running,) and answer.dtype.kind in "iu"
        verify_len_R = answer.astype(np.int64, copy=False) if fits else np.empty(0, dtype=np.int64)
        # Negative lengths are huge as unsigned ones: one reduction looks at both ends.
        if not fits or np.maximum.reduce(verify_len_R.view(np.uint64)) > self._replay.gamma:
            raise InputError(
                f"policy {self._policy.label} returned {answer.tolist()}; a rule returns one whole number "
                f"in 0..{self._replay.gamma} for each of the {running} requests of the step"
            )
        if decision.draft_R is not None or decision.padding:
            self._check_extras(decision, running)
        return verify_len_R

    def _check_extras(self, decision: Decision, running: int) -> None:
        draft_R, lengths_R, gamma = decision.draft_R, decision.verify_len_R, self._replay.gamma
        if draft_R is not None and ((draft_R < lengths_R) | (draft_R > gamma)).any():
            raise InputError(
                f"policy {self._policy.label} drafts {draft_R.tolist()} and verifies {lengths_R.tolist()}; "
                f"it may verify what it drafts, 0..{gamma}"
            )
        spare = gamma * running - int(np.add.reduce(lengths_R))
        if not 0 <= decision.padding <= spare:
            raise InputError(f"policy {self._policy.label} pads by {decision.padding}; it may by 0..{spare}")
