"""Where requests come from: users of a closed loop, or arrivals at known times."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dspark_sim.engine.batching import RequestStream
from dspark_sim.engine.requests import Tickets
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.shelf import AT_ONCE, slices

Send = Callable[[IntArray], None]


class Source(Protocol):
    """A source of requests; ``next_s`` is the next arrival that is known beforehand [s].

    ``refused``: requests whose text no replica's KV holds, in order of sending.
    """

    next_s: float
    refused: list[int]

    def let_in(self, now_s: float) -> None:
        """Send what has arrived by ``now_s`` [s]."""

    def completed(self, count: int, now_s: float) -> None:
        """React to ``count`` requests that are done."""


class ClosedLoop:
    """Users that send the next request as soon as their last one is done, or a while later.

    Args:
        requests: in order of sending.
        tickets: where they are noted.
        fits_Q: which requests a replica's KV holds; a user whose request is refused sends the next.
        send: takes tickets of requests.
        refuse: told how many requests are refused.
        turnaround_s: from the end of a request to the sending of the next [s].
    """

    def __init__(
        self,
        requests: RequestStream,
        tickets: Tickets,
        fits_Q: NDArray[np.bool_],
        send: Send,
        refuse: Callable[[int], None],
        *,
        turnaround_s: float = 0.0,
    ) -> None:
        self._requests, self._tickets, self._send, self._refuse = requests, tickets, send, refuse
        self._fits_Q = None if fits_Q.all() else fits_Q
        self._turnaround_s = turnaround_s
        self._pending: deque[tuple[float, int]] = deque()
        self.next_s = math.inf
        self.refused: list[int] = []

    def let_in(self, now_s: float) -> None:
        """Send the next requests of users whose turnaround is over."""
        while self.next_s <= now_s:
            due_s, count = self._pending.popleft()
            self.next_s = self._pending[0][0] if self._pending else math.inf
            self.start(count, due_s)

    def completed(self, count: int, now_s: float) -> None:
        """Let ``count`` users go on."""
        if not self._turnaround_s:
            self.start(count, now_s)
            return
        self._pending.append((now_s + self._turnaround_s, count))
        self.next_s = self._pending[0][0]

    def ahead(self, count: int) -> IntArray:
        """Take up to ``count`` of the next requests out of the stream; the caller will send them."""
        return self._requests.take(count)

    def start(self, count: int, now_s: float) -> None:
        """Send the next requests of ``count`` users at once."""
        request = self._requests.take(count)
        if self._fits_Q is not None:
            request = self._fitting(request)
        if request.size:
            self._send(self._tickets.add(request, now_s))

    def _fitting(self, request: IntArray) -> IntArray:
        assert self._fits_Q is not None
        wanted, found = len(request), []
        while request.size:
            fits = self._fits_Q[request]
            self.refused += request[~fits].tolist()
            self._refuse(int(np.count_nonzero(~fits)))
            found.append(request[fits])
            wanted -= int(np.count_nonzero(fits))
            request = self._requests.take(wanted)
        return np.concatenate([np.empty(0, dtype=np.int64), *found])


class OpenLoop:
    """Requests at known times; those that fit have tickets in order of arrival.

    Args:
        arrival_s_Q: sorted times [s].
        tickets: where they are noted.
        fits_Q: as in :class:`ClosedLoop`.
        send: as in :class:`ClosedLoop`.
    """

    def __init__(
        self, arrival_s_Q: FloatArray, tickets: Tickets, fits_Q: NDArray[np.bool_], send: Send
    ) -> None:
        self.refused: list[int] = np.flatnonzero(~fits_Q).tolist()
        self._tickets = tickets.add(np.flatnonzero(fits_Q), arrival_s_Q[fits_Q])
        self._arrival_s_K = arrival_s_Q if fits_Q.all() else arrival_s_Q[fits_Q]
        self._send = send
        self._at = 0
        self.next_s = float(self._arrival_s_K[0]) if self._tickets.size else math.inf

    def let_in(self, now_s: float) -> None:
        """Send what has arrived."""
        if now_s < self.next_s:
            return
        end = int(self._arrival_s_K.searchsorted(now_s, side="right"))
        arrived, self._at = self._tickets[self._at : end], end
        self.next_s = float(self._arrival_s_K[end]) if end < self._tickets.size else math.inf
        self._send(arrived)

    def completed(self, count: int, now_s: float) -> None:
        """Arrivals do not wait for completions."""


def mid_text(rows: IntArray, inside: NDArray[np.bool_], count: int, seed: int) -> IntArray:
    """Return rows of a loop that has run for long, as a look at a random round finds them.

    A step has one round of every running request, so what is found in a slot is uniform over rounds:
    long texts are met more often, and so are hard ones, whose rounds commit less. The rounds of a
    full-block replay stand for those of any policy: a rule that verifies less has more of them where
    much would have been accepted, and which ones, only a run can tell; starts that all policies share
    keep them comparable under one seed.

    Args:
        rows: anchors that a full-block replay drafts from.
        inside: which of them may be drawn.
        count: how many.
        seed: of the stream ``start``.
    """
    drawn = stream(seed, "start").integers(np.count_nonzero(inside), size=count)
    return rows[_place(inside, drawn)]


def _place(inside: NDArray[np.bool_], nth: IntArray) -> IntArray:
    """Return where the ``nth`` true values are, counted from 0; their list, a large one, is never made."""
    ends = np.cumsum([np.count_nonzero(inside[some]) for some in slices(len(inside))])
    block = np.searchsorted(ends, nth, side="right")
    place = np.empty_like(nth)
    for b in np.unique(block):
        mine = block == b
        true = np.flatnonzero(inside[b * AT_ONCE : (b + 1) * AT_ONCE])
        place[mine] = b * AT_ONCE + true[nth[mine] - (ends[b - 1] if b else 0)]
    return place
