"""The document behind a report page: everything that the page shows, counted once, with intervals.

A *triple* is [mean, low, high]: the mean over seeds and its 95% Student's t interval, null ends where
one seed cannot say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dspark_sim.results.canvas import name as key_name
from dspark_sim.results.curves import Key, arms, pareto
from dspark_sim.results.details import DETAIL, SHARES, bin_start, has_details
from dspark_sim.results.metrics import Point
from dspark_sim.results.notes import notes, same_model
from dspark_sim.results.report_words import headline, question, setup_words, title, verdict_words
from dspark_sim.results.stats import Interval, paired_change_pct, t_interval
from dspark_sim.results.store import Results
from dspark_sim.results.style import dasharray, look

SCHEMA = "dspark-sim/report/1"

Triple = list[float | None]

#: Columns of the page's table: id -> (name, unit, decimals).
COLUMNS: dict[str, tuple[str, str, int]] = {
    "gpu": ("throughput", "tok/s/GPU", 0),
    "vs": ("change", "%", 1),
    "user": ("speed", "tok/s/user", 1),
    "tau": ("accepted length", "tok/round", 2),
    "budget": ("verification budget", "tok/round", 2),
    "rate": ("accept rate", "", 3),
    "step": ("step", "ms", 2),
    "tokens": ("batch tokens", "tok/step", 0),
    "eager": ("past capture", "% of steps", 1),
    "tpot": ("median TPOT", "ms", 2),
    "tail": ("p99 TPOT", "ms", 2),
}
#: Columns that are there before the reader asks for all.
FIRST = ("gpu", "vs", "user", "tau", "budget", "step")
#: id -> column of a point, for what every folder has.
_MEASURED = {
    "gpu": "tok_per_s_per_gpu",
    "user": "tok_per_s_per_user",
    "tau": "accepted_len",
    "budget": "verification_budget",
    "rate": "accept_rate",
    "step": "step_ms",
}
_MEDIAN, _TAIL = SHARES.index(0.5), SHARES.index(0.99)
#: id -> how it is read off a detail.
_DETAILED: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "tokens": lambda d: float(d["batch_tokens"]),
    "eager": lambda d: 100.0 * float(d["eager"]),
    "tpot": lambda d: float(d["tpot_ms"][_MEDIAN]) if d["tpot_ms"] else math.nan,
    "tail": lambda d: float(d["tpot_ms"][_TAIL]) if d["tpot_ms"] else math.nan,
}


def report_document(results: Results, frontier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report document (schema ``dspark-sim/report/1``).

    Args:
        results: points with what they are about; details and evidence where the folder has them.
        frontier: frontier document of the same points.
    """
    points, about = results.points, results.about
    detailed = has_details(points)
    keys = list(arms(points))
    shown = [name for name in COLUMNS if detailed or name in _MEASURED or name == "vs"]
    return {
        "schema": SCHEMA,
        "title": title(about),
        "question": question(about, points, frontier["baseline"]),
        "synthetic": about["trace"]["synthetic"],
        "same_model": same_model(about["trace"]["target"], about["profile"]["model"]),
        "setup": setup_words(about, points),
        "notes": notes(about, points),
        "baseline": frontier["baseline"],
        "arms": [arm_entry(key, keys, points) for key in keys],
        "loads": sorted({p["concurrency"] for p in points}),
        "slas": [_sla(sla, frontier) for sla in sorted({row["sla"] for row in frontier["sla"]})],
        "columns": [
            {
                "id": name,
                "name": COLUMNS[name][0],
                "unit": COLUMNS[name][1],
                "digits": COLUMNS[name][2],
                "first": name in FIRST,
                "change": name == "vs",
            }
            for name in shown
        ],
        "points": _rows(points, frontier["baseline"], detailed),
        "shares": list(SHARES),
        "evidence": results.evidence,
    }


def arm_entry(key: Key, keys: Sequence[Key], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a page knows of one (drafter, policy): names, look, verdict."""
    style = look(key[1])
    drafters = list(dict.fromkeys(drafter for drafter, _ in keys))
    verdict = next(p["lossless"] for p in points if (p["drafter"], p["policy"]) == key)
    return {
        "key": key_id(key),
        "name": key_name(key, keys),
        "drafter": key[0],
        "policy": key[1],
        "colours": [style.colour, style.text, style.on_dark],
        "marker": style.marker,
        "dash": dasharray(drafters.index(key[0])),
        "lossless": verdict,
        "verdict": verdict_words(verdict),
    }


def key_id(key: Key) -> str:
    """Return what rows of one (drafter, policy) are found by."""
    return f"{key[0]}|{key[1]}"


def _sla(sla: float, frontier: Mapping[str, Any]) -> dict[str, Any]:
    rows = [row for row in frontier["sla"] if row["sla"] == sla]
    matched = [row for row in frontier["matched"] if row["sla"] == sla]
    return {
        "sla": sla,
        "headline": headline(rows, matched, frontier["baseline"]),
        "rows": [_reading(row, other) for row, other in zip(rows, matched, strict=True)],
    }


def _reading(row: Mapping[str, Any], matched: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": key_id((row["drafter"], row["policy"])),
        "gpu": _bounded(row["tok_per_s_per_gpu"], row["tok_per_s_per_gpu_ci95"]),
        "vs": _bounded(row["vs_baseline_pct"], row["vs_baseline_pct_ci95"]),
        "concurrency": row["concurrency"],
        "user": row["tok_per_s_per_user"],
        "fastest": row["highest_tok_per_s_per_user"],
        "at_end": row["at_highest_concurrency"],
        "matched_user": matched["tok_per_s_per_user"],
        "matched_vs": _bounded(matched["vs_baseline_pct"], matched["vs_baseline_pct_ci95"]),
    }


def _bounded(value: float | None, bounds: Sequence[float] | None) -> Triple:
    return [value, *(bounds or (None, None))]


def triple(interval: Interval | None) -> Triple:
    """Return [mean, low, high] of an interval; nulls for what is not known."""
    if interval is None or math.isnan(interval.mean):
        return [None, None, None]
    return [interval.mean, *(interval.bounds or (None, None))]


def _rows(points: Sequence[Point], baseline: str, detailed: bool) -> list[dict[str, Any]]:
    """Return one row a (drafter, policy, load): triples of the table, and pooled distributions."""
    kept = {
        key: set(_strong(arm.mean.concurrency, arm.mean.user, arm.mean.gpu))
        for key, arm in arms(points).items()
    }
    groups: dict[tuple[Key, int], list[Point]] = {}
    for p in points:
        groups.setdefault(((p["drafter"], p["policy"]), p["concurrency"]), []).append(p)
    return [
        {
            "key": key_id(key),
            "load": load,
            "seeds": len(group),
            "strong": load in kept[key],
            "vs": triple(change_pct(group, points, baseline)),
        }
        | {name: triple(t_interval(p[column] for p in group)) for name, column in _MEASURED.items()}
        | (_distributions([p[DETAIL] for p in group]) if detailed else {})
        for (key, load), group in groups.items()
    ]


def _strong(loads: Any, user: Any, gpu: Any) -> list[int]:
    return [int(load) for load in loads[pareto(user, gpu)]]


def change_pct(group: Sequence[Point], points: Sequence[Point], baseline: str) -> Interval | None:
    """Return the change of tok/s/GPU of a group of seeds against ``baseline`` at its load, paired by seed."""
    base = [p for p in points if p["policy"] == baseline and p["concurrency"] == group[0]["concurrency"]]
    own = [p for p in base if p["drafter"] == group[0]["drafter"]] or base
    return paired_change_pct(_by_seed(group), _by_seed(own))


def _by_seed(points: Sequence[Point]) -> dict[int, float]:
    return {p["seed"]: p["tok_per_s_per_gpu"] for p in points}


def _distributions(details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the pooled distributions of the seeds of one row, and triples of what is read off them."""
    rounds = max(1, sum(sum(d["verify_len"]) for d in details))
    quantiles = [d["tpot_ms"] for d in details if d["tpot_ms"]]
    return {name: triple(t_interval(read(d) for d in details)) for name, read in _DETAILED.items()} | {
        "bins": _pooled_bins(details),
        "verified": [
            _share(column, rounds) for column in zip(*(d["verified"] for d in details), strict=True)
        ],
        "accepted": [
            _share(column, rounds) for column in zip(*(d["accepted"] for d in details), strict=True)
        ],
        "tpot_ms": [triple(t_interval(column)) for column in zip(*quantiles, strict=True)],
    }


def _share(counts: Sequence[int], rounds: int) -> float:
    return sum(counts) / rounds


def _pooled_bins(details: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return [smallest, largest batch tokens, share of steps] by bin, ascending."""
    found: dict[int, list[int]] = {}
    for small, large, count in (bin_ for d in details for bin_ in d["batch"]):
        bin_ = found.setdefault(bin_start(small), [small, large, 0])
        bin_[:] = [min(small, bin_[0]), max(large, bin_[1]), bin_[2] + count]
    total = sum(count for _, _, count in found.values())
    return [[small, large, round(count / total, 6)] for _, (small, large, count) in sorted(found.items())]
