"""Timing the parts of a step on this machine: interleaved rounds, kept after each, resumable.

Every round times every point once, in an order of its own, so that drift (heat, neighbours, clocks)
falls on all points alike. On one CPU thread the clock is that thread's own CPU time: a neighbour that
takes the core does not count, one that takes the caches does.
"""

from __future__ import annotations

import gc
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dspark_sim import __version__
from dspark_sim.errors import DataError
from dspark_sim.files import atomic_path
from dspark_sim.hardware.measure_plan import Plan, Point
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.profile_work import Work, Workbench
from dspark_sim.model.target import Target
from dspark_sim.rng import stream

if TYPE_CHECKING:
    import pandas as pd

#: A point that takes less than this is run several times a sample [s].
_SHORTEST_SAMPLE_S = 5e-3
_META = b"dspark_sim_profile"
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class _Timed:
    """A point, its work, and how often a sample runs it."""

    point: Point
    work: Work
    runs: int


def versions() -> dict[str, str]:
    """Return the versions that a measurement depends on."""
    found = {"dspark-sim": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
    return found | ({"cuda": str(torch.version.cuda)} if torch.cuda.is_available() else {})


def device_words(device: str, threads: int) -> str:
    """Return the machine in words: the accelerator's name, or the processor's and its threads."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    lines = _CPUINFO.read_text(encoding="utf-8").splitlines() if _CPUINFO.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = " ".join((named or [platform.processor() or platform.machine()])[0].split())
    return f"{threads} thread{'s' if threads > 1 else ''} of {processor}"


def clock_of(device: str, threads: int) -> tuple[str, Callable[[], float]]:
    """Return name and function of the clock for a device [s]."""
    if device.startswith("cuda"):

        def synchronised() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

        return "wall time, synchronised", synchronised
    if threads == 1:
        return "thread CPU time", time.thread_time
    return "wall time", time.perf_counter


class Profiler:
    """Measures a plan into a samples file.

    Args:
        target: on the plan's device.
        drafter: bound to it; None times the target alone.
        plan: what is measured.
        path: samples (.parquet); one of the same plan is continued.
        further: the plan's further drafters, by kind, bound to the target.

    Raises:
        DataError: ``path`` holds samples of another plan, or is no samples file.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        plan: Plan,
        path: Path,
        further: Mapping[str, Drafter] | None = None,
    ) -> None:
        self.plan, self.path = plan, path
        self._target, self._drafter, self._further = target, drafter, further
        self._clock = clock_of(plan.device, plan.threads)[1]
        self.samples: list[dict[str, Any]] = read_samples(path, plan) if path.exists() else []

    @property
    def done(self) -> int:
        """Rounds that are finished."""
        return 1 + max((row["round"] for row in self.samples), default=-1)

    def run(self, rounds: int, on_point: Callable[[int], None] = lambda _: None) -> pd.DataFrame:
        """Measure up to ``rounds`` rounds in all and return the samples; the file grows after each."""
        import pandas as pd

        if self.done < rounds:
            timed = self._prepare(on_point)
            for number in range(self.done, rounds):
                self.samples += list(self._round(number, timed, on_point))
                write_samples(self.path, self.samples, self.plan)
        return pd.DataFrame([row for row in self.samples if row["round"] < rounds])

    @torch.inference_mode()
    def _prepare(self, on_point: Callable[[int], None]) -> list[_Timed]:
        """Build and warm up the work of every point."""
        points = self.plan.points()
        bench = Workbench(self._target, self._drafter, points, self.plan.seed, self._further)
        timed = []
        for point in points:
            work = bench.graph_work(point) if self.plan.captures(point) else bench.work(point)
            work()
            seconds = self._time(work, 1)
            timed.append(_Timed(point, work, max(1, round(_SHORTEST_SAMPLE_S / max(seconds, 1e-6)))))
            on_point(1)
        return timed

    @torch.inference_mode()
    def _round(
        self, number: int, timed: list[_Timed], on_point: Callable[[int], None]
    ) -> Iterator[dict[str, Any]]:
        order = stream(self.plan.seed, "profile", number).permutation(len(timed))
        with _no_collection():
            for place, index in enumerate(order):
                at = timed[index]
                ms = 1e3 * self._time(at.work, at.runs)
                yield {
                    "round": number,
                    "place": place,
                    "part": at.point.part,
                    "requests": at.point.requests,
                    "tokens": at.point.tokens,
                    "context": at.point.context,
                    "drafter": at.point.drafter,
                    "runs": at.runs,
                    "ms": ms,
                }
                on_point(1)

    def _time(self, work: Work, runs: int) -> float:
        start = self._clock()
        for _ in range(runs):
            work()
        return (self._clock() - start) / runs


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's collector out of the samples."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def write_samples(path: Path, samples: list[dict[str, Any]], plan: Plan) -> None:
    """Write raw samples, their plan in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(samples)
    meta = {_META: json.dumps(plan.document(), sort_keys=True).encode()}
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata(meta), temporary, compression="zstd")


def read_samples(path: Path, plan: Plan | None = None) -> list[dict[str, Any]]:
    """Return the raw samples in ``path``, one mapping a sample.

    Raises:
        DataError: no samples file, or (with ``plan``) one of another plan.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(path, "", f"no samples of a profile: {error}") from None
    kept = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
    asked = plan.document() if plan is not None else kept
    if differ := sorted(key for key in kept.keys() | asked.keys() if kept.get(key) != asked.get(key)):
        raise DataError(
            path, "", f"samples of another plan ({', '.join(differ)} differ); name another --out, or --fresh"
        )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
