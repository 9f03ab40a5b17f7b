"""What a command costs before it does anything, and a minimal run."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.measuring import median_and_spread

_RUN = ["run", "--trace", "qwen3-4b-chat.synth", "--hw", "h800"]
COMMANDS = {
    "dspark-sim --help": ["--help"],
    "dspark-sim run (bare)": ["run", "--trace", "qwen3-4b-chat.synth", "--hw", "h800"],
    "dspark-sim run --fast (compiled before)": [
        "run",
        "--trace",
        "qwen3-4b-chat.synth",
        "--hw",
        "h800",
        "--fast",
    ],
}


def measure(rounds: int) -> list[dict[str, Any]]:
    """Return processor seconds, user and system, of each command in a fresh process."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, words in COMMANDS.items():
            taken = []
            for _ in range(rounds + 1):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-m", "dspark_sim", *words]
                ran = subprocess.run(command, cwd=folder, capture_output=True, check=False)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
                if ran.returncode:
                    break
            else:
                rows.append(
                    {"command": name, **{f"cpu_s_{k}": v for k, v in median_and_spread(taken[1:]).items()}}
                )
    return rows
