"""``dspark-sim sweep``: a grid of policy x concurrency x seed into a result folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_sim.cli import answer, plan
from dspark_sim.cli import options as o
from dspark_sim.cli.common import parse_concurrency, parse_slas, warn, working
from dspark_sim.cli.folders import KEPT

if TYPE_CHECKING:
    from dspark_sim.sweeps.running import PointStore, Task

DEFAULT_LOADS = "1,2,4,8,16,32,64,128,256"


def sweep(
    *,
    trace: o.TraceOption,
    hw: o.HwOption,
    believed: o.BelievedOption = None,
    policy: o.PolicyOption = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Users of the closed loop: a comma list.")
    ] = DEFAULT_LOADS,
    output_tokens: o.TokensOption = 50_000,
    seed: o.SeedOption = 0,
    seeds: o.SeedsOption = 1,
    replicate: o.ReplicateOption = "seeds",
    drafter: o.DrafterOption = None,
    lag: o.LagOption = None,
    assignments: o.SetOption = None,
    baseline: o.BaselineOption = None,
    sla: o.SlaOption = None,
    jobs: o.JobsOption = 0,
    backend: o.BackendOption = "local",
    fast: o.FastOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Say how many points there are and about how long they take.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Result folder. Default: sweeps/TRACE-HW.", rich_help_panel=o.OUTPUT),
    ] = None,
    force: o.ForceOption = False,
    json_out: o.JsonOption = False,
) -> None:
    """Simulate a grid of policies, loads and seeds into a folder; a repeated sweep computes what is missing.

    Another grid of the same set-up joins the points that the folder has; --force replaces them.

    Example: dspark-sim sweep --trace qwen3-4b-chat.synth.parquet --hw h800.yaml --seeds 3
    """
    from dspark_sim.sweeps.running import PointStore

    loads, slas = parse_concurrency(concurrency), parse_slas(sla) if sla is not None else None
    asked = plan.make_plan(
        trace, hw, policies=policy, loads=loads, seeds=range(seed, seed + seeds), output_tokens=output_tokens,
        drafters=drafter, lag=lag, assignments=assignments, baseline=baseline, believed=believed,
        replicate=replicate, fast=fast,
    )  # fmt: skip
    if dry_run:
        _announce(asked, out, jobs)
        return
    folder = plan.chosen_folder(out, "sweeps", asked, quiet=False, resume=True, force=force)
    assert folder is not None, "a sweep always has a folder"
    store = PointStore(folder / KEPT)
    there = sum(store.get(task) is not None for task in asked.tasks)
    if there:
        warn(f"{there} of {len(asked.tasks)} points were there already")
    former = [] if force else _former(asked, store)
    if former:
        warn(_kept_line(asked.tasks, former))
        asked = replace(asked, tasks=_joined(asked.tasks, former))
        loads = sorted({task.concurrency for task in asked.tasks})
    results = answer.compute(asked, jobs, store, backend)
    document = answer.frontier_document(results, asked.baseline, slas)
    answer.write_all(results, document, folder)
    if json_out:
        answer.print_run_json(results)
    else:
        readings = len(loads) > 1 or slas is not None
        answer.print_answer(results, asked.baseline, document, readings=readings, chosen=slas is None)


def _former(asked: plan.Plan, store: PointStore) -> list[Task]:
    """Return the tasks of former sweeps, not asked for now, whose points hold under the set-up of ``asked``.

    A point of other code, another set-up or a rule whose file changed has another hash, and is not found.
    """
    from dspark_sim.sweeps.running import Task

    shares = {task.seed: task.share for task in asked.tasks}
    made = {
        Task(asked.setup, p["drafter"], p["policy"], p["concurrency"], p["seed"], shares.get(p["seed"])): None
        for p in store.points()
    }
    there = set(asked.tasks)
    return [task for task in made if task not in there and store.holds(task)]


def _joined(asked: list[Task], former: list[Task]) -> list[Task]:
    """Return all tasks by arm, those asked for first, then load, then seed."""
    new = sorted({(task.drafter, task.policy) for task in former})
    place = {arm: n for n, arm in enumerate(dict.fromkeys([*((t.drafter, t.policy) for t in asked), *new]))}
    return sorted(
        [*asked, *former], key=lambda task: (place[task.drafter, task.policy], task.concurrency, task.seed)
    )


def _kept_line(asked: list[Task], former: list[Task]) -> str:
    """Return the line that says how many former points are kept, and in what they differ from those asked."""
    parts = []
    for name, words in (
        ("drafter", "{}"),
        ("policy", "{}"),
        ("concurrency", "{} users"),
        ("seed", "seed {}"),
    ):
        new = sorted({getattr(task, name) for task in former} - {getattr(task, name) for task in asked})
        if new:
            parts.append(words.format(", ".join(map(str, new))))
    where = f": {'; '.join(parts)}" if parts else ""
    return f"{len(former)} point{'s' * (len(former) > 1)} of former sweeps kept{where}"


def _announce(asked: plan.Plan, out: Path | None, jobs: int) -> None:
    """Print how many points are asked for, how many are there, and about how long the others take."""
    from dspark_sim.sweeps.estimate import seconds
    from dspark_sim.sweeps.running import PointStore

    folder = out or Path("sweeps") / asked.name
    store = PointStore(folder / KEPT)
    missing = [task for task in asked.tasks if store.get(task) is None]
    there, workers = len(asked.tasks) - len(missing), jobs or answer.worth_processes(missing)
    print(f"{len(asked.tasks)} points into {folder}/; {there} there already, {len(missing)} to compute")
    if missing:
        with working("estimating"):
            taken_s = seconds(missing)
        alone_s = taken_s / workers
        print(f"about {_words(taken_s)} of processor time, {_words(alone_s)} on {workers} free core(s)")


def _words(time_s: float) -> str:
    for unit, name in ((3600, "h"), (60, "min")):
        if time_s >= unit:
            return f"{time_s / unit:.1f} {name}"
    return f"{time_s:.1f} s"
