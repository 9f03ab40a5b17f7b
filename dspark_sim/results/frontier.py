"""The answer as one document: frontiers, readings at SLA anchors, users' speed at matched throughput.

Central values are readings of the curve of means over seeds. Intervals come from reading every
seed's own curves and comparing with the baseline's of the same seed; they are null where there is
one seed only or where a seed has no reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.results.curves import Arm, Curve, Key, Reading, arms, at_sla, at_throughput, pareto
from dspark_sim.results.metrics import Point
from dspark_sim.results.stats import t_interval

SCHEMA = "dspark-sim/frontier/1"

Bounds = tuple[float, float] | None


def frontier(points: Sequence[Point], baseline: str, slas: Sequence[float]) -> dict[str, Any]:
    """Return the frontier document (schema ``dspark-sim/frontier/1``) of simulated points.

    Args:
        points: records with the columns of POINT_COLUMNS, any number of seeds.
        baseline: normalised policy spec that percentages are against, of the same drafter if it
            ran with it, else of the first drafter that it ran with.
        slas: anchors [tok/s/user].

    Raises:
        InputError: the baseline is not among the points.
    """
    found = arms(points)
    against = {key: found[_baseline_key(found, baseline, key[0])] for key in found}
    return {
        "schema": SCHEMA,
        "baseline": baseline,
        "frontier": [_frontier_row(key, arm) for key, arm in found.items()],
        "sla": [_sla_row(sla, key, arm, against[key]) for sla in slas for key, arm in found.items()],
        "matched": [_matched_row(sla, key, arm, against[key]) for sla in slas for key, arm in found.items()],
    }


def default_slas(points: Sequence[Point], baseline: str) -> list[float]:
    """Return two round anchors a third and two thirds into the baseline's range of speeds [tok/s/user].

    A baseline of one speed has no range, and no anchors.

    Raises:
        InputError: the baseline is not among the points.
    """
    found = arms(points)
    user = found[_baseline_key(found, baseline, points[0]["drafter"])].mean.user
    low, high = float(user.min()), float(user.max())
    if high <= low:
        return []
    step = 10.0 ** np.floor(np.log10((high - low) / 3))
    thirds = [low + share * (high - low) for share in (1 / 3, 2 / 3)]
    return list(dict.fromkeys(float(step * round(third / step)) for third in thirds))


def _baseline_key(found: dict[Key, Arm], baseline: str, drafter: str) -> Key:
    keys = [key for key in found if key[1] == baseline]
    if not keys:
        known = dict.fromkeys(policy for _, policy in found)
        raise InputError(
            f"baseline '{baseline}' is not in the results{did_you_mean(baseline, known)}; "
            f"they hold {', '.join(known)}"
        )
    return next((key for key in keys if key[0] == drafter), keys[0])


def _frontier_row(key: Key, arm: Arm) -> dict[str, Any]:
    curve = arm.mean
    kept = np.flatnonzero(pareto(curve.user, curve.gpu))
    order = kept[np.argsort(curve.user[kept], kind="stable")]
    seeds = list(arm.by_seed.values())
    return {
        "drafter": key[0],
        "policy": key[1],
        "points": [[float(curve.user[i]), float(curve.gpu[i]), int(curve.concurrency[i])] for i in order],
        "ci95": [
            {
                "tok_per_s_per_user": _bounds([float(seed.user[i]) for seed in seeds]),
                "tok_per_s_per_gpu": _bounds([float(seed.gpu[i]) for seed in seeds]),
            }
            for i in order
        ],
    }


def _sla_row(sla: float, key: Key, arm: Arm, base: Arm) -> dict[str, Any]:
    reading = at_sla(arm.mean, sla)

    def gpu(curve: Curve, _: Curve) -> float | None:
        return _value(at_sla(curve, sla), "gpu")

    def change(curve: Curve, other: Curve) -> float | None:
        return _pct(_value(at_sla(curve, sla), "gpu"), _value(at_sla(other, sla), "gpu"))

    return {
        "sla": sla,
        "drafter": key[0],
        "policy": key[1],
        "tok_per_s_per_gpu": _value(reading, "gpu"),
        "tok_per_s_per_user": _value(reading, "user"),
        "concurrency": _value(reading, "concurrency"),
        "vs_baseline_pct": change(arm.mean, base.mean),
        "feasible": reading is not None,
        "tok_per_s_per_gpu_ci95": _seed_bounds(gpu, arm, arm),
        "vs_baseline_pct_ci95": _seed_bounds(change, arm, base),
        "highest_tok_per_s_per_user": float(arm.mean.user.max()),
        "at_highest_concurrency": _at_end(reading, arm.mean),
    }


def _matched_row(sla: float, key: Key, arm: Arm, base: Arm) -> dict[str, Any]:
    level = _value(at_sla(base.mean, sla), "gpu")
    reading = at_throughput(arm.mean, level)

    def change(curve: Curve, other: Curve) -> float | None:
        matched = _value(at_sla(other, sla), "gpu")
        return _pct(
            _value(at_throughput(curve, matched), "user"), _value(at_throughput(other, matched), "user")
        )

    return {
        "sla": sla,
        "drafter": key[0],
        "policy": key[1],
        "level_tok_per_s_per_gpu": level,
        "tok_per_s_per_user": _value(reading, "user"),
        "concurrency": _value(reading, "concurrency"),
        "vs_baseline_pct": change(arm.mean, base.mean),
        "feasible": reading is not None,
        "vs_baseline_pct_ci95": _seed_bounds(change, arm, base),
    }


def _value(reading: Reading | None, field: str) -> float | None:
    return None if reading is None else float(getattr(reading, field))


def _pct(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else 100.0 * (value / base - 1.0)


def _at_end(reading: Reading | None, curve: Curve) -> bool:
    """Whether the best place is the highest simulated load: a higher one, not simulated, may be better."""
    return reading is not None and reading.concurrency == float(curve.concurrency[-1])


def _bounds(values: Sequence[float]) -> Bounds:
    return t_interval(values).bounds if values else None


def _seed_bounds(read: Callable[[Curve, Curve], float | None], arm: Arm, base: Arm) -> Bounds:
    """Return the interval of ``read`` over the seeds that both arms ran in full."""
    values = [read(arm.by_seed[seed], base.by_seed[seed]) for seed in arm.by_seed if seed in base.by_seed]
    there = [value for value in values if value is not None]
    return _bounds(there) if len(there) == len(values) else None
