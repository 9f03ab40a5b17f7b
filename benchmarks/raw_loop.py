"""The yardstick: a closed loop in bare numpy, tuned by hand, without SimPy, records or any generality.

It is pinned: what it computes may not change, so that ratios stay comparable. It replays the same
trace on the same cost table as the engine, at lag 2, and keeps a clock and a count of tokens; no
request is known by name, nothing is measured, no text is followed to its end.

Shape legend: N anchors, R users, G = gamma, W = 8 columns (G survivals and a pad of -1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspark_sim.engine.replay import lagged_table, survival_table
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.rng import stream
from dspark_sim.workload.traces import Trace

WIDTH = 8
LAG = 2


class RawLoop:
    """The state of a loop of ``users`` on ``trace``; the rule is ``static:k=3`` or ``dspark-async``."""

    def __init__(self, trace: Trace, profile: HardwareProfile, rule: str, users: int) -> None:
        drafter = trace.drafter("dspark")
        self.gamma = gamma = drafter.gamma
        assert gamma == WIDTH - 1
        self.users, self.rule = users, rule
        self.accepted_N = drafter.accepted_N.astype(np.int64)
        self.first_Q = trace.offset_Q1[:-1]
        self.last_Q = trace.offset_Q1[1:] - 1
        synchronous = False
        cost = StepCost(profile, users, users * WIDTH)
        draft_s = cost.draft_s("dspark", users, gamma)
        self.step_s_M = cost.step_s_M(users, 0, users * gamma, draft_s, synchronous)
        if rule == "dspark-async":
            self.survival_NW = survival_table(drafter)
            self.lagged_LW = lagged_table(drafter)
        rng = stream(0, "raw-loop")
        self.order = np.concatenate([rng.permutation(len(self.first_Q)) for _ in range(4)])
        self.at = users
        request = self.order[:users]
        self.last_R = self.last_Q[request]
        self.row_R = self.first_Q[request] + rng.integers(0, self.last_R - self.first_Q[request])
        self.clock_s, self.tokens, self.steps = 0.0, 0, 0
        nothing = len(self.lagged_LW) - 1 if rule == "dspark-async" else 0
        self.ring = np.full((LAG, users), nothing)
        self.nothing = nothing

    def run(self, steps: int) -> None:
        """Go on for ``steps`` steps."""
        self.steps += steps
        if self.rule == "dspark-async":
            self._run_async(steps)
        else:
            self._run_static(steps)

    def _run_static(self, steps: int) -> None:
        length_R = np.full(self.users, 3)
        step_s = float(self.step_s_M[3 * self.users])
        for _ in range(steps):
            self.clock_s += step_s
            self._commit(length_R)

    def _run_async(self, steps: int) -> None:
        users, gamma, total = self.users, self.gamma, self.users * self.gamma
        old_RW = np.empty((users, WIDTH), dtype=np.float32)
        new_RW, sorted_RW = np.empty_like(old_RW), np.empty_like(old_RW)
        old, ordered, step_s_M = old_RW.reshape(-1), sorted_RW.reshape(-1), self.step_s_M
        descending = old[: users - 1 : -1]
        expected_M = np.empty(total + 1)
        chosen_RW = np.empty((users, WIDTH), dtype=bool)
        packed_R = chosen_RW.view(np.uint64)[:, 0]
        length_R, latest_R = np.empty(users, dtype=np.int64), np.empty(users, dtype=np.int64)
        for step in range(steps):
            slot_R = self.ring[step % LAG]
            self.lagged_LW.take(slot_R, axis=0, out=old_RW, mode="clip")
            old.sort()
            expected_M[0] = users
            expected_M[1:] = descending
            np.add.accumulate(expected_M, out=expected_M)
            np.divide(expected_M, step_s_M, out=expected_M)
            budget = int(expected_M.argmax())
            self.clock_s += float(step_s_M[budget])
            if budget:
                self.survival_NW.take(self.row_R, axis=0, out=new_RW, mode="clip")
                sorted_RW[:] = new_RW
                ordered.sort()
                smallest = ordered[-budget]
                np.greater_equal(new_RW, smallest, out=chosen_RW)
                np.bitwise_count(packed_R, out=length_R, casting="unsafe")
                surplus = int(np.add.reduce(length_R)) - budget
                if surplus:
                    request = (new_RW == smallest).any(axis=1).nonzero()[0][-surplus:]
                    length_R[request] -= 1
            else:
                length_R[:] = 0
            np.minimum(length_R, gamma - 1, out=latest_R)
            np.multiply(self.row_R, gamma, out=slot_R)
            slot_R += latest_R
            self._commit(length_R)

    def _commit(self, length_R: NDArray[np.int64]) -> None:
        left_R = self.last_R - self.row_R
        moved_R = self.accepted_N.take(self.row_R, mode="clip")
        np.minimum(moved_R, length_R, out=moved_R)
        moved_R += 1
        np.minimum(moved_R, left_R, out=moved_R)
        self.row_R += moved_R
        self.tokens += int(np.add.reduce(moved_R))
        ended = (moved_R == left_R).nonzero()[0]
        if ended.size:
            if self.at + ended.size > len(self.order):
                self.at = 0
            request = self.order[self.at : self.at + ended.size]
            self.at += ended.size
            self.row_R[ended] = self.first_Q[request]
            self.last_R[ended] = self.last_Q[request]
            self.ring[:, ended] = self.nothing
