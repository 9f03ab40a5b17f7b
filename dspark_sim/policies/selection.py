"""What confidence-scheduled rules share: expected tokens by budget, and the best tokens of a budget.

Candidates are the draft tokens (r, j) of a batch; a budget of m verifies the m of largest survival.
Ties go by position, then request; survivals fall along j, so the choice is a prefix of every block.
Values are sorted, not indices: the order among equals does not change a sum, and the allocation
needs only the smallest admitted value and who shares it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.schema import FloatArray, IntArray, Verdict

_MANY = 512


def under_lag(lag: int) -> Verdict:
    """Return the verdict of a rule whose budget searches the whole list of lagged survivals."""
    return "lossless-under-lag" if lag else "not-lossless"


def expected_tokens_M(survival_RG: FloatArray, base: float | None = None) -> FloatArray:
    """Return ``base`` + the sum of the m largest survivals, m = 0..R*G [tokens of the batch a step].

    Args:
        survival_RG: of the candidates.
        base: tokens without any of them; None: R, one a request.
    """
    expected = np.empty(survival_RG.size + 1)
    expected[0] = survival_RG.shape[0] if base is None else base
    expected[1:] = np.sort(_narrow(survival_RG), axis=None)[::-1]
    np.add.accumulate(expected, out=expected)
    return expected


def top_k(survival_RG: FloatArray, budget: int) -> IntArray:
    """Return verify_len [R] of the ``budget`` largest survivals; survivals must not rise along j."""
    running, gamma = survival_RG.shape
    if budget in (0, survival_RG.size):
        return np.full(running, gamma if budget else 0, dtype=np.int64)
    values = _narrow(survival_RG)
    place = values.size - budget
    smallest = np.partition(values, place, axis=None)[place]
    chosen = values >= smallest
    surplus = np.count_nonzero(chosen) - budget
    if surplus:
        position_T, request_T = np.nonzero((values == smallest).T)
        chosen[request_T[-surplus:], position_T[-surplus:]] = False
    verify_len: IntArray = np.add.reduce(chosen, axis=1, dtype=np.int64)
    return verify_len


def best_budget(survival_RG: FloatArray, step_s_M: FloatArray, base: float | None = None) -> int:
    """Return the m of largest expected tokens / step_s, the smallest among equals."""
    return int((expected_tokens_M(survival_RG, base) / step_s_M).argmax())


def floored_top_k(survival_RG: FloatArray, floor: int, budget: int) -> IntArray:
    """Return verify_len [R]: ``floor`` tokens each, and the ``budget`` best of the tokens behind."""
    floor = min(floor, survival_RG.shape[1])
    rest_RG = survival_RG[:, floor:]
    return floor + top_k(rest_RG, min(budget, rest_RG.size))


def _narrow(survival_RG: FloatArray) -> NDArray[Any]:
    """Return many values as float32 if that is exact (survivals on the 2**-24 grid): half the sort."""
    if survival_RG.size < _MANY:
        return survival_RG
    narrow = survival_RG.astype(np.float32)
    return narrow if (narrow == survival_RG).all() else survival_RG
