"""A grid of policy x concurrency x seed over one trace on one profile, on several processes.

A point depends on its task alone, so the answer does not depend on the number of processes or on
the order in which they finish. With a folder, every finished point is kept there under the hash of
all that it depends on (the code included); a repeated or interrupted sweep computes what is missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dspark_sim import __version__
from dspark_sim.engine.replay import share_tables
from dspark_sim.engine.simulator import simulate
from dspark_sim.engine.table_files import look_in
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.details import DETAIL, detail
from dspark_sim.results.evidence import gather
from dspark_sim.results.metrics import Point, point
from dspark_sim.schema import RunLog
from dspark_sim.sweeps.code import code_hash
from dspark_sim.sweeps.point_store import PointStore, fingerprint, profile_hash
from dspark_sim.sweeps.tasks import RUN_PATHS, Setup, Task, believed_doubts, grid, split_overrides
from dspark_sim.sweeps.workers import spread

__all__ = [
    "RUN_PATHS",
    "PointStore",
    "Setup",
    "Task",
    "about",
    "believed_doubts",
    "evidence",
    "fingerprint",
    "grid",
    "profile_hash",
    "run_log",
    "simulate_task",
    "split_overrides",
    "sweep",
]


def run_log(task: Task) -> RunLog:
    """Simulate one point and return its records.

    Raises:
        InputError: the trace, the profile or the policy does not allow it.
    """
    setup = task.setup
    look_in(setup.tables)
    return simulate(
        task.load_trace(),
        setup.load_profile(),
        parse_policy(task.policy),
        concurrency=task.concurrency,
        output_tokens=setup.output_tokens,
        seed=task.seed,
        drafter=task.drafter,
        believed=setup.load_believed(task.drafter),
        max_output_tokens=setup.max_output_tokens,
        serving=setup.serving,
        fast=setup.fast,
    )


def simulate_task(task: Task) -> Point:
    """Simulate one point; it comes with its detail (:mod:`dspark_sim.results.details`).

    Raises:
        InputError: as :func:`run_log`.
    """
    run = run_log(task)
    return point(run) | {DETAIL: detail(run, task.setup.load_profile())}


def sweep(
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    store: PointStore | None = None,
    backend: str = "local",
    on_point: Callable[[], None] = lambda: None,
) -> list[Point]:
    """Return the points of ``tasks``, in their order.

    Args:
        tasks: what to compute; see :func:`grid`.
        jobs: worker processes; 1 computes in this one.
        backend: where the worker processes live (:data:`dspark_sim.sweeps.workers.BACKENDS`).
        store: where finished points are kept and found again.
        on_point: called after every point, found or computed.

    Raises:
        InputError: as :func:`simulate_task`, at the first point that is not allowed.
    """
    found: dict[int, Point] = {}
    for i, kept in enumerate(store.get(task) if store else None for task in tasks):
        if kept is not None:
            found[i] = kept
            on_point()
    missing = [i for i in range(len(tasks)) if i not in found]
    for i, computed in _computed(missing, tasks, jobs, backend):
        found[i] = computed
        if store:
            store.put(tasks[i], computed)
        on_point()
    return [found[i] for i in range(len(tasks))]


def _computed(
    missing: list[int], tasks: Sequence[Task], jobs: int, backend: str
) -> Iterator[tuple[int, Point]]:
    """Yield (index, point) as they finish; low loads first, because they take the most steps."""
    order = sorted(missing, key=lambda i: (tasks[i].concurrency, i))
    with ExitStack() as stack:
        chosen = [tasks[i] for i in order]
        if backend == "local" and jobs != 1 and len(chosen) > 1:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dspark-sim-"))
            chosen = _with_tables(chosen, Path(folder))
        for place, computed in spread(simulate_task, chosen, jobs, backend):
            yield order[place], computed


def _with_tables(tasks: Sequence[Task], folder: Path) -> list[Task]:
    """Return the tasks, told of a folder with the tables of whole traces, so that workers share them."""
    shared = dict.fromkeys((t.setup, t.drafter, t.policy) for t in tasks if t.share is None)
    for setup, drafter, policy in shared:
        share_tables(folder, setup.load_trace().drafter(drafter), parse_policy(policy))
    return [replace(task, setup=replace(task.setup, tables=str(folder))) for task in tasks]


def about(setup: Setup, tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the document of a run: what was asked of what, by content, without clock or path."""
    trace, profile = setup.load_trace(), setup.load_profile()
    believed = {"spec": setup.believed, "doubts": believed_doubts(tasks)} if setup.believed else None
    replications = "all prompts" if tasks[0].share is None else "a share of the prompts each"
    return {
        "version": __version__,
        "code": code_hash(),
        "trace": {
            "name": trace.name,
            "target": trace.meta["target"],
            "made": trace.meta["made"],
            "synthetic": trace.synthetic,
            "temperature": trace.meta["temperature"],
            "drafters": {name: drafter.kind for name, drafter in trace.drafters.items()},
            "sha256": trace.content_hash,
        },
        "profile": {
            "name": profile.name,
            "model": profile.model,
            "device": profile.device,
            "num_gpus": profile.num_gpus,
            "max_num_seqs": profile.max_num_seqs,
            "overrides": dict(setup.overrides),
            "how": {path: source.how for path, source in profile.sources.items()},
            "sha256": profile_hash(profile),
        },
        "believed": believed,
        "settings": {"output_tokens": setup.output_tokens, "max_output_tokens": setup.max_output_tokens},
        "serving": asdict(setup.serving),
        "replications": replications,
        "grid": {
            name: list(dict.fromkeys(getattr(task, name) for task in tasks))
            for name in ("drafter", "policy", "concurrency", "seed")
        },
    }


def evidence(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return what trace and profile of a run say by themselves (:mod:`dspark_sim.results.evidence`)."""
    setup = tasks[0].setup
    drafters = dict.fromkeys(task.drafter for task in tasks)
    profile, most = setup.load_profile(), max(task.concurrency for task in tasks)
    return gather(setup.load_trace(), profile, drafters, min(most, profile.max_num_seqs or most))
