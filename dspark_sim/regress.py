"""A pinned set of scenarios against a committed baseline: what moved, and is it a loss?

A point is a pure function of its inputs, so a baseline holds to the last digit until code, traces or
profiles change; tolerances say how much may move unasked. A gain is news as well: in a simulator an
unexplained gain is as likely a mistake as a loss, so it needs a new baseline with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from xml.etree import ElementTree

from annotated_types import Ge, Gt, MinLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from dspark_sim.arms import own_arms
from dspark_sim.errors import DataError, InputError
from dspark_sim.files import write_text
from dspark_sim.policies.registry import parse_policy, policies
from dspark_sim.results.metrics import Point
from dspark_sim.specs import rule_words
from dspark_sim.sweeps.running import Setup, Task, grid

FORMAT = "dspark-sim/regress/1"
#: What a baseline keeps of a point; throughput decides, the others say how it came about.
KEPT = ("tok_per_s", "tok_per_s_per_user", "accepted_len", "verify_len", "step_ms")

State = Literal["same", "moved", "gain", "loss", "verdict", "new", "gone"]
RED: tuple[State, ...] = ("loss", "gain", "verdict", "new", "gone")


def _spec(word: object) -> object:
    """YAML reads a bare ``off`` as false."""
    return "off" if word is False else word


PolicySpec = Annotated[str, BeforeValidator(_spec)]


class Scenario(BaseModel):
    """One trace on one profile; ``policies`` None: every shipped rule, at its example."""

    model_config = ConfigDict(extra="forbid")
    trace: str
    hw: str
    concurrency: Annotated[list[Annotated[int, Ge(1)]], MinLen(1)]
    policies: list[PolicySpec] | None = None


class Scenarios(BaseModel):
    """The pinned set.

    Attributes:
        output_tokens_per_user: measured output tokens of a point, times its users [tokens].
        seeds: one point each.
        tolerance: relative movement of throughput that is let pass.
    """

    model_config = ConfigDict(extra="forbid")
    format: Literal["dspark-sim/regress/1"]
    output_tokens_per_user: Annotated[int, Ge(1)]
    seeds: Annotated[list[Annotated[int, Ge(0)]], MinLen(1)]
    tolerance: Annotated[float, Gt(0)]
    scenarios: Annotated[list[Scenario], MinLen(1)]


@dataclass(frozen=True, slots=True)
class Movement:
    """One point against its baseline.

    Attributes:
        name: scenario, policy, load and seed in one line.
        state: what became of it.
        before, after: kept figures and verdict; None where there is none.
    """

    name: str
    state: State
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def change(self) -> float:
        """Relative change of throughput; NaN where one side is missing."""
        if self.before is None or self.after is None:
            return float("nan")
        return float(self.after["tok_per_s"] / self.before["tok_per_s"] - 1.0)


def read_scenarios(path: Path) -> Scenarios:
    """Read a set of scenarios.

    Raises:
        InputError: no such file.
        DataError: not the format; names the first fault.
    """
    import yaml

    try:
        return Scenarios.model_validate(yaml.safe_load(_text(path)))
    except yaml.YAMLError as error:
        raise DataError(path, "", f"not YAML: {error}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        raise DataError(path, ".".join(map(str, fault["loc"])), rule_words(fault)) from None


def read_baseline(path: Path) -> dict[str, Any]:
    """Read a baseline document.

    Raises:
        InputError: no such file; ``--update`` writes one.
        DataError: not a baseline.
    """
    try:
        document: dict[str, Any] = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise DataError(path, "", f"not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(path, "format", f"must be {FORMAT}")
    return document


def _text(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    return path.read_text(encoding="utf-8")


def tasks_of(scenarios: Scenarios) -> list[Task]:
    """Return the points to compute; rules that cannot serve a drafter or profile are an error of the set.

    Raises:
        InputError: a trace, profile or policy that does not exist.
    """
    tasks: list[Task] = []
    for scenario in scenarios.scenarios:
        rules = [parse_policy(spec) for spec in scenario.policies or [i.example for i in policies()]]
        for load in scenario.concurrency:
            setup = Setup(scenario.trace, scenario.hw, output_tokens=scenarios.output_tokens_per_user * load)
            tasks += grid(setup, own_arms(rules, setup.load_trace()), [load], scenarios.seeds)
    return tasks


def name_of(task: Task) -> str:
    """Return the name of a point: what it is keyed by in a baseline."""
    setup = task.setup
    place = f"{Path(setup.trace).stem} on {Path(setup.hw).stem}"
    return f"{place}, {task.drafter}, {task.policy}, {task.concurrency} users, seed {task.seed}"


def kept(tasks: Sequence[Task], points: Sequence[Point]) -> dict[str, dict[str, Any]]:
    """Return what a baseline keeps of each point, by name."""
    return {
        name_of(task): {key: float(found[key]) for key in KEPT} | {"lossless": found["lossless"]}
        for task, found in zip(tasks, points, strict=True)
    }


def compare(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], tolerance: float
) -> list[Movement]:
    """Return every point of either side with what became of it, the worst loss first."""
    names = list(dict.fromkeys([*after, *before]))
    found = [_movement(name, before.get(name), after.get(name), tolerance) for name in names]
    order: tuple[State, ...] = ("verdict", "gone", "new", "loss", "gain", "moved", "same")
    return sorted(found, key=lambda m: (order.index(m.state), m.change))


def _movement(
    name: str, before: dict[str, Any] | None, after: dict[str, Any] | None, tolerance: float
) -> Movement:
    state: State = "same"
    if before is None or after is None:
        return Movement(name, "new" if before is None else "gone", before, after)
    change = after["tok_per_s"] / before["tok_per_s"] - 1.0
    if after["lossless"] != before["lossless"]:
        state = "verdict"
    elif abs(change) > tolerance:
        state = "loss" if change < 0 else "gain"
    elif after != before:
        state = "moved"
    return Movement(name, state, before, after)


def updated(document: dict[str, Any] | None, after: dict[str, dict[str, Any]], reason: str) -> dict[str, Any]:
    """Return a baseline of ``after`` whose history ends with ``reason``."""
    history = [*(document or {}).get("reasons", []), reason]
    return {"format": FORMAT, "reasons": history, "points": after}


def write_baseline(path: Path, document: dict[str, Any]) -> None:
    """Write a baseline, one line a point, so that a diff shows what moved."""
    points = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(kept)}" for name, kept in document["points"].items()
    )
    head = json.dumps({key: value for key, value in document.items() if key != "points"}, indent=1)
    write_text(path, f'{head[:-2]},\n "points": {{\n{points}\n}}\n}}\n')


def junit(movements: Sequence[Movement], red: Sequence[State] = RED) -> str:
    """Return the movements as JUnit XML: one test case a point."""
    failures = sum(movement.state in red for movement in movements)
    suite = ElementTree.Element(
        "testsuite", name="dspark-sim regress", tests=str(len(movements)), failures=str(failures)
    )
    for movement in movements:
        place, _, rest = movement.name.partition(", ")
        case = ElementTree.SubElement(suite, "testcase", classname=place, name=rest)
        if movement.state in red:
            ElementTree.SubElement(case, "failure", message=in_words(movement), type=movement.state)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def in_words(movement: Movement) -> str:
    """Return what became of a point, in a few words."""
    before, after = movement.before, movement.after
    if before is None or after is None:
        return "is not in the baseline" if before is None else "is not computed any more"
    if movement.state == "verdict":
        return f"was {before['lossless']}, is {after['lossless']}"
    speed = f"{before['tok_per_s']:,.1f} -> {after['tok_per_s']:,.1f} tok/s ({movement.change:+.2%})"
    return f"{speed}, verify_len {before['verify_len']:.3f} -> {after['verify_len']:.3f}"


def markdown(movements: Sequence[Movement], tolerance: float, most: int = 50) -> str:
    """Return a summary: counts by state, then the points that moved beyond the tolerance."""
    counts = {state: sum(m.state == state for m in movements) for state in ("same", "moved", *RED)}
    lines = [
        "# Regression of the lab",
        "",
        f"{len(movements)} points, tolerance {tolerance:.2%} of throughput: "
        + ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        + ".",
    ]
    news = [movement for movement in movements if movement.state in RED]
    if news:
        lines += ["", "| point | what | |", "| --- | --- | --- |"]
        lines += [f"| {m.name} | {m.state} | {in_words(m)} |" for m in news[:most]]
    if len(news) > most:
        lines += ["", f"{len(news) - most} more."]
    return "\n".join(lines) + "\n"
