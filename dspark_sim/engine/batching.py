"""Who runs: the slots of the batch, the stream of a closed loop's requests, and what older steps revealed."""

from __future__ import annotations

import numpy as np

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


class Batch:
    """The requests that decode, one slot each, in order of slots. Arrays have shape [R], R = ``size``.

    A request that leaves frees its slot; the next ones to join fill free slots in order, then new ones
    at the end; :meth:`close_up` closes what is left free.

    Attributes:
        ticket_R: the request.
        row_R: flat row of the current anchor.
        last_R: flat row of the last token of its stretch.
        stretch_R: the stretch of text that it replays.
        kv_base_R: its KV tokens are ``kv_base_R + row_R``.
        blocks_R: KV blocks that it holds.
        order_R: rank of its admission.
        start_step_R: step of the replica before which it joined.
        emit_s_R: when its newest token had appeared as it joined [s].
        free: slots that nobody is in, ascending.
    """

    _FIELDS = 8

    def __init__(self, slots: int) -> None:
        self._ints: IntArray = np.zeros((self._FIELDS, slots), dtype=np.int64)
        self._emit_s: FloatArray = np.zeros(slots)
        self._none: IntArray = np.empty(0, dtype=np.int64)
        self.free = self._none
        self._resize(0)

    @property
    def running(self) -> int:
        """Requests in the batch; R once it is closed up."""
        return self.size - self.free.size

    def join(self, tickets: IntArray, start_FX: IntArray, emit_s: float | FloatArray, step: int) -> IntArray:
        """Put requests into slots, and return the slots.

        Args:
            tickets: the requests.
            start_FX: row, last row, stretch and KV base of each.
            emit_s: when the newest token of each appeared [s].
            step: the next step of the replica.
        """
        count = len(tickets)
        slots, self.free = self.free[:count], self.free[count:]
        more = count - len(slots)
        if more:
            slots = np.concatenate([slots, np.arange(self.size, self.size + more)])
            self._resize(self.size + more)
        self._ints[1:5, slots] = start_FX
        self.ticket_R[slots], self.start_step_R[slots], self.emit_s_R[slots] = tickets, step, emit_s
        return slots

    def leave(self, slots: IntArray) -> None:
        """Free ``slots``, ascending."""
        self.free = np.sort(np.concatenate([self.free, slots])) if self.free.size else slots

    def close_up(self) -> IntArray:
        """Close the free slots; return those that were kept, in order."""
        mask = np.ones(self.size, dtype=bool)
        mask[self.free] = False
        kept: IntArray = mask.nonzero()[0]
        self._ints[:, : kept.size] = self._ints[:, kept]
        self._emit_s[: kept.size] = self._emit_s[kept]
        self.free = self._none
        self._resize(kept.size)
        return kept

    def _resize(self, size: int) -> None:
        self.size = size
        fields = self._ints[:, :size]
        self.ticket_R, self.row_R, self.last_R, self.stretch_R, self.kv_base_R = fields[:5]
        self.blocks_R, self.order_R, self.start_step_R = fields[5:]
        self.emit_s_R = self._emit_s[:size]


class LagRing:
    """Rows of :func:`~dspark_sim.engine.replay.lagged_table` that the last ``lag`` steps revealed."""

    def __init__(self, lag: int, gamma: int, slots: int, nothing: int) -> None:
        self._nothing = nothing
        self._ring = np.full((lag, slots), nothing, dtype=np.int64)
        self._gamma_R, self._most_R = np.full(slots, gamma), np.full(slots, gamma - 1)
        self._scratch_R: IntArray = np.empty(slots, dtype=np.int64)
        self._cursor = 0

    def oldest_R(self, size: int) -> IntArray:
        """Return the rows of ``lag`` steps ago, of the first ``size`` slots."""
        row: IntArray = self._ring[self._cursor, :size]
        return row

    def push(self, row_R: IntArray, verify_len_R: IntArray) -> None:
        """Put this step's blocks in place of the oldest."""
        size = row_R.size
        latest, anchor_R = self._ring[self._cursor, :size], self._scratch_R[:size]
        np.multiply(row_R, self._gamma_R[:size], out=anchor_R)
        np.minimum(verify_len_R, self._most_R[:size], out=latest)
        np.add(latest, anchor_R, out=latest)
        self._cursor = (self._cursor + 1) % len(self._ring)

    def forget(self, slots: IntArray) -> None:
        """Reveal nothing of these slots: new requests are in them."""
        self._ring[:, slots] = self._nothing

    def keep(self, kept: IntArray) -> None:
        """Follow a batch that closed up."""
        self._ring[:, : kept.size] = self._ring[:, kept]
