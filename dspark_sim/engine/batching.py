"""Who runs: the stream of requests, the slots of the batch, and what older steps revealed of them.

Closed loop: every user has one request at a time, in a slot or waiting in one FIFO queue, and sends
the next when it is done. So requests are admitted in the order of the stream, ``concurrency`` minus
the running ones wait, and the queue needs no list of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspark_sim.engine.replay import Replay
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray


class RequestStream:
    """Shuffled requests of a trace, pass after pass: without end, or ``limit`` of them."""

    def __init__(self, num_requests: int, seed: int, limit: int | None) -> None:
        self._rng = stream(seed, "requests")
        self._num_requests = num_requests
        self._left = limit
        self._ahead: IntArray = np.empty(0, dtype=np.int64)

    def take(self, count: int) -> IntArray:
        """Return the next ``count`` requests, fewer at the end of a finite stream."""
        if self._left is not None:
            count = min(count, self._left)
            self._left -= count
        while len(self._ahead) < count:
            self._ahead = np.concatenate([self._ahead, self._rng.permutation(self._num_requests)])
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        return taken


def mid_text(replay: Replay, count: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return requests and rows of a loop that has run for long: decode positions drawn uniformly.

    A uniform position makes long texts likelier in proportion to their length, as a look at a random
    moment would, and keeps the users out of lockstep.
    """
    decode_Q: IntArray = np.cumsum(replay.last_row_Q - replay.first_row_Q)
    place: IntArray = stream(seed, "start").integers(decode_Q[-1], size=count)
    request: IntArray = np.searchsorted(decode_Q, place, side="right").astype(np.int64)
    return request, replay.last_row_Q[request] - (decode_Q[request] - place)


class Batch:
    """The running requests, one slot each, in order of slots. R = ``size``; arrays have shape [R].

    Attributes:
        request_R: row of the trace's requests.
        row_R: flat row of the current anchor.
        last_R: flat row of the last token.
        start_s_R: time of admission [s]; NaN for a request that started in mid-text.
        start_step_R: engine step of admission.
    """

    def __init__(self, slots: int) -> None:
        self.request_R: IntArray = np.zeros(slots, dtype=np.int64)
        self.row_R = self.request_R.copy()
        self.last_R = self.request_R.copy()
        self.start_step_R = self.request_R.copy()
        self.start_s_R: FloatArray = np.zeros(slots)

    @property
    def size(self) -> int:
        """R, the running requests."""
        return len(self.row_R)

    def place(
        self, slots: IntArray, request: IntArray, row: IntArray, last: IntArray, *, start_s: float, step: int
    ) -> None:
        """Put requests into ``slots`` at time ``start_s`` [s], before engine step ``step``."""
        self.request_R[slots], self.row_R[slots], self.last_R[slots] = request, row, last
        self.start_s_R[slots], self.start_step_R[slots] = start_s, step

    def remove(self, slots: IntArray) -> NDArray[np.bool_]:
        """Give up ``slots`` for good, and return the mask of those kept."""
        kept = np.ones(self.size, dtype=bool)
        kept[slots] = False
        for name in ("request_R", "row_R", "last_R", "start_s_R", "start_step_R"):
            setattr(self, name, getattr(self, name)[kept])
        return kept


class LagRing:
    """Rows of :func:`~dspark_sim.engine.replay.lagged_table` that the last ``lag`` steps revealed."""

    def __init__(self, lag: int, gamma: int, size: int, nothing: int) -> None:
        self._gamma = gamma
        self._nothing = nothing
        self._ring = np.full((lag, size), nothing, dtype=np.int64)
        self._cursor = 0

    def oldest_R(self) -> IntArray:
        """Return the rows of ``lag`` steps ago."""
        row: IntArray = self._ring[self._cursor]
        return row

    def push(self, row_R: IntArray, verify_len_R: IntArray) -> None:
        """Put this step's blocks in place of the oldest."""
        latest = self._ring[self._cursor]
        np.minimum(verify_len_R, self._gamma - 1, out=latest)
        latest += row_R * self._gamma
        self._cursor = (self._cursor + 1) % len(self._ring)

    def forget(self, slots: IntArray) -> None:
        """Reveal nothing of these slots: new requests are in them."""
        self._ring[:, slots] = self._nothing

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Drop the slots that the batch dropped."""
        self._ring = np.ascontiguousarray(self._ring[:, kept])
