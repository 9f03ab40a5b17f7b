"""The records of a run: written in chunks, summed when a chunk is full.

A step appends one tuple and two slices; histograms and sums are taken over thousands of rounds at
once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark_sim.schema import FloatArray, IntArray, RequestLog, RunLog, StepLog

_CHUNK_ROUNDS = 1 << 16


class Recorder:
    """Measures from the end of the warm-up to the end of the run.

    Args:
        gamma: draft tokens in a block.
        slots: most requests in a step.
        warmup_tokens: committed output tokens before measuring starts, at a step's end.
        output_tokens: committed output tokens to measure, up to a step's end; None: no end.
    """

    def __init__(self, gamma: int, slots: int, warmup_tokens: float, output_tokens: int | None) -> None:
        self._warmup_left = warmup_tokens
        self._wanted = output_tokens
        self.measuring = warmup_tokens <= 0
        self.measured_tokens = 0
        self.warmup_steps = 0
        self.completed = 0
        self._verify_len_counts: IntArray = np.zeros(gamma + 1, dtype=np.int64)
        self._accepted_counts = self._verify_len_counts.copy()
        self._verify_len = np.empty(max(_CHUNK_ROUNDS, slots), dtype=np.int64)
        self._accepted = np.empty_like(self._verify_len)
        self._filled = 0
        self._rows: list[tuple[float, float, int, int, int]] = []
        self._steps: list[FloatArray] = []
        self._finished: list[tuple[IntArray, FloatArray, FloatArray, IntArray]] = []

    @property
    def done(self) -> bool:
        """Whether all that was wanted is measured."""
        return self._wanted is not None and self.measured_tokens >= self._wanted

    def step(
        self,
        verify_len_R: IntArray,
        accepted_R: IntArray,
        *,
        start_s: float,
        step_s: float,
        batch_tokens: int,
        committed: int,
    ) -> None:
        """Note one step; ``accepted_R`` are draft tokens verified and accepted."""
        if not self.measuring:
            self._warm_up(committed)
            return
        count = len(verify_len_R)
        if self._filled + count > len(self._verify_len):
            self._flush()
        begin, self._filled = self._filled, self._filled + count
        self._verify_len[begin : self._filled] = verify_len_R
        self._accepted[begin : self._filled] = accepted_R
        self._rows.append((start_s, step_s, count, batch_tokens, committed))
        self.measured_tokens += committed

    def finish(self, request: IntArray, start_s: FloatArray, end_s: float, rounds: IntArray) -> None:
        """Note completed requests; those that started in mid-text (start NaN) are only counted."""
        if self.measuring:
            self.completed += len(request)
            self._finished.append((request, start_s, np.full(len(request), end_s), rounds))

    def run_log(self, tokens_Q: IntArray, **identity: Any) -> RunLog:
        """Return the records, with the fields of :class:`RunLog` that say which run it was.

        Args:
            tokens_Q: output tokens of each request of the trace, as replayed.
            identity: those fields.
        """
        steps = self._step_log()
        return RunLog(
            **identity,
            steps=steps,
            requests=self._request_log(tokens_Q),
            rounds=int(steps.num_running.sum()),
            completed=self.completed,
            verify_len_counts=self._verify_len_counts,
            position_verified=_at_least(self._verify_len_counts),
            position_accepted=_at_least(self._accepted_counts),
        )

    def _step_log(self) -> StepLog:
        self._flush()
        columns = np.concatenate([*self._steps, np.empty((0, 6))]).T
        start_s, step_s = (np.ascontiguousarray(column) for column in columns[:2])
        running, batch, committed, accepted = (column.astype(np.int64) for column in columns[2:])
        return StepLog(start_s, step_s, running, batch, batch - running, accepted, committed)

    def _request_log(self, tokens_Q: IntArray) -> RequestLog:
        none = np.empty(0, dtype=np.int64)
        finished = [(none, np.empty(0), np.empty(0), none), *self._finished]
        request, start_s, end_s, rounds = (np.concatenate(column) for column in zip(*finished, strict=True))
        whole = ~np.isnan(start_s)
        request = request[whole]
        return RequestLog(request, start_s[whole], end_s[whole], tokens_Q[request], rounds[whole])

    def _warm_up(self, committed: int) -> None:
        self._warmup_left -= committed
        self.warmup_steps += 1
        self.measuring = self._warmup_left <= 0

    def _flush(self) -> None:
        if not self._rows:
            return
        verify_len, accepted = self._verify_len[: self._filled], self._accepted[: self._filled]
        size = len(self._verify_len_counts)
        self._verify_len_counts += np.bincount(verify_len, minlength=size)
        self._accepted_counts += np.bincount(accepted, minlength=size)
        rows = np.array(self._rows)
        begins = np.concatenate([[0], np.cumsum(rows[:-1, 2])]).astype(np.int64)
        sums = np.add.reduceat(accepted, begins, dtype=np.int64)
        self._steps.append(np.column_stack([rows, sums]))
        self._rows.clear()
        self._filled = 0


def _at_least(counts: IntArray) -> IntArray:
    """Return, for lengths 0..G counted in ``counts`` [G+1], how many are >= j for j = 1..G."""
    tail: IntArray = np.cumsum(counts[::-1])[::-1][1:]
    return tail
