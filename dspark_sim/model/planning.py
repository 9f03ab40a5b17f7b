"""A policy's seat in live decoding: it is shown what the simulator would show it.

Time is not simulated; a step is taken to last as long as the policy believes.
Shape suffixes: R running requests, G gamma.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.base import BatchView, Past, Policy
from dspark_sim.schema import DraftKind, FloatArray, IntArray
from dspark_sim.workload.traces import quantise


class Request(Protocol):
    """What the planner needs of a running request.

    Attributes:
        lagged: survivals of its last blocks, at most ``max(lag, 1)`` of them, the oldest first.
    """

    lagged: deque[FloatArray]

    @property
    def position(self) -> int:
        """Absolute position of the anchor."""
        ...


class Planner:
    """Decides the lengths of every step of one batch, and keeps the rule's state.

    Args:
        policy: the rule.
        cost: what it believes a step costs.
        kind: what the drafter is.
        gamma: draft tokens in a block.
    """

    def __init__(self, policy: Policy, cost: StepCost, kind: DraftKind, gamma: int) -> None:
        self._policy, self._cost, self._gamma = policy, cost, gamma
        self._kind = policy.info.draft_kind or kind
        self._captured = tuple(cost.captured)
        self._state: Any = None
        self._members: list[Request] = []
        self._past = Past.nothing(0)

    def decide(self, requests: Sequence[Request], confidence_RG: FloatArray) -> IntArray:
        """Return verify lengths [R] for the blocks that ``requests`` drafted in this step."""
        view = self._view(requests, confidence_RG)
        decision = self._policy.decide(view, self._state)
        self._state, self._members = decision.state, list(requests)
        verify_len_R = np.asarray(decision.verify_len_R, dtype=np.int64)
        step_s = float(view.step_s_M[int(verify_len_R.sum())])
        self._past = Past(np.empty(0, dtype=np.int64), verify_len_R, np.zeros_like(verify_len_R), step_s)
        return verify_len_R

    def learn(self, accepted_R: IntArray) -> None:
        """Note what verification accepted of the requests of the last decision."""
        self._past = self._past._replace(accepted_P=accepted_R)

    def _view(self, requests: Sequence[Request], confidence_RG: FloatArray) -> BatchView:
        policy, running, gamma = self._policy, len(requests), self._gamma
        survival_RG = quantise(np.cumprod(confidence_RG, axis=1))
        lagged_RG = self._lagged(requests, survival_RG) if policy.lag else survival_RG
        tokens = int(policy.options.get("k", gamma)) if self._kind in ("mtp", "eagle") else gamma
        kv_tokens = sum(request.position + 1 for request in requests)
        draft_s = self._cost.draft_s(self._kind, running, tokens)
        return BatchView(
            survival_RG,
            confidence_RG,
            lagged_RG,
            self._cost.step_s_M(running, kv_tokens, running * gamma, draft_s, policy.synchronous),
            gamma,
            policy.lag,
            draft_s=lambda count, length: self._cost.drafting_s(self._kind, count, length),
            past=self._past._replace(previous_R=self._previous(requests)),
            captured=self._captured,
            kv_tokens=kv_tokens,
        )

    def _lagged(self, requests: Sequence[Request], survival_RG: FloatArray) -> FloatArray:
        ones, lag = np.ones(self._gamma), self._policy.lag
        seen = np.stack([r.lagged[0] if len(r.lagged) == lag else ones for r in requests])
        for request, block in zip(requests, survival_RG, strict=True):
            request.lagged.append(block)
        return seen

    def _previous(self, requests: Sequence[Request]) -> IntArray:
        place = {id(member): n for n, member in enumerate(self._members)}
        return np.array([place.get(id(request), -1) for request in requests], dtype=np.int64)
