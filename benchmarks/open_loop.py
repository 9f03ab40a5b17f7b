"""An hour of real arrivals, and a million requests: mixed prefill, KV blocks, records of every request."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.streaming import RunFiles
from dspark_sim.workload.mix import demand_of_workload, make_mix
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


def served(
    path: str, hw: str, *, requests: int | None, times: int, fast: bool, scale: float = 1.0
) -> dict[str, Any]:
    """Serve a workload, and return processor seconds of the simulation and what it came to."""
    workload = read_workload(path)
    if requests is not None:
        workload = workload.head(requests)
    workload = repeated(workload, times).scale_rate(scale)
    mix = make_mix([read_trace(TRACE)])
    profile, policy = load_profile(hw, PROFILES[hw]), parse_policy("dspark-async")
    start_s, since_s = time.thread_time(), time.perf_counter()
    demand = demand_of_workload(mix, workload, 0, None)
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(Path(folder) / "steps.parquet", Path(folder) / "requests.parquet")
        drawn_s = time.thread_time()
        with files:
            run = serve(
                mix.trace,
                demand,
                workload.arrivals,
                profile,
                policy,
                seed=0,
                serving=MIXED,
                fast=fast,
                sink=files,
            )
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
