"""Peak memory of a run against the size of its trace, a process each; traces that do not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.workload.trace_io import read_trace, write_parts
from dspark_sim.workload.traces import Trace

_CHILD = """
import json, resource, sys, time
from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import point
from dspark_sim.workload.trace_io import read_trace

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

path, memory, allowed_mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
policy, world = parse_policy("dspark-async"), {"concurrency": 64, "output_tokens": 20000, "seed": 0}
profile = load_profile("h800")
simulate(read_trace("chat", 1 << 60), profile, policy, **world)  # all is imported
if allowed_mib:
    resource.setrlimit(resource.RLIMIT_DATA, ((status("VmData") << 10) + (allowed_mib << 20),) * 2)
start_s = time.process_time()
trace = read_trace(path, memory)
read, read_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time() - start_s
run = simulate(trace, profile, policy, **world)
figures = {"anchors": int(trace.offset_Q1[-1]), "read_mib": read / 1024, "read_s": read_s}
figures["run_s"] = time.process_time() - start_s - read_s
figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
figures["private_mib"] = status("RssAnon") / 1024
figures["tok_per_s"] = point(run)["tok_per_s"]
print(json.dumps(figures))
"""
HELD, MAPPED = 1 << 60, 0


def measure(texts: Sequence[int]) -> list[dict[str, Any]]:
    """Return peak memory for synthetic traces of so many texts."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in texts:
            path = Path(folder) / f"t{count}.parquet"
            make = [sys.executable, "-m", "dspark_sim", "synth", "--like", "qwen3-4b-chat"]
            make += ["--requests", str(count), "--out", str(path)]
            if subprocess.run(make, capture_output=True, check=False).returncode:
                continue
            figures = _child(path, HELD)
            assert figures is not None
            rows.append({"texts": count, "file_mib": path.stat().st_size / 2**20, **figures})
    return rows


def beyond(times: int, allowed_mib: int) -> dict[str, Any]:
    """Return figures of a trace under a limit of private memory that holding it would break.

    Args:
        times: how often the texts of the shipped synthetic trace are in it, under names of their own.
        allowed_mib: what the process may allocate once all is imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        write_parts(path, _repeated(read_trace("qwen3-4b-chat.synth"), times))
        environment = {"XDG_CACHE_HOME": folder}
        figures = _child(path, MAPPED, allowed_mib, environment)
        assert figures is not None, "a mapped trace does not fit"
        figures |= {
            "texts": times * 400, "file_mib": path.stat().st_size / 2**20, "allowed_mib": allowed_mib
        }  # fmt: skip
        files = list(Path(folder).glob("dspark-sim/traces/*/*.npy"))
        figures["disk_mib"] = sum(file.stat().st_size for file in files) / 2**20
        again = _child(path, MAPPED, allowed_mib, environment)
        assert again is not None
        figures["again_s"] = again["read_s"]
        figures["held_fits"] = _child(path, HELD, allowed_mib, environment) is not None
    return figures


def _repeated(trace: Trace, times: int) -> Iterator[Trace]:
    """Yield one drafter of a trace over and over; logits are coarse, so that they are compressed quickly."""
    own = trace.drafter("dspark")
    coupled, free = (np.rint(own.logits_NG(which) * 4).astype(np.float16) / 4 for which in (False, True))
    own = replace(own, confidence_logit_NG=coupled, confidence_logit_free_NG=free)
    meta = trace.meta | {"drafters": {own.name: trace.meta["drafters"][own.name]}}
    for i in range(times):
        names = [f"{i}-{name}" for name in trace.request_id]
        yield replace(trace, meta=meta, request_id=names, drafters={own.name: own})


def _child(
    path: Path, memory: int, allowed_mib: int = 0, environment: dict[str, str] | None = None
) -> dict[str, Any] | None:
    """Return the figures of a process; None if its memory did not suffice."""
    words = [str(path), str(memory), str(allowed_mib)]
    # Arrow's own allocator takes address space by the gigabyte.
    around = (
        os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"} | (environment or {})
    )
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, *words], capture_output=True, check=False, text=True, env=around
    )
    if ran.returncode:
        assert "MemoryError" in ran.stderr or "malloc" in ran.stderr, ran.stderr
        return None
    figures: dict[str, Any] = json.loads(ran.stdout)
    return figures
