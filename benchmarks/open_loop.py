"""An hour of real arrivals, and a million requests: mixed prefill, KV blocks, records of every request."""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Work, median_and_spread
from dspark_sim.engine.fast import is_installed
from dspark_sim.engine.recorder import Sink
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.policies.base import Policy
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.streaming import RunFiles
from dspark_sim.schema import RunLog
from dspark_sim.workload.mix import Demand, Mix, demand_of_workload, make_mix
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.workloads import Workload, read_workload

TRACE = "qwen3-4b-chat.synth"
#: The pair of the trace on the hardware of the issue, with the KV of one such GPU; and that hardware's own
#: profile, a much larger model, with as many blocks.
PROFILES: dict[str, dict[str, str]] = {
    "h800-qwen3-4b": {},
    "h800": {"kv.num_blocks": "60000", "kv.block_tokens": "16"},
}
MIXED = Serving(prefill="mixed")
#: Requests that are compared with ten times as many, by path, and how much faster than in the hour they come.
LINEAR = {"numpy": 1_000, "compiled": 10_000}
LINEAR_SCALE = 4.0


def repeated(workload: Workload, times: int) -> Workload:
    """Return ``workload`` over and over, each pass behind the last: more requests at the same load."""
    gap_s = float(np.diff(workload.arrivals).mean())
    span_s = float(workload.arrivals[-1]) + gap_s
    shifts = np.repeat(np.arange(times) * span_s, len(workload))

    return replace(
        workload,
        arrival_s_Q=np.tile(workload.arrivals, times) + shifts,
        prompt_tokens_Q=np.tile(workload.prompt_tokens_Q, times),
        output_tokens_Q=np.tile(workload.output_tokens_Q, times),
        cached_prefix_tokens_Q=None,
        domain_Q=None,
        domains=(),
    )


@dataclass(frozen=True)
class World:
    """All that one service needs, laid out."""

    mix: Mix
    profile: HardwareProfile
    policy: Policy

    @classmethod
    def of(cls, hw: str) -> World:
        """Return the world of a profile."""
        return cls(
            make_mix([read_trace(TRACE)]), load_profile(hw, PROFILES[hw]), parse_policy("dspark-async")
        )

    def serve(self, workload: Workload, demand: Demand, *, fast: bool, sink: Sink) -> RunLog:
        """Serve a workload."""
        return serve(
            self.mix.trace, demand, workload.arrivals, self.profile, self.policy,
            seed=0, serving=MIXED, fast=fast, sink=sink,
        )  # fmt: skip


def served(
    path: str, hw: str, *, requests: int | None, times: int, fast: bool, scale: float = 1.0
) -> dict[str, Any]:
    """Serve a workload, and return processor seconds of the simulation and what it came to."""
    workload = read_workload(path)
    if requests is not None:
        workload = workload.head(requests)
    workload = repeated(workload, times).scale_rate(scale)
    world = World.of(hw)
    start_s, since_s = time.thread_time(), time.perf_counter()
    demand = demand_of_workload(world.mix, workload, 0, None)
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(Path(folder) / "steps.parquet", Path(folder) / "requests.parquet")
        drawn_s = time.thread_time()
        with files:
            run = world.serve(workload, demand, fast=fast, sink=files)
            simulated_s = time.thread_time()
        figures = files.figures(run)
    ended_s = time.thread_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "hw": hw,
        "path": "compiled" if fast else "numpy",
        "requests": figures["requests"],
        "output_tokens": figures["output_tokens"],
        "steps": figures["steps"],
        "mean_users": figures["mean_users"],
        "preemptions": figures["preemptions"],
        "draw_s": drawn_s - start_s,
        "simulate_s": simulated_s - drawn_s,
        "write_s": ended_s - simulated_s,
        "total_s": ended_s - start_s,
        "process_s": time.process_time(),
        "wall_s": time.perf_counter() - since_s,
        "peak_mib": peak / 1024,
    }


def linear(path: Path, rounds: int) -> list[dict[str, Any]]:
    """Return how many times as long ten times the requests take at the same load, by path.

    Requests of the hour, and the same ten times over, served in turns by one process. What a process does
    once (tables, the compiled step) is done before and stands beside: it does not grow with the requests.
    """
    rows = []
    for name in ("numpy", "compiled") if is_installed() else ("numpy",):
        fast, head = name == "compiled", read_workload(path).head(LINEAR[name]).scale_rate(LINEAR_SCALE)
        start_s = time.thread_time()
        world = World.of("h800-qwen3-4b")
        works = {str(times): _work(world, repeated(head, times), fast) for times in (1, 10)}
        _work(world, head.head(2), fast)()
        once_s = time.thread_time() - start_s
        taken: dict[str, list[float]] = {times: [] for times in works}
        for _ in range(rounds):
            for times, work in works.items():
                begun_s = time.thread_time()
                steps = work()
                taken[times].append(time.thread_time() - begun_s)
        ratios = [ten / one for one, ten in zip(taken["1"], taken["10"], strict=True)]
        rows.append(
            {
                "path": name,
                "requests": len(head),
                "steps_of_ten": steps,
                "once_s": once_s,
                "one_s": statistics.median(taken["1"]),
                "ten_s": statistics.median(taken["10"]),
                **{f"ratio_{k}": v for k, v in median_and_spread(ratios).items()},
            }
        )
    return rows


def _work(world: World, workload: Workload, fast: bool) -> Work:
    demand = demand_of_workload(world.mix, workload, 0, None)

    def work() -> int:
        with tempfile.TemporaryDirectory() as folder:
            files = RunFiles(Path(folder) / "steps.parquet", Path(folder) / "requests.parquet")
            with files:
                world.serve(workload, demand, fast=fast, sink=files)
        return files.steps

    return work


if __name__ == "__main__":
    import json

    path, hw, requests, times, fast, scale = sys.argv[1:]
    answer = served(
        path,
        hw,
        requests=int(requests) or None,
        times=int(times),
        fast=fast == "compiled",
        scale=float(scale),
    )
    print(json.dumps(answer))
