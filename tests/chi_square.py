"""One-sample chi-square with its power, for laws that can be written out cell by cell."""

from __future__ import annotations

import numpy as np
from scipy import stats

#: A true law is refused once in 100,000 tests; seeds are fixed, so a pass stays a pass.
ALPHA = 1e-5
MIN_EXPECTED = 5.0


def fit(cell: np.ndarray, law: np.ndarray) -> tuple[float, float, int]:
    """p-value, z = (chi2 - dof) / sqrt(2 dof) and degrees of freedom of draws against ``law``.

    Cells with fewer than five expected draws are merged; one draw that the law forbids refuses it.
    """
    count = np.bincount(cell, minlength=len(law)).astype(float)
    if count[law == 0].sum() > 0:
        return 0.0, np.inf, 0
    expected = law / law.sum() * len(cell)
    small = expected < MIN_EXPECTED
    seen = np.append(count[~small], count[small].sum())
    want = np.append(expected[~small], expected[small].sum())
    if want[-1] < MIN_EXPECTED:
        seen[-2], want[-2] = seen[-2] + seen[-1], want[-2] + want[-1]
        seen, want = seen[:-1], want[:-1]
    chi2, dof = float(((seen - want) ** 2 / want).sum()), len(want) - 1
    return float(stats.chi2.sf(chi2, dof)), (chi2 - dof) / np.sqrt(2 * dof), dof


def detectable_w(draws: int, dof: int, power: float = 0.99) -> float:
    """Smallest effect w = sqrt(sum (p' - p)^2 / p) that ``fit`` refuses at ALPHA with this power."""
    bar = stats.chi2.isf(ALPHA, dof)
    low, high = 0.0, 10.0
    for _ in range(60):
        w = (low + high) / 2
        low, high = (w, high) if stats.ncx2.sf(bar, dof, draws * w * w) < power else (low, w)
    return high
