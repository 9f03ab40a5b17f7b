"""Work spread over processes: results as they come, the same whatever the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def spread(work: Callable[[Any], Any], items: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """Yield (index, ``work(item)``) of every item, in this process or as ``jobs`` processes finish them.

    Args:
        work: a function of a module, so that it can be sent to a process.
        items: sent to the processes, so each should be small.
        jobs: worker processes; 1: none, and the order is that of the items.
    """
    if jobs == 1 or len(items) < 2:
        yield from ((i, work(item)) for i, item in enumerate(items))
        return
    from joblib import Parallel, delayed, parallel_config

    # One thread a worker: the arrays of a step are small, and spinning threads would fight for cores.
    with parallel_config(backend="loky", inner_max_num_threads=1):
        workers = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from workers(delayed(_indexed)(work, i, item) for i, item in enumerate(items))


def _indexed(work: Callable[[Any], Any], index: int, item: Any) -> tuple[int, Any]:
    return index, work(item)
