"""The rounds of one replica: the batch that decodes, what its steps commit, and where its texts end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dspark_sim.engine.batching import Batch
from dspark_sim.engine.deciding import Decider
from dspark_sim.engine.prefill import Prompts
from dspark_sim.engine.requests import Requests, Resume, Tickets
from dspark_sim.schema import FloatArray, IntArray

#: Called with anchors [R], verify lengths [R] and accepted draft tokens [R] of each step that decodes.
Observer = Callable[[IntArray, IntArray, IntArray], None]
_NO_GAPS = np.empty(0)


class Decoding:
    """The running requests of a replica.

    The KV cache of a running request holds its prompt and its output up to the anchor, included:
    prompt_tokens + i + 1 tokens.

    Args:
        accepted_N: draft tokens that a full-block verification accepts, by anchor.
        requests, tickets: what is asked, what was sent.
        decider: policy and costs.
        slots: most requests at once.
        observer: told about every round; None: nobody.

    Attributes:
        batch: who runs.
        kv_tokens: sum of their KV contexts.
        steps: steps that decoded.
    """

    def __init__(
        self,
        accepted_N: IntArray,
        requests: Requests,
        tickets: Tickets,
        *,
        decider: Decider,
        slots: int,
        observer: Observer | None,
    ) -> None:
        self._accepted_N = accepted_N
        self._requests, self._tickets = requests, tickets
        self._decider = decider
        self._observer = observer
        self.batch = Batch(slots)
        self._one_R: IntArray = np.ones(slots, dtype=np.int64)
        self.kv_tokens = 0
        self.steps = 0
        self._emit_s = 0.0
        self._newcomers = False

    @property
    def verify_len_R(self) -> IntArray:
        """Verify lengths of the present step."""
        return self._decider.verify_len_R

    @property
    def batch_tokens(self) -> int:
        """B of the present step."""
        return self._decider.batch_tokens

    def join(self, tickets: IntArray, start_FX: IntArray, emit_s: float | FloatArray) -> IntArray:
        """Let requests join, as :meth:`Batch.join`; return their slots."""
        slots = self.batch.join(tickets, start_FX, emit_s, self.steps)
        self.kv_tokens += int(np.add.reduce(start_FX[0] + start_FX[3]))
        self._decider.forget(slots)
        differs = emit_s != self._emit_s
        self._newcomers |= differs if isinstance(differs, bool) else bool(differs.any())
        return slots

    def leave(self, slots: IntArray) -> IntArray:
        """Let the requests in ``slots`` go, note the rounds they had, and return their tickets."""
        batch = self.batch
        ticket: IntArray = batch.ticket_R[slots]
        self.kv_tokens -= int(np.add.reduce(batch.kv_base_R[slots] + batch.row_R[slots]))
        self._tickets.rounds_K[ticket] += self.steps - batch.start_step_R[slots]
        batch.leave(slots)
        return ticket

    def close_up(self) -> None:
        """Close the slots that nobody joined."""
        if self.batch.free.size:
            self._decider.keep(self.batch.close_up())

    def step_s(self, prompts: Prompts, num_waiting: int) -> float:
        """Draft and decide; return the duration of the step [s], ``prompts`` riding along."""
        return self._decider.step_s(self.batch, self.kv_tokens, prompts, num_waiting)

    def verify(self, step_s: float, end_s: float) -> tuple[IntArray, int, IntArray]:
        """Commit what was verified and accepted, up to the end of each text.

        Returns:
            draft tokens verified and accepted [R]; tokens committed; slots whose text has ended.
        """
        batch, verify_len_R = self.batch, self._decider.verify_len_R
        left_R = batch.last_R - batch.row_R
        accepted_R = np.minimum(verify_len_R, self._accepted_N.take(batch.row_R))
        np.minimum(accepted_R, left_R, out=accepted_R)
        if self._observer is not None:
            self._observer(batch.row_R.copy(), verify_len_R.copy(), accepted_R)
        self._decider.note(accepted_R, step_s)
        one_R = self._one_R[: accepted_R.size]  # an array of ones: a number costs an operation as much again
        committed_R = np.add(accepted_R, one_R)
        np.minimum(committed_R, left_R, out=committed_R)
        batch.row_R += committed_R
        committed = int(one_R.dot(committed_R))  # the cheapest sum
        self.kv_tokens += committed
        self.steps += 1
        self._emit_s, self._newcomers = end_s, False
        ended = (committed_R == left_R).nonzero()[0]
        if ended.size and self._requests.has_seams:
            ended = self._cross_seams(ended)
        return accepted_R, committed, ended

    def gaps(self, end_s: float) -> tuple[float, int, FloatArray]:
        """Return the gap that this step ends and how many share it, and those of newcomers singly [s]."""
        batch = self.batch
        if not self._newcomers:
            return end_s - self._emit_s, batch.size, _NO_GAPS
        since_s = batch.emit_s_R[batch.start_step_R == self.steps]
        return end_s - self._emit_s, batch.size - since_s.size, end_s - since_s

    def resume(self, slot: int) -> Resume:
        """Return how the request in ``slot`` goes on without KV: recomputing it yields its next token."""
        batch, requests = self.batch, self._requests
        request, row = int(self._tickets.request_K[batch.ticket_R[slot]]), int(batch.row_R[slot])
        kv_tokens = int(batch.kv_base_R[slot]) + row
        row, stretch = requests.next_stretch(request, int(batch.stretch_R[slot]), row + 1)
        joined = batch.start_step_R[slot] == self.steps
        return Resume(
            compute=kv_tokens - int(requests.cached_tokens_Q[request]),
            row=row,
            stretch=stretch,
            kv_tokens=kv_tokens + 1,
            emit_s=float(batch.emit_s_R[slot]) if joined else self._emit_s,
        )

    def check_laws(self) -> None:
        """Assert that every running request stands inside its text, and that KV adds up."""
        batch, requests = self.batch, self._requests
        running = np.setdiff1d(np.arange(batch.size), batch.free)
        request, row = self._tickets.request_K[batch.ticket_R[running]], batch.row_R[running]
        stretch, kv = batch.stretch_R[running], batch.kv_base_R[running] + row
        first, last = requests.first_S[stretch], requests.last_S[stretch]
        assert ((first <= row) & (row < last)).all(), "a running request stands inside its text"
        assert (batch.last_R[running] == last).all(), "a slot knows where its text ends"
        assert (kv > requests.prompt_tokens_Q[request]).all(), "KV holds the prompt and the anchor"
        assert (kv <= requests.most_tokens_Q[request]).all(), "no text is longer than was asked"
        assert self.kv_tokens == kv.sum(), "KV held = prompts and outputs of the running requests"

    def _cross_seams(self, slots: IntArray) -> IntArray:
        """Let requests at the end of a stretch go on with the next one; return those that have none."""
        batch, requests = self.batch, self._requests
        stretch = batch.stretch_R[slots] + 1
        request = self._tickets.request_K[batch.ticket_R[slots]]
        more = stretch < requests.stretch_Q1[request + 1]
        if more.any():
            onward, stretch = slots[more], stretch[more]
            first = requests.first_S[stretch]
            batch.kv_base_R[onward] += batch.row_R[onward] - first
            batch.row_R[onward], batch.last_R[onward] = first, requests.last_S[stretch]
            batch.stretch_R[onward] = stretch
        ended: IntArray = slots[~more]
        return ended
