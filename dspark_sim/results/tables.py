"""Text tables for people: right-aligned numbers, units under the names, footnotes."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dspark_sim.results.metrics import Point
from dspark_sim.results.notes import several_drafters
from dspark_sim.results.stats import Interval, paired_change_pct, t_interval

WIDTH = 100  # columns of text; what a terminal and a mail still show unbroken
NONE = "-"
_GAP = 2  # columns between two cells
LEAST_LAST = 24  # columns that the last cell of a row keeps
NAMES = ("file", "options", "policy", "drafter")  # columns that may be long, those to fold first first
_LEAST_NAME = 12  # columns that a name keeps

#: What the two lengths of a round count.
COUNTED = "Accepted length and verify budget: tokens per round, with bonus and anchor."


def text_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]], width: int = WIDTH) -> str:
    """Return ``rows`` as a table of plain text within ``width`` columns.

    For it headers fold at their spaces, the last column folds, and names of policies and drafters do at
    their own punctuation.

    Args:
        columns: header -> alignment, "<" or ">". A newline in a header breaks it (name over unit).
        rows: one mapping header -> cell per line.
        width: the most columns of text.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heads = _fold_heads(columns, rows, width)
    rows = _fold_names(heads, rows, width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), collapse_padding=True)
    last = list(columns)[-1]
    for header, align in columns.items():
        wide = _widest(header, heads[header], rows)
        table.add_column(
            Text(heads[header]),
            justify="right" if align == ">" else "left",
            overflow="fold",
            no_wrap=header != last,
            min_width=min(LEAST_LAST, wide) if header == last else wide,
        )
    for row in rows:
        table.add_row(*(Text(row[header]) for header in columns))
    needed = _needed(heads, rows)
    console = Console(width=max(width, needed), color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _needed(heads: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> int:
    """Return the fewest columns of text that the table takes."""
    *firm, last = (_widest(header, head, rows) for header, head in heads.items())
    return sum(wide + _GAP for wide in firm) + min(LEAST_LAST, last)


def _fold_heads(
    columns: Mapping[str, str], rows: Sequence[Mapping[str, str]], width: int
) -> Mapping[str, str]:
    """Return header -> what is written of it: broken at its spaces where the table is too wide."""
    heads = {header: header for header in columns}
    if _needed(heads, rows) <= width:
        return heads
    return {header: fold_name(header, _widest(header, "", rows), after=" ") for header in columns}


def _fold_names(
    heads: Mapping[str, str], rows: Sequence[Mapping[str, str]], width: int
) -> list[Mapping[str, str]]:
    """Return ``rows`` with long names broken over lines, as far as ``width`` asks for it."""
    folded: list[Mapping[str, str]] = list(rows)
    for header in (name for name in NAMES if name in heads):
        over = _needed(heads, folded) - width
        if over > 0:
            room = max(_LEAST_NAME, _widest(header, heads[header], folded) - over)
            folded = [{**row, header: fold_name(row[header], room)} for row in folded]
    return folded


def fold_name(name: str, width: int, after: str = ",:/= ") -> str:
    """Return a name in lines of at most ``width``, broken after any of ``after``; longer words whole."""
    lines = [""]
    for part in re.findall(f"[^{after}]*[{after}]+|[^{after}]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def _widest(header: str, head: str, rows: Sequence[Mapping[str, str]]) -> int:
    """Return the widest line of a column whose header is written as ``head``."""
    return max(len(line) for text in (head, *(row[header] for row in rows)) for line in text.split("\n"))


def footnotes(lines: Sequence[str], width: int = WIDTH) -> str:
    """Return ``lines`` as a bulleted list within ``width`` columns."""
    return "\n".join(
        textwrap.fill(line, width, initial_indent="* ", subsequent_indent="  ") for line in lines
    )


def number(value: float | None, digits: int = 0) -> str:
    """Return ``value`` with thousands separators and ``digits`` decimals; ``-`` for None and NaN."""
    return NONE if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def signed(value: float | None, bounds: Sequence[float] | None = None) -> str:
    """Return a change in percent with its sign, and the half width of its interval where there is one.

    A large change, or one known badly, is given in whole percents beside its interval.
    """
    if value is None or math.isnan(value):
        return NONE
    half = None if bounds is None else (bounds[1] - bounds[0]) / 2
    digits = 0 if half is not None and (abs(value) >= 100 or half >= 10) else 1
    return f"{value:+.{digits}f}%" + ("" if half is None else f" ±{half:.{digits}f}")


def spread(interval: Interval, digits: int = 0) -> str:
    """Return ``mean ±half`` of an interval, the mean alone where one replication cannot say."""
    half = "" if interval.bounds is None else f" ±{interval.half_width:,.{digits}f}"
    return number(interval.mean, digits) + half


#: Header -> (column of a point, decimals, whether its interval is shown) of the run table.
RUN_COLUMNS: dict[str, tuple[str, int, bool]] = {
    "throughput\ntok/s/GPU": ("tok_per_s_per_gpu", 0, True),
    "speed\ntok/s/user": ("tok_per_s_per_user", 1, False),
    "accepted\nlength": ("accepted_len", 2, False),
    "verify\nbudget": ("verification_budget", 2, False),
    "accept\nrate": ("accept_rate", 3, False),
    "step\nms": ("step_ms", 2, False),
}
VERDICTS = {"lossless": "yes", "lossless-under-lag": "lagged", "not-lossless": "NO"}


def run_table(points: Sequence[Point], baseline: str) -> str:
    """Return the points as a table: a block of lines per load, a line per (drafter, policy).

    Numbers are means over seeds with t intervals; the change of throughput against ``baseline`` is
    paired by seed.
    """
    drafter = {"drafter": "<"} if several_drafters(points) else {}
    first, *others = RUN_COLUMNS
    columns = (
        {"users": ">", "policy": "<"}
        | drafter
        | {first: ">", f"vs\n{baseline}": ">"}
        | dict.fromkeys(others, ">")
        | {"loss-\nless": "<"}
    )
    return text_table(columns, [_run_row(group, points, baseline) for group in _groups(points)])


def legend(points: Sequence[Point]) -> list[str]:
    """Return the footnotes that explain the columns of the run table."""
    seeds = len({p["seed"] for p in points})
    intervals = f"; ± is the 95% interval over {seeds} replays of the same texts" if seeds > 1 else ""
    lines = [f"{COUNTED.removesuffix('.')}{intervals}."]
    if any(p["lossless"] == "lossless-under-lag" for p in points):
        lines.append(
            "Lossless 'lagged': the output stays the target's because the budget is older than the block."
        )
    return lines


def _groups(points: Sequence[Point]) -> list[list[Point]]:
    """Return the seeds of each (load, drafter, policy) together: by load, then first appearance."""
    found: dict[tuple[Any, ...], list[Point]] = {}
    for p in sorted(points, key=lambda p: p["concurrency"]):
        found.setdefault((p["concurrency"], p["drafter"], p["policy"]), []).append(p)
    return list(found.values())


def _run_row(group: list[Point], points: Sequence[Point], baseline: str) -> dict[str, str]:
    first = group[0]
    row = {"users": str(first["concurrency"]), "policy": first["policy"], "drafter": first["drafter"]}
    for header, (column, digits, with_interval) in RUN_COLUMNS.items():
        interval = t_interval(p[column] for p in group)
        row[header] = spread(interval, digits) if with_interval else number(interval.mean, digits)
    change = _change(group, points, baseline)
    return row | {f"vs\n{baseline}": change, "loss-\nless": VERDICTS[first["lossless"]]}


def _change(group: list[Point], points: Sequence[Point], baseline: str) -> str:
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
        return f"not met: fastest is {row['highest_tok_per_s_per_user']:,.1f}"
    return "highest load simulated" if row["at_highest_concurrency"] else ""


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
        return "baseline misses SLA"
    return "" if row["feasible"] else "not reached"


def _document_table(
    cells: Mapping[str, tuple[str, Callable[[Any], str]]], rows: Sequence[Mapping[str, Any]]
) -> str:
    columns = {header: align for header, (align, _) in cells.items()}
    drafter = {"drafter": "<"} if several_drafters(rows) else {}
    return text_table(
        drafter | columns,
        [
            {header: cell(row) for header, (_, cell) in cells.items()} | {"drafter": row["drafter"]}
            for row in rows
        ],
    )
