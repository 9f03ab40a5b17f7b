"""Text tables of served requests: latencies and throughput, objectives, and what must be said of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dspark_sim.results.notes import several_drafters
from dspark_sim.results.stats import Interval, t_interval
from dspark_sim.results.tables import NONE, WIDTH, number, spread, text_table

Figures = Mapping[str, Any]
#: Header -> (path of a figure, decimals, whether its interval is shown).
COLUMNS: dict[str, tuple[str, int, bool]] = {
    "req/s": ("requests_per_s", 2, False),
    "tok/s\n/GPU": ("tok_per_s_per_gpu", 0, True),
    "acc.\nlen": ("accepted_len", 2, False),
    "TTFT\np50 ms": ("ttft_ms.p50", 0, False),
    "TTFT\np99 ms": ("ttft_ms.p99", 0, False),
    "TPOT\np50 ms": ("tpot_ms.p50", 1, False),
    "TPOT\np99 ms": ("tpot_ms.p99", 1, False),
    "ITL\np99 ms": ("itl_ms.p99", 0, False),
    "wait-\ning": ("mean_waiting", 0, False),
    "pre-\nempted": ("preemptions", 0, False),
    "re-\nfused": ("refused", 0, False),
    "span\ns": ("makespan_s", 1, False),
}
#: Measured requests below which a p99 is little more than the slowest one, and stays of a request (mean
#: e2e) in the window below which the state of an empty service still shows.
_FEW_REQUESTS, _FEW_STAYS = 1000, 10


def parts(path: str) -> list[str]:
    """Return the keys of a dotted path, at most three: the middle one, an objective's name, may hold dots."""
    first, *middle = path.split(".")
    return [first, ".".join(middle[:-1]), middle[-1]] if len(middle) > 1 else [first, *middle]


def value(figures: Figures, path: str) -> float | None:
    """Return the figure at a dotted path; None where the run has none."""
    found: Any = figures
    for part in parts(path):
        found = found[part]
    return None if found is None else float(found)


def over_seeds(group: Sequence[Figures], path: str) -> Interval | None:
    """Return mean and interval of a figure over replications; None where a run has none."""
    values = [value(figures, path) for figures in group]
    known = [v for v in values if v is not None]
    return t_interval(known) if len(known) == len(values) else None


def groups(runs: Iterable[Figures]) -> list[list[Figures]]:
    """Return the replications of each (rate scale, drafter, policy) together: by rate, then appearance."""
    found: dict[tuple[Any, ...], list[Figures]] = {}
    for run in sorted(runs, key=lambda run: run["rate_scale"]):
        found.setdefault((run["rate_scale"], run["drafter"], run["policy"]), []).append(run)
    return list(found.values())


def offered(runs: Iterable[Figures], scale: float) -> float | None:
    """Return the offered rate at a rate scale, the mean over all its runs [1/s]; None of a burst."""
    rates = [run["offered_per_s"] for run in runs if run["rate_scale"] == scale]
    return None if None in rates else sum(rates) / len(rates)


def serving_table(runs: Sequence[Figures]) -> str:
    """Return a line per (rate, drafter, policy): means over replications, with the interval of throughput.

    What is alike in all lines, or follows from another column, is left out for the width of the table.
    """
    whole = all(run["measured"] == run["requests"] for run in runs)
    several = len({run["rate_scale"] for run in runs}) > 1
    wanted = {
        "req/s": not whole or several,
        "acc.\nlen": not several,
        "pre-\nempted": any(run["preemptions"] for run in runs),
        "re-\nfused": any(run["refused"] for run in runs),
        "span\ns": whole and not several,
    }
    shown = {header: column for header, column in COLUMNS.items() if wanted.get(header, True)}
    columns = _leading(runs) | dict.fromkeys(shown, ">")
    rows = []
    for group in groups(runs):
        cells = {
            header: _cell(over_seeds(group, path), digits, interval)
            for header, (path, digits, interval) in shown.items()
        }
        rows.append(_names(group[0], runs) | cells)
    return text_table(columns, rows)


def slo_table(runs: Sequence[Figures]) -> str:
    """Return who keeps the objectives: by objective the quantile reached, the share, and goodput.

    Where many objectives make it too wide, their intervals are left out.
    """
    table = _slo_table(runs, intervals=True)
    wide = max(map(len, table.splitlines())) > WIDTH
    return _slo_table(runs, intervals=False) if wide else table


def _slo_table(runs: Sequence[Figures], *, intervals: bool) -> str:
    names = list(runs[0]["slo"])
    columns = _leading(runs)
    for name in names:
        columns |= {f"{name}\nms": ">"}
    columns |= {"within\nall %": ">", "goodput\nreq/s": ">", "goodput\ntok/s/GPU": ">", "SLOs": "<"}
    rows = []
    for group in groups(runs):
        reached = {name: over_seeds(group, f"slo.{name}.value_ms") for name in names}
        cells = {f"{name}\nms": _cell(reached[name], 1, intervals) for name in names}
        share = over_seeds([{"share": 100 * run["attainment"]} for run in group], "share")
        cells |= {
            "within\nall %": _cell(share, 1, True),
            "goodput\nreq/s": _cell(over_seeds(group, "goodput_requests_per_s"), 2, intervals),
            "goodput\ntok/s/GPU": _cell(over_seeds(group, "goodput_tok_per_s_per_gpu"), 0, False),
            "SLOs": _met(group),
        }
        rows.append(_names(group[0], runs) | cells)
    return text_table(columns, rows)


def _met(group: Sequence[Figures]) -> str:
    met = sum(run["slos_met"] for run in group)
    if met in (0, len(group)):
        return "met" if met else "missed"
    return f"met in {met} of {len(group)}"


def _leading(runs: Sequence[Figures]) -> dict[str, str]:
    """Return the columns that say which run it is; rate and drafter only where the others leave it open."""
    rate = {"offered\nreq/s": ">"} if len({run["rate_scale"] for run in runs}) > 1 else {}
    return rate | {"policy": "<"} | ({"drafter": "<"} if several_drafters(runs) else {})


def _names(run: Figures, runs: Sequence[Figures]) -> dict[str, str]:
    rate = number(offered(runs, run["rate_scale"]), 2)
    return {"offered\nreq/s": rate, "policy": run["policy"], "drafter": run["drafter"]}


def _cell(found: Interval | None, digits: int, interval: bool) -> str:
    if found is None:
        return NONE
    return spread(found, digits) if interval else number(found.mean, digits)


def serving_notes(
    runs: Sequence[Figures], warmup: float, cooldown: float, arrivals: str | None = None
) -> list[str]:
    """Return footnotes: what the columns mean, and where the numbers promise more than they hold.

    Args:
        runs: of all policies, rates and replications.
        warmup: share of the requests before the measured ones.
        cooldown: share of them after those.
        arrivals: spec that the arrivals were drawn from; None: they come from a table.
    """
    seeds = len({run["seed"] for run in runs})
    spread_words = (
        "± is the 95% interval over replications."
        if seeds > 1
        else "One replication: no interval, so a small lead may be chance; --seeds 5 tells."
    )
    lines = [f"Waiting: requests before admission, mean over time. {spread_words}"]
    if not any(run["preemptions"] or run["refused"] for run in runs):
        lines.append("No request was preempted or refused.")
    if warmup:
        lines.append(
            f"Measured: requests {100 * warmup:g}% to {100 * (1 - cooldown):g}% in order of arrival; the "
            "others warm the service up, and see it drain."
        )
    else:
        lines.append(
            "Measured whole, from an empty service to the drain; rates are over the span, from the first "
            "arrival to the last token."
        )
    lines += _offered_notes(runs, arrivals)
    return lines + _length_notes(runs, steady=warmup > 0) + _knee_notes(runs)


def _offered_notes(runs: Sequence[Figures], arrivals: str | None) -> list[str]:
    """Return why the offered rate is not the one asked for, and why more may be measured than offered."""
    lines = []
    if arrivals is not None and "rate=" in arrivals and not arrivals.startswith("deterministic"):
        lines.append(
            f"The offered rate is that of the arrivals drawn: {arrivals} holds on average, and "
            f"{runs[0]['requests'] + runs[0]['refused']:,} requests come by chance somewhat faster or slower."
        )
    rates = [(run["requests_per_s"], run["offered_per_s"]) for run in runs]
    if any(offer is not None and done is not None and done > offer for done, offer in rates):
        lines.append(
            "What gets done may pass what is offered: it is counted in the measured time alone, in which "
            "more may end than come on average."
        )
    return lines


def _length_notes(runs: Sequence[Figures], *, steady: bool) -> list[str]:
    fewest = min(run["measured"] for run in runs)
    lines = []
    if 0 < fewest < _FEW_REQUESTS:
        lines.append(f"A p99 of {fewest:,} requests rests on the slowest {max(1, fewest // 100)}.")
    stays = [run["window_s"] / run["e2e_ms"]["mean"] * 1e3 for run in runs if not run["knee_passed"]]
    if steady and stays and min(stays) < _FEW_STAYS:
        lines.append(
            f"The measured time is {min(stays):.1f} mean stays of a request: too short to stand for a "
            "service that goes on; more --requests make it longer."
        )
    return lines


def _knee_notes(runs: Sequence[Figures]) -> list[str]:
    """Return a line that names, for each policy, the lowest rate at which most replications ran away."""
    passed: dict[str, str] = {}
    for group in groups(runs):
        if 2 * sum(run["knee_passed"] for run in group) > len(group):
            rate = number(offered(runs, group[0]["rate_scale"]), 1)
            passed.setdefault(group[0]["policy"], f"{group[0]['policy']} at {rate} requests/s")
    if not passed:
        return []
    return [
        f"Past the load knee: {', '.join(passed.values())}. There, and above, the queue grew for as long as "
        "requests came: latencies are those of a run this long."
    ]
