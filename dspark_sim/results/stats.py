"""Intervals over replications: Student's t on independent seeds, paired by seed where two arms meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean of n replications with its confidence interval at :data:`LEVEL`; no interval (NaN) if n < 2."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval, in the unit of the mean; NaN if n < 2."""
        return (self.high - self.low) / 2

    @property
    def bounds(self) -> tuple[float, float] | None:
        """``(low, high)``, or None where one replication cannot say."""
        return (self.low, self.high) if self.n > 1 else None


def t_interval(values: Iterable[float]) -> Interval:
    """Return mean ± t_{n-1, 0.975} s / sqrt(n) of independent replications.

    Raises:
        ValueError: no values.
    """
    x = np.asarray(list(values), dtype=np.float64)
    if not x.size:
        raise ValueError("an interval needs at least one replication")
    mean = float(x.mean())
    if x.size == 1:
        return Interval(mean, float("nan"), float("nan"), 1)
    from scipy.special import stdtrit

    half = float(stdtrit(x.size - 1, (1 + LEVEL) / 2) * x.std(ddof=1) / np.sqrt(x.size))
    return Interval(mean, mean - half, mean + half, x.size)


def jackknife(whole: float, left_out: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of an estimate from n independent replications taken together.

    whole ± t_{n-1, 0.975} sqrt((n - 1) / n sum (x_i - mean x)^2), x_i the estimate without replication i
    (Tukey's jackknife). For what is not a mean of the replications' own values, such as a pooled quantile.

    Args:
        whole: the estimate from all replications.
        left_out: that without each of them.

    Returns:
        None with fewer than two replications.
    """
    x = np.asarray(left_out, dtype=np.float64)
    if x.size < 2:
        return None
    from scipy.special import stdtrit

    error = float(np.sqrt((x.size - 1) / x.size * ((x - x.mean()) ** 2).sum()))
    half = float(stdtrit(x.size - 1, (1 + LEVEL) / 2)) * error
    return whole - half, whole + half


def paired_change_pct(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Interval | None:
    """Return the interval of 100 (arm / baseline - 1) [%], seed by seed; None if no seed is in both.

    Policies share their random streams, so a pair differs by the policy alone and the interval of
    the paired change is far tighter than that of either arm.
    """
    shared = sorted(set(arm) & set(baseline))
    return t_interval(100.0 * (arm[s] / baseline[s] - 1.0) for s in shared) if shared else None
