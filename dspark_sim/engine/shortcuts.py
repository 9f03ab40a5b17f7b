"""Shipped rules without a view: the same lengths, bit for bit, in as few vector operations as they need.

A rule of the user's own, and any shipped rule that is not named here, is shown a
:class:`~dspark_sim.policies.base.BatchView`. Shape legend: R running requests, G = gamma, W columns of a
padded table (G survivals, then -1), M candidate draft tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dspark_sim.engine.replay import Replay, replays_tables
from dspark_sim.policies import dspark, full, mtp, off, static, threshold
from dspark_sim.policies.base import Policy
from dspark_sim.schema import FloatArray, IntArray

#: Columns whose truth values are one machine word.
_WORD = 8
#: Values from which finding one place is cheaper than sorting them all.
_MANY = 1024


class Shortcut(Protocol):
    """A rule's lengths from rows of the replay's tables.

    Attributes:
        needs_costs: whether it reads ``step_s_M``.
    """

    needs_costs: bool

    def lengths(self, row_R: IntArray, lagged_R: IntArray, step_s_M: FloatArray) -> tuple[IntArray, int]:
        """Return verify lengths [R], valid until the next call, and their sum.

        Args:
            row_R: anchors, rows of the tables.
            lagged_R: rows of ``replay.lagged_LW``; the anchors where nothing lags.
            step_s_M: as in :class:`~dspark_sim.policies.base.BatchView`; empty unless it is needed.
        """


_FIXED = (off.off, static.static, mtp.mtp, full.full)


def has_shortcut(policy: Policy) -> bool:
    """Return whether :func:`shortcut` knows the rule."""
    return policy.info.rule in (*_FIXED, threshold.threshold) or replays_tables(policy)


def shortcut(policy: Policy, replay: Replay, slots: int) -> Shortcut | None:
    """Return the shortcut of a shipped rule for up to ``slots`` requests; None: there is none."""
    rule, k = policy.info.rule, int(policy.options.get("k", 0))
    if rule in _FIXED:
        return FixedLength(replay.gamma if rule is full.full else k, slots)
    if rule is threshold.threshold:
        return PrefixLength(replay, slots, **policy.options)
    if replays_tables(policy):
        return Admission(replay, slots, stops=rule is dspark.dspark)
    return None


class FixedLength:
    """``off``, ``static``, ``mtp``, ``full``: one length for all."""

    needs_costs = False

    def __init__(self, length: int, slots: int) -> None:
        self.length = length
        self._length_R: IntArray = np.full(slots, length)

    def lengths(self, row_R: IntArray, lagged_R: IntArray, step_s_M: FloatArray) -> tuple[IntArray, int]:
        """Return the one length."""
        return self._length_R[: row_R.size], row_R.size * self.length


class PrefixLength:
    """``threshold``: a length for each anchor, known before the run."""

    needs_costs = False

    def __init__(self, replay: Replay, slots: int, on: str, at: float) -> None:
        values_NG = replay.survival_NG if on == "survival" else replay.confidence_NG
        assert values_NG is not None
        prefix_NG = np.logical_and.accumulate(values_NG >= at, axis=1)
        self.length_N: IntArray = np.add.reduce(prefix_NG, axis=1, dtype=np.int64)
        self._length_R: IntArray = np.empty(slots, dtype=np.int64)

    def lengths(self, row_R: IntArray, lagged_R: IntArray, step_s_M: FloatArray) -> tuple[IntArray, int]:
        """Return the lengths of the anchors."""
        length_R = self.length_N.take(row_R, mode="clip", out=self._length_R[: row_R.size])
        return length_R, int(np.add.reduce(length_R))


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Scratch arrays of a step of R requests. Values are float32: survivals are exact in it."""

    old_RW: NDArray[np.float32]
    old_sorted: NDArray[np.float32]
    falling: NDArray[np.float32]
    new_RW: NDArray[np.float32]
    new_X: NDArray[np.float32]
    sorted_X: NDArray[np.float32]
    theta_M: FloatArray
    candidates_M: FloatArray
    chosen_RW: NDArray[np.bool_]
    words_R: NDArray[np.uint64]
    length_R: IntArray


class Admission:
    """``dspark``, ``dspark-async``: the best tokens by survival, up to a budget that the costs decide."""

    needs_costs = True

    def __init__(self, replay: Replay, slots: int, *, stops: bool) -> None:
        assert replay.survival_NW is not None
        self._survival_NW = replay.survival_NW
        self._lagged_LW = replay.survival_NW if replay.lagged_LW is None else replay.lagged_LW
        self.stops = stops
        self._gamma, self._width = replay.gamma, self._survival_NW.shape[1]
        self._buffers = lru_cache(maxsize=slots)(self._allocate)

    def lengths(self, row_R: IntArray, lagged_R: IntArray, step_s_M: FloatArray) -> tuple[IntArray, int]:
        """Return the lengths of the ``budget`` largest current survivals."""
        running = row_R.size
        buffers = self._buffers(running)
        budget = self._budget(buffers, lagged_R, step_s_M)
        length_R = buffers.length_R
        if budget in (0, running * self._gamma):
            length_R.fill(self._gamma if budget else 0)
            return length_R, budget
        new_RW, chosen_RW = buffers.new_RW, buffers.chosen_RW
        self._survival_NW.take(row_R, axis=0, out=new_RW, mode="clip")
        values = buffers.sorted_X
        values[:] = buffers.new_X
        place = values.size - budget
        if values.size < _MANY:
            values.sort()
        else:
            values.partition(place)
        smallest = values[place]
        np.greater_equal(new_RW, smallest, out=chosen_RW)
        self._count(buffers)
        surplus = np.count_nonzero(chosen_RW) - budget
        if surplus:
            # Ties go by position, then request; of falling rows the last equals are the ones to drop.
            request_T = np.nonzero((new_RW == smallest).T)[1][-surplus:]
            np.subtract.at(length_R, request_T, 1)
        return length_R, budget

    def _budget(self, buffers: _Buffers, lagged_R: IntArray, step_s_M: FloatArray) -> int:
        """Return how many draft tokens pay: expected tokens / step_s, as the two rules search it."""
        theta_M = buffers.theta_M
        self._lagged_LW.take(lagged_R, axis=0, out=buffers.old_RW, mode="clip")
        buffers.old_sorted.sort()
        theta_M[0] = lagged_R.size
        buffers.candidates_M[:] = buffers.falling
        np.add.accumulate(theta_M, out=theta_M)
        np.divide(theta_M, step_s_M, out=theta_M)
        if not self.stops:
            return int(theta_M.argmax())
        worse = theta_M[1:] <= theta_M[:-1]
        stop = int(worse.argmax())
        return stop if worse[stop] else worse.size

    def _count(self, buffers: _Buffers) -> None:
        """Count the chosen tokens of each request into ``length_R``."""
        if self._width == _WORD:
            np.bitwise_count(buffers.words_R, out=buffers.length_R, casting="unsafe")
        else:
            np.add.reduce(buffers.chosen_RW, axis=1, out=buffers.length_R)

    def _allocate(self, running: int) -> _Buffers:
        shape, pads = (running, self._width), running * (self._width - self._gamma)
        old_RW, new_RW = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
        theta_M = np.empty(running * self._gamma + 1)
        chosen_RW = np.empty(shape, dtype=bool)
        return _Buffers(
            old_RW=old_RW,
            old_sorted=old_RW.reshape(-1),
            falling=old_RW.reshape(-1)[pads:][::-1],
            new_RW=new_RW,
            new_X=new_RW.reshape(-1),
            sorted_X=np.empty(old_RW.size, dtype=np.float32),
            theta_M=theta_M,
            candidates_M=theta_M[1:],
            chosen_RW=chosen_RW,
            words_R=chosen_RW.view(np.uint64)[:, 0],
            length_R=np.empty(running, dtype=np.int64),
        )
