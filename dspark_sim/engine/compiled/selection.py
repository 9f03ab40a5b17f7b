"""Sorting and choosing survivals as whole numbers on their 2**-24 grid. Rows fall along positions.

A row has W columns: G survivals, then pads, which are -1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspark_sim.engine.compiled.compiling import inner
from dspark_sim.schema import IntArray

Keys = NDArray[np.int32]
Words = NDArray[np.uint64]

_BITS = 24
ONE = 1 << _BITS
_DIGIT = 9
_BINS = 1 << _DIGIT
_PASSES = 3
#: Words of eight values.
_WORDS = 4
#: Keys up to which merging the rows beats counting digits.
_FEW = 256

#: Counters that :func:`sort_down` needs.
SCRATCH_BINS = _PASSES * _BINS


@inner
def gather(
    table_XV: Words, rows_R: IntArray, size: int, stage_RV: Words, stage_X: NDArray[np.float32], keys_X: Keys
) -> None:
    """Write the survivals of ``size`` rows as whole numbers, one row after the other, pads included.

    Rows are moved in words, and converted all at once: what waits for memory is short, what computes is long.
    """
    words = table_XV.shape[1]
    if words == _WORDS:
        for r in range(size):
            row = rows_R[r]
            a, b, c, d = table_XV[row, 0], table_XV[row, 1], table_XV[row, 2], table_XV[row, 3]
            stage_RV[r, 0], stage_RV[r, 1], stage_RV[r, 2], stage_RV[r, 3] = a, b, c, d
    else:
        for r in range(size):
            row = rows_R[r]
            for v in range(words):
                stage_RV[r, v] = table_XV[row, v]
    for i in range(2 * words * size):
        keys_X[i] = np.int32(stage_X[i] * np.float32(ONE))


@inner
def sort_down(keys_X: Keys, other_X: Keys, bins: IntArray, size: int, width: int) -> Keys:
    """Return the keys of ``size`` rows, falling, pads last: in one of the arrays, the other is scratch."""
    rows = 1
    while rows < size:
        rows *= 2
    if rows * width > _FEW:
        return _by_digits(keys_X, other_X, bins, size * width)
    keys_X[size * width : rows * width] = -ONE
    return _merge_rows(keys_X, other_X, rows * width, width)


@inner
def _merge_rows(source: Keys, target: Keys, count: int, width: int) -> Keys:
    """Merge falling rows, a power of two of them, pair by pair: from both ends at once, without a branch."""
    run = width
    while run < count:
        for low in range(0, count, 2 * run):
            i, j = low, low + run
            p, q = low + run - 1, low + 2 * run - 1
            for k in range(run):
                left, right = source[i], source[j]
                takes = left >= right
                target[low + k] = left if takes else right
                i += takes
                j += not takes
                left, right = source[p], source[q]
                takes = left >= right
                target[low + 2 * run - 1 - k] = right if takes else left
                q -= takes
                p -= not takes
        source, target = target, source
        run *= 2
    return source


@inner
def _by_digits(source: Keys, target: Keys, bins: IntArray, count: int) -> Keys:
    """Radix sort, least digit first, of how far each key is below the largest possible."""
    bins[: _PASSES * _BINS] = 0
    mask = _BINS - 1
    for i in range(count):
        low = ONE - source[i]
        bins[low & mask] += 1
        bins[_BINS + ((low >> _DIGIT) & mask)] += 1
        bins[2 * _BINS + (low >> (2 * _DIGIT))] += 1
    for one in range(_PASSES):
        place = 0
        for b in range(one * _BINS, (one + 1) * _BINS):
            held = bins[b]
            bins[b] = place
            place += held
        shift, first = one * _DIGIT, one * _BINS
        for i in range(count):
            b = first + (((ONE - source[i]) >> shift) & mask)
            target[bins[b]] = source[i]
            bins[b] += 1
        source, target = target, source
    return source


@inner
def lengths_of_best(keys_X: Keys, size: int, width: int, gamma: int, budget: int, length_R: IntArray) -> None:
    """Write how many of each row are among the ``budget`` largest, 0 < budget < all.

    Ties go by position, then row.
    """
    smallest = _nth_largest(keys_X, size * width, budget)
    surplus = -budget
    for r in range(size):
        chosen = 0
        for j in range(width):
            chosen += keys_X[r * width + j] >= smallest
        length_R[r] = chosen
        surplus += chosen
    j = gamma
    while surplus > 0:
        j -= 1
        r = size
        while r > 0 and surplus > 0:
            r -= 1
            if keys_X[r * width + j] == smallest:
                length_R[r] -= 1
                surplus -= 1


@inner
def _nth_largest(keys_X: Keys, count: int, nth: int) -> int:
    """Return the ``nth`` largest of ``count`` keys, 1 the largest: the largest t that nth reach, by bits."""
    found = 0
    for bit in range(_BITS, -1, -1):
        higher, reached = found + (1 << bit), 0
        for i in range(count):
            reached += keys_X[i] >= higher
        if reached >= nth:
            found = higher
    return found
