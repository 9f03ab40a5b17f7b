"""A comparison of served requests in words and as a text table: what changed, by how much, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dspark_sim.results.compare_words import WORTH_PCT, bounds
from dspark_sim.results.tables import number, signed, text_table

_LATER_PCT = 10.0  # the least change of TTFT that a sentence tells of


def served_sentence(row: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return what one row says: how time per token, first token and objectives changed, and why.

    Args:
        row: of a comparison document of served requests.
        names: key of a row -> what its pair is called.
    """
    rate = "all at once" if row["x"] is None else f"{number(row['x'], 1)} requests/s"
    parts = [part for part in (_token(row), _first(row), _objectives(row), _lost(row)) if part]
    return f"{names[row['key']]}, {rate}: {'. '.join(parts)}."


def _token(row: Mapping[str, Any]) -> str:
    change = row["change"]["tpot50"]
    if change[0] is None:
        return "No time per token to compare"
    words = f"TPOT p50 {signed(change[0], bounds(change))} ({_move(row, 'tpot50', 1)} ms)"
    if change[1] is not None and change[1] <= 0 <= change[2]:
        return f"{words}; the interval contains no change"
    why = " and ".join(_reasons(row))
    return f"{words}, because {why}" if why else words


def _reasons(row: Mapping[str, Any]) -> list[str]:
    found = []
    for name, words, unit in (("tau", "accepted length", ""), ("step", "step time", " ms")):
        change = row["change"].get(name)
        if change and change[0] is not None and abs(change[0]) >= WORTH_PCT:
            found.append(f"{words} {signed(change[0])} ({_move(row, name, 2)}{unit}{_tokens(row, name)})")
    return found


def _tokens(row: Mapping[str, Any], name: str) -> str:
    """Return behind the step time what filled the steps."""
    if name != "step" or "tokens" not in row["a"]:
        return ""
    eager = f", past capture {_move(row, 'eager', 1)} % of steps" if _moved(row, "eager", 0.05) else ""
    return f": {_move(row, 'tokens', 0)} tokens a step{eager}" if _moved(row, "tokens", 1) or eager else ""


def _first(row: Mapping[str, Any]) -> str:
    change = row["change"]["ttft99"]
    if change[0] is None or abs(change[0]) < _LATER_PCT:
        return ""
    words = f"TTFT p99 {signed(change[0], bounds(change))} ({_move(row, 'ttft99', 0)} ms"
    return f"{words}, of it queue {_move(row, 'queue99', 0)})"


def _objectives(row: Mapping[str, Any]) -> str:
    if "within" not in row["a"]:
        return ""
    before, after = row["met"]
    verdict = "" if before == after else f", the objectives are now {'met' if after else 'missed'}"
    if not _moved(row, "within", 0.05):
        return verdict.removeprefix(", ")
    return f"Within all SLOs {_move(row, 'within', 1)} %{verdict}"


def _lost(row: Mapping[str, Any]) -> str:
    there = "preempted" in row["a"] and _moved(row, "preempted", 0.5)
    return f"Preemptions {_move(row, 'preempted', 0)}" if there else ""


def _moved(row: Mapping[str, Any], side: str, least: float) -> bool:
    before, after = (row[end].get(side, [None])[0] for end in ("a", "b"))
    return before is not None and after is not None and abs(after - before) >= least


def _move(row: Mapping[str, Any], side: str, digits: int) -> str:
    return " → ".join(number(row[end][side][0], digits) for end in ("a", "b"))


def served_sentences(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence per row that changed, the largest changes of TPOT p50 first, and how many did not."""
    names = {arm["key"]: arm["name"] for arm in document["arms"]}
    moved = [row for row in document["rows"] if any(triple[0] for triple in row["change"].values())]
    moved.sort(key=_size, reverse=True)
    same = len(document["rows"]) - len(moved)
    rest = [f"{same} of {len(document['rows'])} runs are the same to the last digit."] if same else []
    return [*(served_sentence(row, names) for row in moved), *rest]


def _size(row: Mapping[str, Any]) -> float:
    """Return by how much a row changed: the number that its sentence starts with; -1 without one."""
    change = row["change"]["tpot50"][0]
    return -1.0 if change is None else float(abs(change))


def served_compare_question(document: Mapping[str, Any]) -> str:
    """Return what was compared, in a sentence or two."""
    a, b = document["names"]
    texts = "the same texts" if document["same_texts"] else "DIFFERENT traces"
    arrive = "the same requests arrive" if document["same_traffic"] else "DIFFERENT requests arrive"
    seeds = max(row["seeds"] for row in document["rows"])
    interval = "with 95% intervals over replications" if seeds > 1 else "one replication, so no intervals"
    return (
        f"What is different in {b} against {a}? In both {arrive}, with {texts}; differences are paired by "
        f"rate scale and seed, {interval}."
    )


#: Header -> (column, decimals) of the terminal's table.
_CELLS = {
    "TPOT\np50 ms": ("tpot50", 1), "TTFT\np99 ms": ("ttft99", 0), "within\nall %": ("within", 0),
    "acc.\nlen": ("tau", 2), "step\nms": ("step", 1), "wait-\ning": ("waiting", 0),
}  # fmt: skip


def served_compare_table(document: Mapping[str, Any]) -> str:
    """Return the rows of a comparison document of served requests as a text table."""
    names = {arm["key"]: arm["name"] for arm in document["arms"]}
    there = {header: cell for header, cell in _CELLS.items() if cell[0] in document["rows"][0]["a"]}
    first, *others = there
    columns = {"offered\nreq/s": ">", "policy": "<", first: ">", "change": ">"} | dict.fromkeys(others, ">")
    rows = [
        {
            "offered\nreq/s": number(row["x"], 1),
            "policy": names[row["key"]],
            "change": signed(row["change"]["tpot50"][0], bounds(row["change"]["tpot50"])),
        }
        | {header: _both(row, *cell) for header, cell in there.items()}
        for row in document["rows"]
    ]
    return text_table(columns, rows)


def _both(row: Mapping[str, Any], side: str, digits: int) -> str:
    before, after = (number(row[end][side][0], digits) for end in ("a", "b"))
    return before if before == after else f"{before}→{after}"
