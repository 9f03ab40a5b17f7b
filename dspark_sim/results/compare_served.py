"""Two runs of served requests side by side: paired differences at each rate, and what moved.

A request's time per token is the time of its steps over the tokens that it commits in each, so a change of
TPOT is, nearly, that of the step over that of the accepted length; what the time to the first token has
beyond the prompt is the queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dspark_sim.errors import InputError
from dspark_sim.results.compare import (
    Pair,
    by_load,
    differences,
    pair_entry,
    pair_id,
    pair_up,
    policy_differences,
)
from dspark_sim.results.details import has_details
from dspark_sim.results.notes import notes
from dspark_sim.results.report import triple
from dspark_sim.results.report_served import COLUMNS, column_interval, paired, read_column, there
from dspark_sim.results.serving_store import Served
from dspark_sim.results.serving_tables import Figures, offered
from dspark_sim.results.stats import Interval, t_interval

SCHEMA = "dspark-sim/compare-served/1"

#: What is compared in percent, and by difference where it is a percentage itself, the first one first.
_CHANGED = ("tpot50", "tpot99", "ttft99", "e2e50", "good", "gpu", "tau", "step")
_IN_POINTS = ("within",)
#: What is given on both sides.
_SIDES = ("within", "good", "gpu", "ttft99", "queue99", "tpot50", "tpot99", "e2e50", "waiting", "preempted",
          "kvmost", "tau", "budget", "step", "tokens", "eager")  # fmt: skip
_FIRST = ("within", "good", "ttft99", "tpot50", "tau", "step")  # before the reader asks for all


def compare_served_document(
    a: Served, b: Served, names: tuple[str, str], pairs: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return the comparison document of served requests (``dspark-sim/compare-served/1``): B against A.

    Arguments as those of :func:`dspark_sim.results.compare.compare_document`.

    Raises:
        InputError: nothing can be paired: no such policy, no shared rate scale, or no shared seed.
    """
    mine, theirs = (list(dict.fromkeys((r["drafter"], r["policy"]) for r in s.runs)) for s in (a, b))
    chosen = pair_up(mine, theirs, pairs)
    columns = _shared_columns(a, b)
    rows = [row for pair in chosen for row in _rows(pair, a.runs, b.runs, columns)]
    if not rows:
        raise InputError(f"{names[0]} and {names[1]} share no rate scale and seed: nothing to pair")
    changes = [name for name in (*_CHANGED, *_IN_POINTS) if name in columns]
    return {
        "schema": SCHEMA,
        "title": f"{names[1]} against {names[0]}",
        "names": list(names),
        "synthetic": a.about["trace"]["synthetic"] or b.about["trace"]["synthetic"],
        "same_texts": a.about["trace"]["sha256"] == b.about["trace"]["sha256"],
        "same_traffic": a.about["traffic"] == b.about["traffic"],
        "differs": [*differences(a.about, b.about), *policy_differences(mine, theirs, chosen)],
        "arms": [pair_entry(pair, chosen) for pair in chosen],
        "axis": "offered rate [requests/s]",
        "changes": {name: COLUMNS[name][0] for name in changes},
        "points": [name for name in _IN_POINTS if name in columns],
        "sides": [
            dict(zip(("id", "name", "unit", "digits"), (name, *COLUMNS[name]), strict=False))
            | {"first": name in _FIRST}
            for name in _SIDES if name in columns
        ],
        "rows": rows,
        "loads": sorted({row["load"] for row in rows}),
        "notes": list(dict.fromkeys(note for side in (a, b) for note in _notes(side))),
    }  # fmt: skip


def _shared_columns(a: Served, b: Served) -> list[str]:
    """Return the columns that both sides have; goodput only within the same objectives."""
    runs = [*a.runs, *b.runs]
    slos = bool(a.about["slos"]) and a.about["slos"] == b.about["slos"]
    return [name for name in COLUMNS if there(name, runs, has_details(runs), slos)]


def _notes(side: Served) -> list[str]:
    return notes(side.about, [run | {"concurrency": 0} for run in side.runs])


def _rows(
    pair: Pair, a: Sequence[Figures], b: Sequence[Figures], columns: Sequence[str]
) -> list[dict[str, Any]]:
    mine, theirs = (by_load(runs, key, "rate_scale") for runs, key in zip((a, b), pair, strict=True))
    rows = []
    for scale in sorted(set(mine) & set(theirs)):
        seeds = sorted(set(mine[scale]) & set(theirs[scale]))
        if seeds:
            before, after = ([side[scale][seed] for seed in seeds] for side in (mine, theirs))
            rows.append({"key": pair_id(pair), "load": scale} | _row(before, after, columns))
    return rows


def _row(before: Sequence[Figures], after: Sequence[Figures], columns: Sequence[str]) -> dict[str, Any]:
    changes = {name: triple(paired(name, after, before)) for name in _CHANGED if name in columns}
    changes |= {name: triple(_difference(name, before, after)) for name in _IN_POINTS if name in columns}
    return {
        "x": offered(before, before[0]["rate_scale"]),
        "seeds": len(before),
        "change": changes,
        "a": {name: triple(column_interval(name, before)) for name in _SIDES if name in columns},
        "b": {name: triple(column_interval(name, after)) for name in _SIDES if name in columns},
        "met": [_met(runs) for runs in (before, after)],
        "lossless": [before[0]["lossless"], after[0]["lossless"]],
    }


def _difference(name: str, before: Sequence[Figures], after: Sequence[Figures]) -> Interval | None:
    """Return the difference of a column, seed by seed; None where a run has none."""
    sides = [(read_column(name, x), read_column(name, y)) for x, y in zip(before, after, strict=True)]
    known = [y - x for x, y in sides if x is not None and y is not None]
    return t_interval(known) if len(known) == len(sides) else None


def _met(runs: Sequence[Mapping[str, Any]]) -> bool | None:
    """Return whether all objectives hold in every replication; None without objectives."""
    known = [run.get("slos_met") for run in runs]
    return None if None in known else all(known)
