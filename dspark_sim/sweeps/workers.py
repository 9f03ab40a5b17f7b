"""Work spread over processes, here or on a cluster: results as they come, whoever computes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dspark_sim.errors import InputError, did_you_mean

Work = Callable[[Any], Any]
#: Where worker processes live: on this machine, or on a Ray cluster (extra: ray).
BACKENDS = ("local", "ray")


def spread(work: Work, items: Sequence[Any], jobs: int, backend: str = "local") -> Iterator[tuple[int, Any]]:
    """Yield (index, ``work(item)``) of every item, in this process or as worker processes finish them.

    Args:
        work: a function of a module, so that it can be sent to a process.
        items: sent to the processes, so each should be small.
        jobs: worker processes of this machine; 1: none, and the order is that of the items. On a cluster,
            tasks under way at once; 0 or 1: as many as it has processors.
        backend: of :data:`BACKENDS`.

    Raises:
        InputError: no such backend, or Ray is not installed or not reachable.
    """
    if backend not in BACKENDS:
        raise InputError(
            f"unknown backend '{backend}'{did_you_mean(backend, BACKENDS)}; known: {', '.join(BACKENDS)}"
        )
    if backend == "ray":
        from dspark_sim.sweeps.ray_workers import spread_over_cluster

        yield from spread_over_cluster(work, items, jobs)
        return
    if jobs == 1 or len(items) < 2:
        yield from ((i, work(item)) for i, item in enumerate(items))
        return
    from joblib import Parallel, delayed, parallel_config

    # One thread a worker: the arrays of a step are small, and spinning threads would fight for cores.
    with parallel_config(backend="loky", inner_max_num_threads=1):
        workers = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        here = os.getcwd()
        yield from workers(delayed(_indexed)(work, i, item, here) for i, item in enumerate(items))


def _indexed(work: Work, index: int, item: Any, folder: str) -> tuple[int, Any]:
    os.chdir(folder)  # workers are used again: they were started where an earlier call was
    return index, work(item)
