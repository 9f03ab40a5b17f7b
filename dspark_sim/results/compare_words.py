"""A comparison in words and as a text table: what changed, by how much, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dspark_sim.results.tables import number, signed, text_table

#: Changes smaller than this are not given as a reason [%].
WORTH_PCT = 0.5


def sentence(row: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return what one row says: the change of throughput and where it comes from.

    Args:
        row: of a comparison document.
        names: key of a row -> what its pair is called.
    """
    change = row["change"]["gpu"]
    users = f"{row['load']} user{'s' if row['load'] > 1 else ''}"
    head = f"{names[row['key']]}, {users}: throughput {signed(change[0], bounds(change))}"
    if change[1] is not None and change[1] <= 0 <= change[2]:
        return head + "; the interval contains no change."
    why = "; ".join(_reasons(row))
    return f"{head}, because {why}." if why else head + "."


def bounds(triple: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the ends of a triple, None where there is no interval."""
    return None if triple[1] is None or triple[2] is None else (triple[1], triple[2])


def _reasons(row: Mapping[str, Any]) -> list[str]:
    change, a, b = row["change"], row["a"], row["b"]
    found = []
    if abs(change["tau"][0]) >= WORTH_PCT:
        found.append(f"accepted length {signed(change['tau'][0])} ({_move(a, b, 'tau', 2)})")
    if abs(change["step"][0]) >= WORTH_PCT:
        found.append(f"step time {signed(change['step'][0])} ({_move(a, b, 'step', 2)} ms{_within(a, b)})")
    if found and _moved(a, b, "budget", 0.02):
        found.append(f"verification budget {_move(a, b, 'budget', 2)}")
    if "padded" in a and abs(change["step"][0]) >= WORTH_PCT and _moved(a, b, "padded", 1):
        found.append(f"steps of {_move(a, b, 'padded', 0)} tokens as captured")
    if "eager" in a and _moved(a, b, "eager", 0.05):
        found.append(f"past the capture limit in {_move(a, b, 'eager', 1)} % of steps")
    return found


def _moved(a: Mapping[str, Any], b: Mapping[str, Any], side: str, least: float) -> bool:
    return bool(abs(b[side][0] - a[side][0]) >= least)


def _move(a: Mapping[str, Any], b: Mapping[str, Any], side: str, digits: int) -> str:
    return f"{number(a[side][0], digits)} → {number(b[side][0], digits)}"


def _within(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return how a change of the step splits between forward pass and all else."""
    if "forward" not in a:
        return ""
    forward = b["forward"][0] - a["forward"][0]
    rest = b["step"][0] - a["step"][0] - forward
    return f": forward pass {forward:+.2f}, all else {round(rest, 2) + 0.0:+.2f}"


def compare_table(document: Mapping[str, Any]) -> str:
    """Return the rows of a comparison document as a text table."""
    names = {arm["key"]: arm["name"] for arm in document["arms"]}
    columns = {"users": ">", "policy": "<", "throughput\ntok/s/GPU": ">", "change": ">"}
    sides = {
        "accepted\nlength": ("tau", 2), "verify\nbudget": ("budget", 2), "step\nms": ("step", 2),
        "past\ncapture %": ("eager", 1),
    }  # fmt: skip
    there = {header: cell for header, cell in sides.items() if cell[0] in document["rows"][0]["a"]}
    rows = [
        {
            "users": str(row["load"]),
            "policy": names[row["key"]],
            "throughput\ntok/s/GPU": _both(row, "gpu", 0),
            "change": signed(row["change"]["gpu"][0], bounds(row["change"]["gpu"])),
        }
        | {header: _both(row, side, digits) for header, (side, digits) in there.items()}
        for row in document["rows"]
    ]
    return text_table(columns | dict.fromkeys(there, ">"), rows)


def _both(row: Mapping[str, Any], side: str, digits: int) -> str:
    before, after = (number(row[end][side][0], digits) for end in ("a", "b"))
    return before if before == after else f"{before}→{after}"


def compare_sentences(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence per row that changed, the largest changes first, and how many did not."""
    names = {arm["key"]: arm["name"] for arm in document["arms"]}
    moved = [row for row in document["rows"] if any(triple[0] for triple in row["change"].values())]
    moved.sort(key=lambda row: -abs(row["change"]["gpu"][0]))
    same = len(document["rows"]) - len(moved)
    rest = [f"{same} of {len(document['rows'])} points are the same to the last digit."] if same else []
    return [*(sentence(row, names) for row in moved), *rest]


def compare_question(document: Mapping[str, Any]) -> str:
    """Return what was compared, in a sentence."""
    texts = "the same texts in the same order" if document["same_texts"] else "DIFFERENT traces"
    seeds = max(row["seeds"] for row in document["rows"])
    interval = "with 95% intervals over seeds" if seeds > 1 else "one seed, so without intervals"
    a, b = document["names"]
    return (
        f"What is different in {b} against {a}? Both replay {texts}; differences are paired by seed, "
        f"{interval}."
    )
