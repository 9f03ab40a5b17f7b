"""Curves along concurrency, their Pareto sets, and where they meet an SLA.

A *curve* is what one (drafter, policy) does along concurrency: tok/s/user and tok/s/GPU, means over
seeds. Between two neighbouring simulated concurrencies both are linear in concurrency; outside the
simulated range nothing is said. On that curve

- the reading at an SLA is the highest tok/s/GPU at which tok/s/user >= SLA;
- the reading at matched throughput is the highest tok/s/user at which tok/s/GPU >= the level, which
  is the baseline's own reading at the SLA.

On a segment both are linear, so the optimum is at an end of the segment or where the constraint
starts to hold: the search over those candidates is exact. Ties go to the lower concurrency.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark_sim.results.metrics import Point
from dspark_sim.schema import FloatArray

Key = tuple[str, str]  # (drafter, policy)


@dataclass(frozen=True, slots=True)
class Curve:
    """What one policy does along concurrency, ascending. Arrays have shape [C]."""

    concurrency: FloatArray
    user: FloatArray  # tok/s/user
    gpu: FloatArray  # tok/s/GPU


@dataclass(frozen=True, slots=True)
class Arm:
    """The curve of means over seeds, and the curve of every seed that ran at each concurrency."""

    mean: Curve
    by_seed: dict[int, Curve]


@dataclass(frozen=True, slots=True)
class Reading:
    """A place on a curve: concurrency may lie between two simulated ones."""

    concurrency: float
    user: float
    gpu: float


def _curve(points: Sequence[Point]) -> Curve:
    loads = sorted({p["concurrency"] for p in points})
    at = {load: [p for p in points if p["concurrency"] == load] for load in loads}

    def means(column: str) -> FloatArray:
        return np.array([np.mean([p[column] for p in at[load]]) for load in loads])

    return Curve(np.array(loads, dtype=np.float64), means("tok_per_s_per_user"), means("tok_per_s_per_gpu"))


def arms(points: Sequence[Point]) -> dict[Key, Arm]:
    """Return the curves of every (drafter, policy), in the order of their first point."""
    grouped: dict[Key, list[Point]] = {}
    for p in points:
        grouped.setdefault((p["drafter"], p["policy"]), []).append(p)
    return {key: _arm(group) for key, group in grouped.items()}


def _arm(points: list[Point]) -> Arm:
    mean = _curve(points)
    seeds = sorted({p["seed"] for p in points})
    curves = {seed: _curve([p for p in points if p["seed"] == seed]) for seed in seeds}
    complete = {seed: curve for seed, curve in curves.items() if len(curve.user) == len(mean.user)}
    return Arm(mean, complete)


def pareto(x: FloatArray, y: FloatArray) -> NDArray[np.bool_]:
    """Return which of the points (x, y) no other point dominates, shape [C]; more is better in both.

    A point dominates another if it is at least as good in both and better in one.
    """
    as_good = (x[:, None] >= x) & (y[:, None] >= y)
    better = (x[:, None] > x) | (y[:, None] > y)
    dominated: NDArray[np.bool_] = np.any(as_good & better, axis=0)
    return ~dominated


def best_where(
    concurrency: FloatArray, objective: FloatArray, constraint: FloatArray, level: float
) -> float | None:
    """Return the concurrency of the highest ``objective`` where ``constraint >= level``; None if nowhere.

    Arrays [C] are the nodes of curves that are linear in concurrency between them; ties go to the
    lower concurrency.
    """
    held = constraint >= level
    candidates = [*concurrency[held], *_crossings(concurrency, constraint, level)]
    if not candidates:
        return None
    values = np.interp(candidates, concurrency, objective)
    best = min(zip(values, candidates, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return float(best[1])


def _crossings(concurrency: FloatArray, constraint: FloatArray, level: float) -> Iterable[float]:
    """Yield the concurrencies strictly inside a segment at which ``constraint`` passes ``level``."""
    for i in np.flatnonzero((constraint[:-1] >= level) != (constraint[1:] >= level)):
        share = (level - constraint[i]) / (constraint[i + 1] - constraint[i])
        yield float(concurrency[i] + share * (concurrency[i + 1] - concurrency[i]))


def _read(curve: Curve, concurrency: float | None) -> Reading | None:
    if concurrency is None:
        return None
    user = float(np.interp(concurrency, curve.concurrency, curve.user))
    return Reading(float(concurrency), user, float(np.interp(concurrency, curve.concurrency, curve.gpu)))


def at_sla(curve: Curve, sla: float) -> Reading | None:
    """Return where ``curve`` has its best tok/s/GPU with tok/s/user >= ``sla``; None if nowhere."""
    return _read(curve, best_where(curve.concurrency, curve.gpu, curve.user, sla))


def at_throughput(curve: Curve, level: float | None) -> Reading | None:
    """Return where ``curve`` has its best tok/s/user with tok/s/GPU >= ``level``; None if nowhere."""
    if level is None:
        return None
    return _read(curve, best_where(curve.concurrency, curve.user, curve.gpu, level))
