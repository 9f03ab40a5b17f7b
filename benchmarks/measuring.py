"""Timing on a machine that others use too: processor time, interleaved, medians with their spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: One measurement: runs something and returns how many units of it (steps) it did.
Work = Callable[[], int]


def seconds_per_unit(work: Work) -> float:
    """Return the processor time of this thread by unit of ``work`` [s]."""
    start_s = time.thread_time()
    units = work()
    return (time.thread_time() - start_s) / units


def interleaved(works: Mapping[str, Work], yardstick: str, rounds: int) -> dict[str, dict[str, float]]:
    """Run every work once a round, after one round that does not count; return figures by name.

    ``units_per_s``: median over rounds; ``ratio``: median over rounds of its speed over that of
    ``yardstick`` in the same round; ``ratio_low``, ``ratio_high``: the least and the greatest.
    """
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(seconds_per_unit(work))
    figures = {}
    for name, each_s in taken.items():
        ratios = [other_s / own_s for own_s, other_s in zip(each_s, taken[yardstick], strict=True)]
        figures[name] = {
            "units_per_s": 1.0 / statistics.median(each_s),
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
        }
    return figures


def median_and_spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and greatest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    import platform
    from pathlib import Path

    import numpy as np

    cpu = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if "model name" in line]
    load = Path("/proc/loadavg").read_text().split()[:3]
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    return {"cpu": names[0] if names else platform.processor(), "cores": len(names), "load": load, **versions}
