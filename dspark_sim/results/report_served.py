"""The document behind a report page of served requests: latencies, objectives, queues, by policy and rate.

Rates are told apart by their scale. Triples as in :mod:`dspark_sim.results.report`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dspark_sim.results.details import DETAIL, SHARES, has_details
from dspark_sim.results.notes import notes, same_model
from dspark_sim.results.report import arm_entry, key_id, triple
from dspark_sim.results.report_served_words import (
    overall,
    rate_words,
    served_question,
    served_setup,
    traffic_words,
)
from dspark_sim.results.report_words import title
from dspark_sim.results.serving import COOLDOWN
from dspark_sim.results.serving_store import Served
from dspark_sim.results.serving_tables import Figures, groups, offered, over_seeds, serving_notes
from dspark_sim.results.serving_tables import value as figure
from dspark_sim.results.stats import Interval, paired_change_pct, t_interval

SCHEMA = "dspark-sim/report-served/1"

#: How a column is read off a run: a figure's dotted path with a factor, or a function.
Read = tuple[str, float] | Callable[[Figures], float | None]


def _detail(name: str, factor: float = 1.0) -> Callable[[Figures], float | None]:
    def read(run: Figures) -> float | None:
        found = run[DETAIL][name]
        return None if found is None else factor * float(found)

    return read


def _budget(run: Figures) -> float | None:
    return None if run["verify_len"] is None else 1.0 + float(run["verify_len"])


#: Columns of the page's table: id -> (name, unit, decimals, whether shown from the start, how it is read).
COLUMNS: dict[str, tuple[str, str, int, bool, Read]] = {
    "within": ("within all SLOs", "%", 1, True, ("attainment", 100.0)),
    "good": ("goodput", "tok/s/GPU", 0, True, ("goodput_tok_per_s_per_gpu", 1.0)),
    "goodreq": ("goodput", "requests/s", 2, False, ("goodput_requests_per_s", 1.0)),
    "gpu": ("throughput", "tok/s/GPU", 0, True, ("tok_per_s_per_gpu", 1.0)),
    "done": ("requests done", "requests/s", 2, False, ("requests_per_s", 1.0)),
    "ttft50": ("TTFT p50", "ms", 0, False, ("ttft_ms.p50", 1.0)),
    "ttft90": ("TTFT p90", "ms", 0, False, ("ttft_ms.p90", 1.0)),
    "ttft99": ("TTFT p99", "ms", 0, True, ("ttft_ms.p99", 1.0)),
    "tpot50": ("TPOT p50", "ms", 1, True, ("tpot_ms.p50", 1.0)),
    "tpot90": ("TPOT p90", "ms", 1, False, ("tpot_ms.p90", 1.0)),
    "tpot99": ("TPOT p99", "ms", 1, True, ("tpot_ms.p99", 1.0)),
    "e2e50": ("E2E p50", "ms", 0, False, ("e2e_ms.p50", 1.0)),
    "e2e90": ("E2E p90", "ms", 0, False, ("e2e_ms.p90", 1.0)),
    "e2e99": ("E2E p99", "ms", 0, True, ("e2e_ms.p99", 1.0)),
    "itl99": ("ITL p99", "ms", 0, False, ("itl_ms.p99", 1.0)),
    "queue50": ("queue p50", "ms", 0, False, ("queue_ms.p50", 1.0)),
    "queue90": ("queue p90", "ms", 0, False, ("queue_ms.p90", 1.0)),
    "queue99": ("queue p99", "ms", 0, False, ("queue_ms.p99", 1.0)),
    "waiting": ("waiting", "requests", 1, True, ("mean_waiting", 1.0)),
    "users": ("running", "requests", 1, False, ("mean_users", 1.0)),
    "preempted": ("preemptions", "", 0, False, ("preemptions", 1.0)),
    "refused": ("refused", "requests", 0, False, ("refused", 1.0)),
    "kv": ("KV in use", "%", 1, False, _detail("kv_mean", 100.0)),
    "kvmost": ("KV at most", "%", 1, False, _detail("kv_most", 100.0)),
    "tau": ("accepted length", "tok/round", 2, False, ("accepted_len", 1.0)),
    "budget": ("verification budget", "tok/round", 2, False, _budget),
    "step": ("step", "ms", 2, False, _detail("step_ms")),
    "tokens": ("batch tokens", "tok/step", 0, False, _detail("batch_tokens")),
    "eager": ("past capture", "% of steps", 1, False, _detail("eager", 100.0)),
    "span": ("span", "s", 1, False, ("makespan_s", 1.0)),
}
_OF_SLOS = ("within", "good", "goodreq")
_OF_DETAILS = ("kv", "kvmost", "step", "tokens", "eager")
#: Columns of changes against the baseline: id -> (what changes, with objectives or without; column).
CHANGES = {"vsgood": ("change of goodput", "good"), "vsgpu": ("change of throughput", "gpu"),
           "vstpot": ("change of TPOT p50", "tpot50")}  # fmt: skip
#: Latencies that are drawn as distributions.
TIMES = ("ttft", "tpot", "e2e", "queue", "itl")


def served_document(served: Served, baseline: str) -> dict[str, Any]:
    """Return the document of a page of served requests (schema ``dspark-sim/report-served/1``).

    Args:
        served: runs with what they are about; details where the folder has them.
        baseline: policy that changes are against, paired by seed at the same rate.
    """
    runs, about = served.runs, served.about
    detailed = has_details(runs)
    found = groups(runs)
    keys = list(dict.fromkeys((run["drafter"], run["policy"]) for run in runs))
    columns = [name for name in COLUMNS if there(name, runs, detailed, bool(about["slos"]))]
    changes = [name for name, (_, column) in CHANGES.items() if column in columns]
    if "good" in columns:
        changes.remove("vsgpu")
    rows = [
        _row(group, columns)
        | {name: triple(_change(CHANGES[name][1], group, runs, baseline)) for name in changes}
        | (_distributions(group) if detailed else {})
        for group in found
    ]
    scales = sorted({run["rate_scale"] for run in runs})
    return {
        "schema": SCHEMA,
        "title": title(about),
        "question": served_question(about, runs, baseline),
        "synthetic": about["trace"]["synthetic"],
        "same_model": same_model(about["trace"]["target"], about["profile"]["model"]),
        "traffic": traffic_words(about),
        "setup": served_setup(about, runs),
        "notes": _notes(about, runs),
        "baseline": baseline,
        "arms": [arm_entry(key, keys, runs) for key in keys],
        "slos": slo_entries(runs[0]),
        "overall": overall(found, about["slos"]),
        "rates": [
            {"scale": scale, "offered": offered(runs, scale), "headline": rate_words(found, scale, baseline)}
            for scale in scales
        ],
        "columns": _columns(columns, changes),
        "points": rows,
        "shares": list(SHARES),
        "detailed": detailed,
    }


def there(name: str, runs: Sequence[Figures], detailed: bool, slos: bool) -> bool:
    """Whether a column says something: it was measured, and of what rarely happens, it happened."""
    if (name in _OF_SLOS and not slos) or (name in _OF_DETAILS and not detailed):
        return False
    if name in ("preempted", "refused", "kv", "kvmost"):
        return any(read_column(name, run) for run in runs)
    return name != "span" or all(run["measured"] == run["requests"] for run in runs)


def read_column(name: str, run: Figures) -> float | None:
    """Return a column of one run; None where it has none."""
    read = COLUMNS[name][4]
    if callable(read):
        return read(run)
    found = figure(run, read[0])
    return None if found is None else read[1] * found


def column_interval(name: str, group: Sequence[Figures]) -> Interval | None:
    """Return mean and interval of a column over replications; None where a run has none."""
    return over_seeds([{"value": read_column(name, run)} for run in group], "value")


def _columns(columns: Sequence[str], changes: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for name in columns:
        words, unit, digits, first, _ = COLUMNS[name]
        first = first and not (name == "gpu" and "good" in columns)
        found.append({"id": name, "name": words, "unit": unit, "digits": digits, "first": first})
        for change in (change for change in changes if CHANGES[change][1] == name):
            shown = {"id": change, "name": CHANGES[change][0], "unit": "%", "digits": 1}
            found.append(shown | {"first": True, "change": True})
    return found


def slo_entries(run: Figures) -> list[dict[str, Any]]:
    """Return the objectives of a run: name, metric, quantile and limit [ms]; none without."""
    return [
        {"name": name, "metric": name.partition("_p")[0], "percent": float(name.partition("_p")[2]),
         "limit_ms": entry["limit_ms"]}
        for name, entry in (run.get("slo") or {}).items()
    ]  # fmt: skip


def _row(group: Sequence[Figures], columns: Sequence[str]) -> dict[str, Any]:
    """Return what the replications of one (rate, drafter, policy) say."""
    first = group[0]
    return {
        "key": key_id((first["drafter"], first["policy"])),
        "load": first["rate_scale"],
        "seeds": len(group),
        "knee": sum(run["knee_passed"] for run in group),
        "met": sum(run.get("slos_met") or 0 for run in group),
    } | {name: triple(column_interval(name, group)) for name in columns}


def _change(column: str, group: Sequence[Figures], runs: Sequence[Figures], baseline: str) -> Interval | None:
    """Return the change of a column against ``baseline`` at the same rate, paired by seed [%]."""
    first = group[0]
    base = [run for run in runs if run["policy"] == baseline and run["rate_scale"] == first["rate_scale"]]
    own = [run for run in base if run["drafter"] == first["drafter"]] or base
    return paired(column, group, own)


def paired(column: str, group: Sequence[Figures], base: Sequence[Figures]) -> Interval | None:
    """Return the change of a column of ``group`` against ``base``, seed by seed [%]; None without a base."""
    mine, theirs = (
        {run["seed"]: value for run in some if (value := read_column(column, run)) is not None}
        for some in (group, base)
    )
    return paired_change_pct(mine, {seed: value for seed, value in theirs.items() if value})


def _distributions(group: Sequence[Figures]) -> dict[str, Any]:
    """Return quantiles of the latencies as triples over seeds, and the first replication over time."""
    details = [run[DETAIL] for run in group]
    found: dict[str, Any] = {}
    for name in TIMES:
        quantiles = [detail[f"{name}_ms"] for detail in details if detail[f"{name}_ms"]]
        found[f"{name}_ms"] = [triple(t_interval(column)) for column in zip(*quantiles, strict=True)]
    return found | {"over_time": details[0]["over_time"]}


def _notes(about: Mapping[str, Any], runs: Sequence[Figures]) -> list[str]:
    told = serving_notes(runs, about["settings"]["warmup"], COOLDOWN, about["traffic"]["arrivals"])
    return [*told, *notes(dict(about), [dict(run) | {"concurrency": 0} for run in runs])]
