"""The records of a run: written in chunks, summed when a chunk is full.

A step appends one tuple and two slices; histograms and sums are taken over thousands of rounds at
once.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from dspark_sim.engine.requests import Requests, Tickets
from dspark_sim.schema import STEP_FIELDS, FloatArray, GapLog, IntArray, RequestLog, RunLog, StepLog

_CHUNK_ROUNDS = 1 << 16
_CHUNK_VALUES = 1 << 18
_NO_ROUNDS: IntArray = np.empty(0, dtype=np.int64)


_RUNNING, _COMMITTED = STEP_FIELDS.index("num_running"), STEP_FIELDS.index("committed_tokens")
#: One step on record, in the order of STEP_FIELDS.
StepRow = tuple[float, ...]


class Sink(Protocol):
    """Takes steps as they are recorded, and requests as they end, so that nobody keeps them."""

    def take_steps(self, table: FloatArray, gap_s: FloatArray) -> None:
        """Take rows [S, F] of :data:`STEP_FIELDS` and accepted tokens, and gaps of single requests [s]."""

    def take_requests(self, log: RequestLog) -> None:
        """Take requests that have ended."""


#: What is on record of tickets.
Records = Callable[[IntArray], RequestLog]


class Recorder:
    """Measures from the end of the warm-up to the end of the run.

    Args:
        gamma: draft tokens in a block.
        slots: most requests in a step.
        warmup_tokens: committed output tokens before measuring starts, at a step's end.
        output_tokens: committed output tokens to measure, up to a step's end; None: no end.
        requests: requests after which all is done; None: no end.
        records: returns what is on record of tickets.
        sink: takes steps and requests, which are then not kept; None: they are.
    """

    def __init__(
        self,
        gamma: int,
        slots: int,
        warmup_tokens: float,
        output_tokens: int | None,
        requests: int | None = None,
        *,
        records: Records,
        sink: Sink | None = None,
    ) -> None:
        self._sink, self._records = sink, records
        self._rounds = 0
        self._warmup_left = warmup_tokens
        self._wanted = output_tokens
        self._requests_left = requests
        self.measuring = warmup_tokens <= 0
        self.measured_tokens = 0
        self.warmup_steps = 0
        self.completed = 0
        self._verify_len_counts: IntArray = np.zeros(gamma + 1, dtype=np.int64)
        self._accepted_counts = self._verify_len_counts.copy()
        self._verify_len = np.empty(max(_CHUNK_ROUNDS, slots), dtype=np.int64)
        self._accepted = np.empty_like(self._verify_len)
        self._filled = 0
        self._rows = array("d")
        self._steps: list[FloatArray] = []
        self._gaps: list[FloatArray] = []
        self._finished: list[IntArray] = []

    @property
    def done(self) -> bool:
        """Whether all that was wanted is measured."""
        if self._requests_left is not None:
            return self._requests_left <= 0
        return self._wanted is not None and self.measured_tokens >= self._wanted

    def step(
        self, row: StepRow, verify_len_R: IntArray = _NO_ROUNDS, accepted_R: IntArray = _NO_ROUNDS
    ) -> None:
        """Note one step; ``accepted_R`` are draft tokens verified and accepted."""
        committed = int(row[_COMMITTED])
        if not self.measuring:
            self._warm_up(committed)
            return
        begin, end = self._filled, self._filled + verify_len_R.size
        if end > len(self._verify_len) or len(self._rows) >= _CHUNK_VALUES:
            self.flush()
            begin, end = 0, verify_len_R.size
        self._verify_len[begin:end] = verify_len_R
        self._accepted[begin:end] = accepted_R
        self._filled = end
        self._rows.extend(row)
        self.measured_tokens += committed

    @property
    def tokens_left(self) -> float:
        """Output tokens until the warm-up is over, or after it until all is measured."""
        if not self.measuring:
            return self._warmup_left
        return math.inf if self._wanted is None else self._wanted - self.measured_tokens

    def warm_up(self, committed: Iterable[int]) -> None:
        """Note steps of the warm-up by their committed tokens."""
        for tokens in committed:
            self._warm_up(tokens)

    def take(self, table: FloatArray, verify_len: IntArray, accepted: IntArray) -> None:
        """Note many steps: rows [S, F] of :data:`STEP_FIELDS` and accepted tokens, and their rounds."""
        self.flush()
        self._count(verify_len.reshape(-1), accepted.reshape(-1))
        self._keep(table)
        self.measured_tokens += int(table[:, _COMMITTED].sum())

    def _keep(self, table: FloatArray) -> None:
        self._rounds += int(table[:, _RUNNING].sum())
        if self._sink is None:
            self._steps.append(table)
            return
        self._sink.take_steps(table, np.concatenate([*self._gaps, np.empty(0)]))
        self._gaps.clear()
        self._pass_on(self._sink)

    def _pass_on(self, sink: Sink) -> None:
        """Hand on the requests that have ended since the last time."""
        ended = self._ended()
        self._finished.clear()
        if ended.size:
            sink.take_requests(self._records(ended))

    def _ended(self) -> IntArray:
        return np.concatenate([_NO_ROUNDS, *self._finished])

    def _count(self, verify_len: IntArray, accepted: IntArray) -> None:
        size = len(self._verify_len_counts)
        self._verify_len_counts += np.bincount(verify_len, minlength=size)
        self._accepted_counts += np.bincount(accepted, minlength=size)

    def gaps(self, gap_s: FloatArray) -> None:
        """Note gaps of single requests [s]."""
        if self.measuring:
            self._gaps.append(gap_s)

    def finish(self, tickets: IntArray) -> None:
        """Note completed requests."""
        if self._requests_left is not None:
            self._requests_left -= len(tickets)
        if self.measuring:
            self.completed += len(tickets)
            self._finished.append(tickets)

    def refuse(self, count: int) -> None:
        """Do not wait for ``count`` requests that were refused."""
        if self._requests_left is not None:
            self._requests_left -= count

    def run_log(self, **identity: Any) -> RunLog:
        """Return the records, with the fields of :class:`RunLog` that say which run it was."""
        self.flush()
        if self._sink is not None:
            self._pass_on(self._sink)
        table = np.concatenate([*self._steps, np.empty((0, len(STEP_FIELDS) + 1))]).T
        steps = _step_log(table)
        return RunLog(
            **identity,
            steps=steps,
            requests=self._records(self._ended()),
            rounds=self._rounds,
            completed=self.completed,
            verify_len_counts=self._verify_len_counts,
            position_verified=_at_least(self._verify_len_counts),
            position_accepted=_at_least(self._accepted_counts),
            gaps=self._gap_log(table),
        )

    def _gap_log(self, table: FloatArray) -> GapLog:
        single_s = np.concatenate([*self._gaps, np.empty(0)])
        shared_s, requests = table[[STEP_FIELDS.index(n) for n in ("gap_s", "gap_requests")]]
        shared = requests > 0
        counts = np.concatenate([requests[shared].astype(np.int64), np.ones(len(single_s), dtype=np.int64)])
        return GapLog(np.concatenate([shared_s[shared], single_s]), counts)

    def _warm_up(self, committed: int) -> None:
        self._warmup_left -= committed
        self.warmup_steps += 1
        self.measuring = self._warmup_left <= 0

    def flush(self) -> None:
        """Sum up what has been noted since the last time."""
        if not self._rows:
            return
        verify_len, accepted = self._verify_len[: self._filled], self._accepted[: self._filled]
        self._count(verify_len, accepted)
        rows = np.array(self._rows).reshape(-1, len(STEP_FIELDS))
        ends = np.cumsum(rows[:, _RUNNING]).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(accepted)])[np.concatenate([[0], ends])]
        self._keep(np.column_stack([rows, np.diff(sums)]))
        self._rows = array("d")
        self._filled = 0


def records_of(requests: Requests, tickets: Tickets) -> Records:
    """Return what says what is on record of tickets; those that started in mid-text are left out."""

    def records(ticket: IntArray) -> RequestLog:
        ticket = ticket[~np.isnan(tickets.first_s_K[ticket])]
        request = tickets.request_K[ticket]
        return RequestLog(
            request=request,
            start_s=tickets.first_s_K[ticket],
            end_s=tickets.end_s_K[ticket],
            output_tokens=requests.output_tokens_Q[request],
            rounds=tickets.rounds_K[ticket],
            arrival_s=tickets.arrival_s_K[ticket],
            admission_s=tickets.admission_s_K[ticket],
            prompt_tokens=requests.prompt_tokens_Q[request],
            preemptions=tickets.preemptions_K[ticket],
            replica=tickets.replica_K[ticket],
        )

    return records


def _step_log(table: FloatArray) -> StepLog:
    """Return the columns [F, S] of all rows; the last one is accepted tokens."""
    *columns, accepted = table
    named = dict(zip(STEP_FIELDS, columns, strict=True))
    times = {name: np.ascontiguousarray(named.pop(name)) for name in ("start_s", "step_s")}
    del named["gap_s"], named["gap_requests"]
    counts = {name: column.astype(np.int64) for name, column in named.items()}
    return StepLog(
        **times,
        **counts,
        verify_tokens=counts["batch_tokens"] - counts["num_running"] - counts["prefill_tokens"],
        accepted_tokens=accepted.astype(np.int64),
    )


def _at_least(counts: IntArray) -> IntArray:
    """Return, for lengths 0..G counted in ``counts`` [G+1], how many are >= j for j = 1..G."""
    tail: IntArray = np.cumsum(counts[::-1])[::-1][1:]
    return tail
