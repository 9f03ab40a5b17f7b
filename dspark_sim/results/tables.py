"""Text tables for people: right-aligned numbers, units under the names, footnotes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dspark_sim.results.metrics import Point
from dspark_sim.results.stats import Interval, paired_change_pct, t_interval

WIDTH = 100  # columns of text; what a terminal and a mail still show unbroken
NONE = "-"


def text_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]], width: int = WIDTH) -> str:
    """Return ``rows`` as a table of plain text, long words folded to stay within ``width`` columns.

    Args:
        columns: header -> alignment, "<" or ">". A newline in a header breaks it (name over unit).
        rows: one mapping header -> cell per line.
        width: the most columns of text.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for header, align in columns.items():
        table.add_column(Text(header), justify="right" if align == ">" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[header]) for header in columns))
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def footnotes(lines: Sequence[str], width: int = WIDTH) -> str:
    """Return ``lines`` as a bulleted list within ``width`` columns."""
    return "\n".join(
        textwrap.fill(line, width, initial_indent="* ", subsequent_indent="  ") for line in lines
    )


def number(value: float | None, digits: int = 0) -> str:
    """Return ``value`` with thousands separators and ``digits`` decimals; ``-`` for None and NaN."""
    return NONE if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def signed(value: float | None, bounds: Sequence[float] | None = None) -> str:
    """Return a change in percent with its sign, and the half width of its interval where there is one."""
    if value is None or math.isnan(value):
        return NONE
    half = "" if bounds is None else f" ±{(bounds[1] - bounds[0]) / 2:.1f}"
    return f"{value:+.1f}%{half}"


def spread(interval: Interval, digits: int = 0) -> str:
    """Return ``mean ±half`` of an interval, the mean alone where one replication cannot say."""
    half = "" if interval.bounds is None else f" ±{interval.half_width:,.{digits}f}"
    return number(interval.mean, digits) + half


#: Header -> (column of a point, decimals) of the run table.
RUN_COLUMNS: dict[str, tuple[str, int]] = {
    "tok/s\nper GPU": ("tok_per_s_per_gpu", 0),
    "tok/s\nper user": ("tok_per_s_per_user", 1),
    "accepted\ntok/round": ("accepted_len", 2),
    "budget\ntok/round": ("verification_budget", 2),
    "accept\nrate": ("accept_rate", 3),
    "step\nms": ("step_ms", 2),
}


def run_table(points: Sequence[Point], baseline: str | None) -> str:
    """Return the points as a table: a block of lines per load, a line per (drafter, policy).

    Numbers are means over seeds with t intervals; the change against ``baseline`` is paired by seed.
    """
    several = len({p["drafter"] for p in points}) > 1
    columns = {"users": ">", "policy": "<"} | ({"drafter": "<"} if several else {})
    against = {} if baseline is None else {f"vs {baseline}\ntok/s/GPU": ">"}
    names = list(RUN_COLUMNS)
    columns |= {names[0]: ">"} | against | dict.fromkeys(names[1:], ">") | {"lossless": "<"}
    return text_table(columns, [_run_row(group, points, baseline) for group in _groups(points)])


def _groups(points: Sequence[Point]) -> list[list[Point]]:
    """Return the seeds of each (load, drafter, policy) together: by load, then first appearance."""
    found: dict[tuple[Any, ...], list[Point]] = {}
    for p in sorted(points, key=lambda p: p["concurrency"]):
        found.setdefault((p["concurrency"], p["drafter"], p["policy"]), []).append(p)
    return list(found.values())


def _run_row(group: list[Point], points: Sequence[Point], baseline: str | None) -> dict[str, str]:
    first = group[0]
    row = {"users": str(first["concurrency"]), "policy": first["policy"], "drafter": first["drafter"]}
    row |= {
        header: spread(t_interval(p[column] for p in group), digits)
        for header, (column, digits) in RUN_COLUMNS.items()
    }
    return row | {
        f"vs {baseline}\ntok/s/GPU": _change(group, points, baseline),
        "lossless": first["lossless"],
    }


def _change(group: list[Point], points: Sequence[Point], baseline: str | None) -> str:
    base = [p for p in points if p["policy"] == baseline and p["concurrency"] == group[0]["concurrency"]]
    own = [p for p in base if p["drafter"] == group[0]["drafter"]] or base
    change = paired_change_pct(_by_seed(group), _by_seed(own))
    return NONE if change is None else signed(change.mean, change.bounds)


def _by_seed(points: Sequence[Point]) -> dict[int, float]:
    return {p["seed"]: p["tok_per_s_per_gpu"] for p in points}


def sla_table(document: Mapping[str, Any]) -> str:
    """Return the readings at the SLA anchors of a frontier document."""
    base = document["baseline"]
    cells: dict[str, tuple[str, Callable[[Any], str]]] = {
        "SLA\ntok/s/user": (">", lambda row: number(row["sla"])),
        "policy": ("<", lambda row: row["policy"]),
        "best\ntok/s/GPU": (">", lambda row: number(row["tok_per_s_per_gpu"])),
        f"vs\n{base}": (">", lambda row: signed(row["vs_baseline_pct"], row["vs_baseline_pct_ci95"])),
        "at\nusers": (">", lambda row: number(row["concurrency"], 1)),
        "": ("<", _sla_words),
    }
    return _document_table(cells, document["sla"])


def _sla_words(row: Mapping[str, Any]) -> str:
    if not row["feasible"]:
        return f"not met: fastest simulated is {row['highest_tok_per_s_per_user']:,.1f} tok/s/user"
    return "highest load simulated; more may fit" if row["at_highest_concurrency"] else ""


def matched_table(document: Mapping[str, Any]) -> str:
    """Return users' speed at the baseline's own throughput of a frontier document."""
    base = document["baseline"]
    cells: dict[str, tuple[str, Callable[[Any], str]]] = {
        "SLA\ntok/s/user": (">", lambda row: number(row["sla"])),
        "policy": ("<", lambda row: row["policy"]),
        f"level of {base}\ntok/s/GPU": (">", lambda row: number(row["level_tok_per_s_per_gpu"])),
        "best\ntok/s/user": (">", lambda row: number(row["tok_per_s_per_user"], 1)),
        f"vs\n{base}": (">", lambda row: signed(row["vs_baseline_pct"], row["vs_baseline_pct_ci95"])),
        "at\nusers": (">", lambda row: number(row["concurrency"], 1)),
        "": ("<", _matched_words),
    }
    return _document_table(cells, document["matched"])


def _matched_words(row: Mapping[str, Any]) -> str:
    if row["level_tok_per_s_per_gpu"] is None:
        return "the baseline does not meet this SLA: no level"
    return "" if row["feasible"] else "this throughput is not reached"


def _document_table(
    cells: Mapping[str, tuple[str, Callable[[Any], str]]], rows: Sequence[Mapping[str, Any]]
) -> str:
    columns = {header: align for header, (align, _) in cells.items()}
    drafter = {"drafter": "<"} if len({row["drafter"] for row in rows}) > 1 else {}
    return text_table(
        drafter | columns,
        [
            {header: cell(row) for header, (_, cell) in cells.items()} | {"drafter": row["drafter"]}
            for row in rows
        ],
    )
