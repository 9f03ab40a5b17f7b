"""One simulated row under another step cost: the same steps, each as long as it would be then.

What runs in which step of a closed loop hardly depends on how long steps take: requests follow each other.
So a log that was simulated once tells what other costs would have made of it, exactly where users have
no turnaround and lengths are fixed, and to first order in what turnaround and prompt lengths change.
That makes differences by cost unknowns almost free; a fit simulates again at every point that it moves to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.schema import DraftKind, FloatArray, IntArray, RunLog

_SLACK_S = 1e-9


@dataclass(frozen=True, slots=True)
class CostAt:
    """The step cost of one profile, sized for a sweep."""

    cost: StepCost
    requests: int

    @classmethod
    def of(cls, profile: HardwareProfile, requests: int, tokens: int) -> CostAt:
        """Return the cost for up to ``requests`` and ``tokens`` a step."""
        return cls(StepCost(profile, requests, tokens), requests)

    def steps_s(self, row: Row, prompt_scale: float) -> FloatArray:
        """Return the durations of the steps of a row [S], attention and bubble apart [s]."""
        prefill_S = np.rint(row.prefill_S * prompt_scale).astype(np.int64)
        batch_S = row.batch_S - row.prefill_S + prefill_S
        draft_R = [self.cost.drafting_s(row.kind, r, row.block) for r in range(self.requests + 1)]
        steps_s = self.cost.steps_s(batch_S, row.running_S, prefill_S, np.array(draft_R))
        for i in np.flatnonzero(row.running_S == 0):
            steps_s[i] = self.cost.prefill_s(int(prefill_S[i]), int(row.resident_S[i]))
        return steps_s


@dataclass(frozen=True, slots=True)
class Row:
    """The steps of a simulated row, and where its requests begin and end.

    Attributes:
        kind, block: what a step drafts.
        step_s_S, idle_s_S: duration of each step, and of the wait before it [s].
        batch_S, running_S, prefill_S, resident_S, committed_S: as in :class:`~dspark_sim.schema.StepLog`.
        first_Q, last_Q: steps at whose end the first and the last token of each request appear, by end.
        tokens_Q: output tokens of each request.
        asked: requests of the benchmark; more than were simulated if these are enough.
        turnaround_s, concurrency: of the loop.
    """

    kind: DraftKind
    block: int
    step_s_S: FloatArray
    idle_s_S: FloatArray
    batch_S: IntArray
    running_S: IntArray
    prefill_S: IntArray
    resident_S: IntArray
    committed_S: IntArray
    first_Q: IntArray
    last_Q: IntArray
    tokens_Q: IntArray
    asked: int
    turnaround_s: float
    concurrency: int

    def rates(self, before_S: FloatArray, after_S: FloatArray, turnaround_s: float) -> tuple[float, float]:
        """Return tok/s and 1 / median TPOT if each step costs ``after_S`` instead of ``before_S`` [s]."""
        ends_S = np.cumsum(self.step_s_S + after_S - before_S + self.idle_s_S)
        decoded = self.tokens_Q > 1
        tpot_Q = (ends_S[self.last_Q] - ends_S[self.first_Q])[decoded] / (self.tokens_Q[decoded] - 1)
        total_s, tokens = float(ends_S[-1]), int(self.committed_S.sum())
        simulated = len(self.tokens_Q)
        if more := self.asked - simulated:
            total_s += more * tokens / simulated * self._token_s(ends_S)
            tokens = tokens * self.asked // simulated
        waits = (self.asked - self.concurrency) / self.concurrency
        total_s += waits * (turnaround_s - self.turnaround_s)
        return tokens / total_s, 1.0 / float(np.median(tpot_Q))

    def _token_s(self, ends_S: FloatArray) -> float:
        """Return the time of a token between the first and the last wave of requests."""
        begin, end = self.last_Q[self.concurrency - 1], self.last_Q[-self.concurrency]
        done_S = np.cumsum(self.committed_S)
        return float((ends_S[end] - ends_S[begin]) / (done_S[end] - done_S[begin]))


def row_of(log: RunLog, block: int, asked: int, turnaround_s: float) -> Row:
    """Return what of a finite closed loop's log a change of cost needs.

    Args:
        log: of a run of at least three requests per user, or of all that the benchmark asks.
        block: tokens that it drafts.
        asked: requests of the benchmark.
        turnaround_s: of its users [s].
    """
    steps, requests = log.steps, log.requests
    ends_S = steps.start_s + steps.step_s
    idle_s_S = np.diff(steps.start_s, prepend=steps.start_s[0])
    idle_s_S[1:] -= steps.step_s[:-1]
    order = np.argsort(requests.end_s, kind="stable")
    return Row(
        kind=log.meta["draft_kind"],
        block=block,
        step_s_S=steps.step_s,
        idle_s_S=idle_s_S,
        batch_S=steps.batch_tokens,
        running_S=steps.num_running,
        prefill_S=steps.prefill_tokens,
        resident_S=steps.resident,
        committed_S=steps.committed_tokens,
        first_Q=np.searchsorted(ends_S, requests.start_s[order] - _SLACK_S),
        last_Q=np.searchsorted(ends_S, requests.end_s[order] - _SLACK_S),
        tokens_Q=requests.output_tokens[order],
        asked=asked,
        turnaround_s=turnaround_s,
        concurrency=log.concurrency,
    )
