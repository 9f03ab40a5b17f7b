"""The answers about capacity as a table, a picture's rows and a result folder's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_sim.files import atomic_path
from dspark_sim.results.notes import several_drafters
from dspark_sim.results.serving_store import flat
from dspark_sim.results.tables import NONE, number, signed, text_table

#: Columns of a row that are lists, and stay in the JSON document.
_LISTS = ("probes",)


def capacity_table(document: Mapping[str, Any]) -> str:
    """Return a line for each policy: the rate, its change against the baseline, the knee, what binds."""
    answers = document["answers"]
    drafter = {"drafter": "<"} if several_drafters(answers) else {}
    columns = {"policy": "<"} | drafter
    columns |= dict.fromkeys(
        ("sustains\nreq/s", f"vs\n{document['baseline']}", "load knee\nreq/s", "goodput\ntok/s/GPU",
         *map(_bound, answers[0]["slo"])), ">"
    )  # fmt: skip
    columns |= {"binds": "<"}
    return text_table(columns, [_row(entry, document["baseline"]) for entry in answers])


def _row(entry: Mapping[str, Any], baseline: str) -> dict[str, str]:
    at = entry["at_rate"]
    goodput = at["goodput_tok_per_s_per_gpu"] if entry["slo"] else at["tok_per_s_per_gpu"]
    met = entry["status"] != "not met"
    return {
        "policy": entry["policy"],
        "drafter": entry["drafter"],
        "sustains\nreq/s": _rate(entry),
        f"vs\n{baseline}": signed(entry["vs_baseline_pct"], entry["vs_baseline_pct_ci95"]),
        "load knee\nreq/s": number(entry["knee_per_s"], 1),
        "goodput\ntok/s/GPU": number(goodput if met else 0.0),
        **{_bound(name): number(slo["value_ms"], 1) for name, slo in entry["slo"].items()},
        "binds": entry["binds"] or NONE,
    }


def _bound(slo: str) -> str:
    return f"{slo}\nms"


def _rate(entry: Mapping[str, Any]) -> str:
    """Return the rate with the ends of its interval, which is not symmetric."""
    if entry["status"] == "not met":
        return "none"
    digits = 1 if entry["rate_per_s"] >= 10 else 2
    rate = ("> " if entry["status"] == "beyond" else "") + number(entry["rate_per_s"], digits)
    if entry["rate_per_s_ci95"] is None:
        return rate
    low, high = (number(end, digits) for end in entry["rate_per_s_ci95"])
    return f"{rate} ({low}..{high})"


def write_rows(path: Path, document: Mapping[str, Any]) -> None:
    """Write a row a policy as parquet; nested entries become columns with dotted names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: Sequence[dict[str, Any]] = [
        {name: _plain(value) for name, value in flat(entry).items() if name not in _LISTS}
        for entry in document["answers"]
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
