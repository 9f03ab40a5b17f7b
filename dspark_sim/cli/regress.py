"""``dspark-sim regress``: has a change cost throughput anywhere?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_sim.cli import options as o
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.regress import Movement


def regress(
    *,
    scenarios: Annotated[Path, typer.Option("--scenarios", help="The pinned set.")] = Path(
        "regress/scenarios.yaml"
    ),
    baseline: Annotated[Path, typer.Option("--baseline", help="What it is compared with.")] = Path(
        "regress/baseline.json"
    ),
    update: Annotated[bool, typer.Option("--update", help="Rewrite the baseline; needs --reason.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why the baseline moves.")] = None,
    allow_gains: Annotated[bool, typer.Option("--allow-gains", help="A gain is not red.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for regress.xml (JUnit) and regress.md.")
    ] = None,
    jobs: o.JobsOption = 0,
    json_out: o.JsonOption = False,
) -> None:
    """Run a pinned set of scenarios, compare with the committed baseline, exit 1 if a point is red.

    Red: a loss or a gain beyond the tolerance, a changed verdict, a point that is new or gone.

    Example: dspark-sim regress --out regress-out
    """
    from dspark_sim import regress as lab
    from dspark_sim.cli.answer import worth_processes
    from dspark_sim.cli.common import output_folder, print_json, progress
    from dspark_sim.files import write_text
    from dspark_sim.sweeps.running import sweep

    if update != (reason is not None and bool(reason.strip())):
        raise InputError("--update and --reason go together: a baseline moves for a reason")
    pinned = lab.read_scenarios(scenarios)
    old = lab.read_baseline(baseline) if baseline.is_file() or not update else None
    tasks = lab.tasks_of(pinned)
    with progress(len(tasks), "simulating") as advance:
        points = sweep(tasks, jobs=jobs or worth_processes(tasks), on_point=lambda: advance(1))
    after = lab.kept(tasks, points)
    movements = lab.compare((old or {}).get("points", {}), after, pinned.tolerance)
    red = [state for state in lab.RED if not (allow_gains and state == "gain")]
    if out is not None:
        folder = output_folder(out)
        write_text(folder / "regress.xml", lab.junit(movements, red))
        write_text(folder / "regress.md", lab.markdown(movements, pinned.tolerance))
    if update:
        lab.write_baseline(baseline, lab.updated(old, after, str(reason)))
    if json_out:
        print_json({
            "schema": "dspark-sim/regress/1",
            "tolerance": pinned.tolerance,
            "movements": [
                {"name": m.name, "state": m.state, "change": m.change, "before": m.before, "after": m.after}
                for m in movements
            ],
        })  # fmt: skip
    else:
        _print(movements, red, updated=str(baseline) if update else None)
    if not update and any(movement.state in red for movement in movements):
        raise typer.Exit(1)


def _print(movements: list[Movement], red: Sequence[str], updated: str | None) -> None:
    from dspark_sim.regress import in_words
    from dspark_sim.results.tables import text_table

    news = [movement for movement in movements if movement.state != "same"]
    if news:
        rows = [{"point": m.name, "what": m.state, "": in_words(m)} for m in news[:40]]
        print(text_table({"point": "<", "what": "<", "": "<"}, rows))
        if len(news) > len(rows):
            print(f"... and {len(news) - len(rows)} more")
    bad = sum(movement.state in red for movement in movements)
    print(f"{len(movements)} points: {len(movements) - len(news)} as they were, {bad} red")
    if updated:
        print(f"{updated} rewritten")
