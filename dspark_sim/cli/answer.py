"""What `run`, `sweep` and `frontier` do with a plan: simulate, print, draw, write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.cli.common import print_json, progress, warn, working

if TYPE_CHECKING:
    from dspark_sim.cli.plan import Plan
    from dspark_sim.results.store import Results
    from dspark_sim.sweeps.running import PointStore, Task

RUN_SCHEMA = "dspark-sim/run/1"

#: Engine steps above which worker processes repay their start (about a second).
STEPS_WORTH_PROCESSES = 60_000


def compute(plan: Plan, jobs: int, store: PointStore | None = None, backend: str = "local") -> Results:
    """Simulate the tasks of ``plan`` with a progress bar, and return points with their document."""
    from dspark_sim.results.store import Results
    from dspark_sim.sweeps.running import about, evidence, sweep

    tasks = plan.tasks
    with progress(len(tasks), "simulating") as advance:
        workers = jobs or (worth_processes(tasks) if backend == "local" else 0)
        points = sweep(tasks, jobs=workers, store=store, backend=backend, on_point=lambda: advance(1))
    return Results(points, about(plan.setup, tasks), evidence(tasks))


def wrapped(paragraph: str) -> str:
    """Return a paragraph broken to the width of tables."""
    import textwrap

    from dspark_sim.results.tables import WIDTH

    return textwrap.fill(paragraph, WIDTH, break_on_hyphens=False)


def worth_processes(tasks: Sequence[Task]) -> int:
    """Return as many worker processes as pay for ``tasks``: one, or one a core."""
    steps = sum(task.setup.output_tokens / max(task.concurrency, 1) for task in tasks)
    return cores() if steps > STEPS_WORTH_PROCESSES else 1


def cores() -> int:
    """Return the cores this process may use; not every system lets it ask for less than all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write_pictures(results: Results, document: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the two pictures into ``folder``; return the paths."""
    from dspark_sim.results.plots import frontier_figure, load_figure, save

    with working("drawing"):
        figures = {
            "frontier": frontier_figure(results.points, results.about, document),
            "load": load_figure(results.points, results.about),
        }
        return [path for name, figure in figures.items() for path in save(figure, folder, name)]


def write_all(results: Results, document: dict[str, Any], out: Path) -> None:
    """Write points, run document and pictures into ``out``, and say so on stderr."""
    from dspark_sim.results.store import write_results

    paths = [*write_results(out, results), *write_pictures(results, document, out)]
    warn(f"wrote {out}/: {', '.join(path.name for path in paths)}")


def frontier_document(results: Results, baseline: str, slas: list[float] | None) -> dict[str, Any]:
    """Return the frontier document at the asked anchors, or at two round ones in the baseline's range."""
    from dspark_sim.results.frontier import default_slas, frontier

    chosen = default_slas(results.points, baseline) if slas is None else slas
    return frontier(results.points, baseline, chosen)


def print_run_json(results: Results) -> None:
    """Print the document of schema ``dspark-sim/run/1``: the points, notes in words, what was simulated."""
    from dspark_sim.results.notes import notes
    from dspark_sim.schema import POINT_COLUMNS

    words = notes(results.about, results.points)
    points = [{name: p[name] for name in POINT_COLUMNS} for p in results.points]
    print_json({"schema": RUN_SCHEMA, "points": points, "notes": words, "about": results.about})


def print_answer(
    results: Results, baseline: str, document: dict[str, Any], *, readings: bool, chosen: bool = False
) -> None:
    """Print caption, table of points, readings at the anchors if there are several loads, and notes.

    ``chosen``: nobody asked for the anchors.
    """
    from dspark_sim.results.tables import legend, run_table

    print_caption(results)
    print(run_table(results.points, baseline) + "\n")
    if readings:
        _print_tables(document, chosen=chosen)
    print_notes(results, *legend(results.points))


def print_readings(results: Results, document: dict[str, Any], *, chosen: bool = False) -> None:
    """Print caption, readings at the anchors, and notes."""
    print_caption(results)
    _print_tables(document, chosen=chosen)
    print_notes(results)


def print_caption(results: Results) -> None:
    """Print which trace and hardware it is about."""
    from dspark_sim.results.notes import caption

    print("\n".join(caption(results.about)) + "\n")


def _print_tables(document: dict[str, Any], *, chosen: bool) -> None:
    from dspark_sim.results.tables import matched_table, sla_table

    if not document["sla"]:
        print("One load gives no curve: no readings at SLA anchors.\n")
        return
    print("Best throughput at which each user still gets the SLA\n")
    print(sla_table(document) + "\n")
    if chosen:
        print(
            f"SLAs: a third and two thirds into the speeds of {document['baseline']}, rounded; "
            "--sla sets others.\n"
        )
    if len(document["frontier"]) == 1:
        return  # against itself
    print(f"Each user's best speed at the throughput that {document['baseline']} has at the SLA\n")
    print(matched_table(document) + "\n")


def print_notes(results: Results, *more: str) -> None:
    """Print footnotes: ``more``, then what trace, profile and policies call for."""
    from dspark_sim.results.notes import notes
    from dspark_sim.results.tables import footnotes

    print(footnotes([*more, *notes(results.about, results.points)]))
