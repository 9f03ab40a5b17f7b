"""Options that `run` and `sweep` share, and what they mean: a set-up, policies, tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark_sim.cli.common import output_folder, parse_set, print_json, progress, warn
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.policies.base import Policy
    from dspark_sim.results.store import Results
    from dspark_sim.sweep import PointStore, Setup, Task

RUN_SCHEMA = "dspark-sim/run/1"

#: What `run` and `sweep` compare where no --policy is given: no speculation, the paper's baseline, a
#: fixed length, every drafted token, the paper's rule as written, and as it runs in production.
DEFAULT_POLICIES = ("off", "mtp:k=1", "static:k=3", "full", "dspark", "dspark-async")

#: Engine steps above which worker processes repay their start (about a second).
STEPS_WORTH_PROCESSES = 60_000

TraceOption = Annotated[str, typer.Option("--trace", help="Acceptance trace: a path or a shipped name.")]
HwOption = Annotated[str, typer.Option("--hw", help="Hardware profile: a path or a shipped name.")]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option("--policy", help="Policy spec, repeats; see `dspark-sim policies`. Default: six of them."),
]
TokensOption = Annotated[
    int, typer.Option("--output-tokens", min=1, help="Output tokens to measure per point.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random stream.")]
SeedsOption = Annotated[
    int,
    typer.Option("--seeds", min=1, help="Replications, at seed, seed + 1, ...; two or more give intervals."),
]
DrafterOption = Annotated[str | None, typer.Option("--drafter", help="Drafter of the trace.")]
LagOption = Annotated[
    int | None, typer.Option("--lag", min=0, help="Lag [steps] of rules that read older confidences.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override one field: capture.limit=512, workload.max_output_tokens=256; repeats."
    ),
]
BaselineOption = Annotated[
    str | None, typer.Option("--baseline", help="Policy that percentages are against.")
]
SlaOption = Annotated[
    str | None,
    typer.Option("--sla", help="Anchors [tok/s/user], as in 80,120: readings and lines in the picture."),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", min=0, help="Worker processes; 0: one per core where it pays.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout and nothing else there.")
]


@dataclass(frozen=True)
class Plan:
    """What a command was asked for: the set-up, its tasks, and the policy that percentages are against."""

    setup: Setup
    tasks: list[Task]
    baseline: str

    @property
    def name(self) -> str:
        """Default name of the output folder."""
        return f"{self.setup.load_trace().name}-{self.setup.load_profile().name}"


def make_plan(
    trace: str,
    hw: str,
    *,
    policies: Sequence[str] | None,
    loads: Sequence[int],
    seeds: Sequence[int],
    output_tokens: int,
    drafter: str | None,
    lag: int | None,
    assignments: Sequence[str] | None,
    baseline: str | None,
) -> Plan:
    """Check everything that a user typed before anything is simulated, and return the plan.

    Raises:
        InputError: a file, policy, drafter, override or baseline that does not exist or does not fit.
    """
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.sweep import Setup, grid, split_overrides

    overrides, cut = split_overrides(parse_set(assignments or ()))
    setup = Setup(trace, hw, overrides, output_tokens, drafter, cut)
    setup.load_trace().drafter(drafter)
    setup.load_profile()
    chosen = [parse_policy(spec, lag) for spec in policies or DEFAULT_POLICIES]
    if not policies:
        chosen = _that_fit(chosen, setup)
    labels = list(dict.fromkeys(policy.label for policy in chosen))
    return Plan(setup, grid(setup, labels, loads, seeds), choose_baseline(baseline, labels))


def _that_fit(chosen: list[Policy], setup: Setup) -> list[Policy]:
    """Leave out default policies that the drafter or the profile cannot serve, and say so."""
    drafter, profile = setup.load_trace().drafter(setup.drafter), setup.load_profile()
    kept = []
    for policy in chosen:
        kind = policy.info.draft_kind or drafter.kind
        if policy.info.needs_confidence and not drafter.has_confidence:
            warn(f"{policy.label} left out: drafter '{drafter.name}' has no confidence head")
        elif kind != "none" and profile.draft.get(kind) is None:
            warn(f"{policy.label} left out: {profile.name} has no cost of a {kind} drafter")
        elif policy.options.get("k", 0) > drafter.gamma:
            warn(f"{policy.label} left out: drafter '{drafter.name}' drafts {drafter.gamma} tokens")
        else:
            kept.append(policy)
    return kept


def choose_baseline(asked: str | None, labels: Sequence[str]) -> str:
    """Return the baseline, normalised: what was asked for, else ``off``, else the first policy.

    Raises:
        InputError: what was asked for is no policy, or is not among ``labels``.
    """
    from dspark_sim.policies.registry import parse_policy

    if asked is None:
        return "off" if "off" in labels else labels[0]
    label = parse_policy(asked).label
    if label not in labels:
        raise InputError(f"--baseline {label}: not among the policies of this run: {', '.join(labels)}")
    return label


def compute(plan: Plan, jobs: int, store: PointStore | None = None) -> Results:
    """Simulate the tasks of ``plan`` with a progress bar, and return points with their document."""
    from dspark_sim.results.store import Results
    from dspark_sim.sweep import about, sweep

    tasks = plan.tasks
    with progress(len(tasks), "simulating") as advance:
        points = sweep(tasks, jobs=jobs or _jobs(tasks), store=store, on_point=lambda: advance(1))
    return Results(points, about(plan.setup, tasks))


def _jobs(tasks: Sequence[Task]) -> int:
    steps = sum(task.setup.output_tokens / task.concurrency for task in tasks)
    return len(os.sched_getaffinity(0)) if steps > STEPS_WORTH_PROCESSES else 1


def write_pictures(results: Results, document: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the two pictures into ``folder``; return the paths."""
    from dspark_sim.results.plots import frontier_figure, load_figure, save

    figures = {
        "frontier": frontier_figure(results.points, results.about, document),
        "load": load_figure(results.points, results.about),
    }
    return [path for name, figure in figures.items() for path in save(figure, folder, name)]


def write_all(results: Results, document: dict[str, Any], out: Path) -> None:
    """Write points, run document and pictures into ``out``, and say so on stderr."""
    from dspark_sim.results.store import write_results

    folder = output_folder(out)
    paths = [*write_results(folder, results), *write_pictures(results, document, folder)]
    warn(f"wrote {folder}/: {', '.join(path.name for path in paths)}")


def chosen_folder(out: Path | None, parent: str, plan: Plan, quiet: bool) -> Path | None:
    """Return the output folder, made and writable before anything is computed; None if none is wanted.

    Args:
        out: what the user asked for; None: ``parent/TRACE-HW`` in the working directory.
        parent: folder of default output.
        plan: gives the default its name.
        quiet: without ``out``, write nothing.
    """
    if out is None and quiet:
        return None
    return output_folder(out if out is not None else Path(parent) / plan.name)


def frontier_document(results: Results, baseline: str, slas: list[float] | None) -> dict[str, Any]:
    """Return the frontier document at the asked anchors, or at two round ones in the baseline's range."""
    from dspark_sim.results.frontier import default_slas, frontier

    chosen = default_slas(results.points, baseline) if slas is None else slas
    return frontier(results.points, baseline, chosen)


def print_run_json(results: Results) -> None:
    """Print the document of schema ``dspark-sim/run/1``: the points, notes in words, what was simulated."""
    from dspark_sim.results.notes import notes

    words = notes(results.about, [p["policy"] for p in results.points])
    print_json({"schema": RUN_SCHEMA, "points": results.points, "notes": words, "about": results.about})


def print_answer(results: Results, baseline: str, document: dict[str, Any], readings: bool) -> None:
    """Print caption, table of points, readings at the anchors if there are several loads, and notes."""
    from dspark_sim.results.notes import caption
    from dspark_sim.results.tables import legend, run_table

    print("\n".join(caption(results.about)) + "\n")
    print(run_table(results.points, baseline) + "\n")
    if readings:
        _print_tables(document)
    _print_notes(results, *legend(results.points))


def print_readings(results: Results, document: dict[str, Any]) -> None:
    """Print caption, readings at the anchors, and notes."""
    from dspark_sim.results.notes import caption

    print("\n".join(caption(results.about)) + "\n")
    _print_tables(document)
    _print_notes(results)


def _print_tables(document: dict[str, Any]) -> None:
    from dspark_sim.results.tables import matched_table, sla_table

    if not document["sla"]:
        print("One load gives no curve: no readings at SLA anchors.\n")
        return
    print("Best throughput at which each user still gets the SLA\n")
    print(sla_table(document) + "\n")
    print(f"Each user's best speed at the throughput that {document['baseline']} has at the SLA\n")
    print(matched_table(document) + "\n")


def _print_notes(results: Results, *more: str) -> None:
    from dspark_sim.results.notes import notes
    from dspark_sim.results.tables import footnotes

    print(footnotes([*more, *notes(results.about, [p["policy"] for p in results.points])]))
