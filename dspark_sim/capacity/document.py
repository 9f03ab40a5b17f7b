"""The JSON document of the answers, and each of them in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dspark_sim.capacity.terms import BEYOND, KNEE, NOT_MET, Found, Terms
from dspark_sim.results.slo import METRICS
from dspark_sim.results.stats import jackknife

SCHEMA = "dspark-sim/capacity/1"
MS_PER_S = 1e3
#: Figures at the rate that are given as means over replications.
_MEANS = (
    "tok_per_s_per_gpu",
    "goodput_requests_per_s",
    "goodput_tok_per_s_per_gpu",
    "attainment",
    "mean_users",
    "mean_waiting",
    "accepted_len",
    "verify_len",
    "preemptions",
    "refused",
)


def document(found: Sequence[Found], terms: Terms, baseline: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of schema ``dspark-sim/capacity/1``: an entry a policy, what was asked of what."""
    base = {answer.tasks[0].drafter: answer for answer in found if answer.tasks[0].policy == baseline}
    first = next(answer for answer in found if answer.tasks[0].policy == baseline)
    return {
        "schema": SCHEMA,
        "slos": [slo.label for slo in terms.slos],
        "baseline": baseline,
        "tolerance": terms.tolerance,
        "answers": [
            entry(answer, terms) | change(answer, base.get(answer.tasks[0].drafter, first))
            for answer in found
        ],
        "about": dict(about),
    }


def entry(answer: Found, terms: Terms) -> dict[str, Any]:
    """Return one policy's answer; rates in requests a second."""
    names = [slo.name for slo in terms.slos]
    margins = dict(zip(names, answer.at.margins, strict=True))
    knee = answer.knee_per_s
    return {
        "policy": answer.tasks[0].policy,
        "drafter": answer.tasks[0].drafter,
        "lossless": answer.at.figures[0]["lossless"],
        "status": answer.status,
        "rate_per_s": 0.0 if answer.status == NOT_MET else answer.rate_per_s,
        "rate_per_s_ci95": _interval(answer),
        "tried_per_s": answer.rate_per_s,
        "knee_per_s": knee,
        "share_of_knee": None if knee is None or answer.status == NOT_MET else answer.rate_per_s / knee,
        "binds": _binds(answer, margins),
        "slo": {name: {"limit_ms": slo.limit_s * MS_PER_S, "value_ms": margins[name] * slo.limit_s * MS_PER_S}
                for name, slo in zip(names, terms.slos, strict=True)},
        "requests": answer.requests,
        "replications": len(answer.tasks),
        "check": None if answer.check is None else {
            "requests": answer.check.requests, "margin": answer.check.margin,
            "margin_ci95": answer.check.interval, "misses": answer.check.misses,
        },
        "at_rate": _means(answer),
        "probes": [[probe.rate_per_s, probe.margin] for probe in answer.probes],
    }  # fmt: skip


def _binds(answer: Found, margins: Mapping[str, float]) -> str | None:
    """Return the objective that limits the rate: the one nearest to its bound, or the knee."""
    if answer.status == KNEE:
        return "load knee"
    if answer.status == BEYOND or not margins:
        return None
    return max(margins, key=lambda name: margins[name])


def _interval(answer: Found) -> tuple[float, float] | None:
    found = jackknife(math.log(answer.rate_per_s), [math.log(rate) for rate in answer.left_out])
    return None if found is None else (math.exp(found[0]), math.exp(found[1]))


def change(answer: Found, base: Found) -> dict[str, Any]:
    """Return the change against the baseline [%], paired by replication, with its interval."""
    none = {"vs_baseline_pct": None, "vs_baseline_pct_ci95": None}
    if NOT_MET in (answer.status, base.status) or BEYOND in (answer.status, base.status):
        return none
    ratio = math.log(answer.rate_per_s / base.rate_per_s)
    left_out = [math.log(a / b) for a, b in zip(answer.left_out, base.left_out, strict=False)]
    interval = jackknife(ratio, left_out)
    bounds = None if interval is None else tuple(100 * math.expm1(end) for end in interval)
    return {"vs_baseline_pct": 100 * math.expm1(ratio), "vs_baseline_pct_ci95": bounds}


def _means(answer: Found) -> dict[str, Any]:
    figures = answer.at.figures
    means = {name: _mean([run.get(name) for run in figures]) for name in _MEANS}
    for metric in METRICS:
        for quantile in ("p50", "p99"):
            name = f"{metric}_ms"
            means[f"{metric}_{quantile}_ms"] = _mean([run[name][quantile] for run in figures])
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def sentences(answers: Mapping[str, Any]) -> list[str]:
    """Return a plain line for each policy whose answer is more than a number, and for what they rest on."""
    entries = answers["answers"]
    return [line for entry in entries for line in _lines(entry)] + _checked(entries)


def _lines(entry: Mapping[str, Any]) -> list[str]:
    policy, knee = entry["policy"], entry["knee_per_s"]
    if entry["status"] == KNEE:
        held = "the objectives hold up to it, and " if entry["slo"] else ""
        return [
            f"{policy}: its load knee is the limit; {held}above {knee:,.1f} requests/s the queue grows "
            "without end."
        ]
    if entry["status"] == NOT_MET:
        worst = entry["binds"]
        slo = entry["slo"][worst]
        return [
            f"{policy}: cannot meet {worst} <= {slo['limit_ms']:g} ms even at {entry['tried_per_s']:.2g} "
            f"requests/s, where it is {slo['value_ms']:,.1f} ms."
        ]
    if entry["status"] == BEYOND:
        return [
            f"{policy}: sustains the highest rate tried, {entry['tried_per_s']:,.1f} requests/s; its limit "
            "lies beyond the range that was searched."
        ]
    return []


def _checked(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    lossy = [e["policy"] for e in entries if e["lossless"] == "not-lossless"]
    missed = [e["policy"] for e in entries if e["check"] and e["check"]["misses"]]
    unchecked = [e["policy"] for e in entries if e["check"] is None and e["status"] != NOT_MET]
    lines = [f"Not lossless: {', '.join(lossy)}."] if lossy else []
    if missed:
        lines.append(
            f"{', '.join(missed)}: runs twice as long still miss the objectives at this rate by more than "
            "chance: read the rate as an upper bound, or give more --requests."
        )
    if unchecked:
        lines.append(f"Not checked on longer runs, for want of requests: {', '.join(unchecked)}.")
    return lines
