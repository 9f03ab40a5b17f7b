"""Peak memory of a run against the size of its trace, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_CHILD = """
import json, resource, sys
from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.workload.trace_io import read_trace
trace = read_trace(sys.argv[1])
read = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
policy, world = parse_policy("dspark-async"), {"concurrency": 64, "output_tokens": 20000, "seed": 0}
simulate(trace, load_profile("h800"), policy, **world)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"anchors": int(trace.offset_Q1[-1]), "read_mib": read / 1024, "peak_mib": peak / 1024}))
"""


def measure(texts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return peak memory for synthetic traces of so many texts."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in texts:
            path = Path(folder) / f"t{count}.parquet"
            make = [sys.executable, "-m", "dspark_sim", "synth", "--like", "qwen3-4b-chat"]
            make += ["--requests", str(count), "--out", str(path)]
            if subprocess.run(make, capture_output=True, check=False).returncode:
                continue
            ran = subprocess.run([sys.executable, "-c", _CHILD, str(path)], capture_output=True, check=True)
            rows.append({"texts": count, "file_mib": path.stat().st_size / 2**20, **json.loads(ran.stdout)})
    return rows
