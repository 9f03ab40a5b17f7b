"""Draw the pictures of the README and the docs anew: `make figures`.

Each is the picture of a command that a reader can type; the command stands beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "img"
LOADS = "1,2,4,8,16,32,64,128,256"

#: picture -> (file of the result folder, command)
FIGURES = {
    "frontier-math-h800.png": (
        "frontier.png",
        ["sweep", "--trace", "math.parquet", "--hw", "h800.yaml", "--concurrency", LOADS, "--seeds", "3"],
    ),
    "frontier-draft-length-h200.png": (
        "frontier.png",
        [
            *("sweep", "--trace", "qwen3-4b-chat.synth.parquet", "--hw", "h200-qwen3-8b.yaml"),
            *("--concurrency", LOADS, "--seeds", "3", "--drafter", "dspark", "--policy", "off"),
            *("--policy", "static:k=3", "--policy", "dspark-async", "--policy", "draft-length"),
        ],
    ),
    "load-cliff-b300.png": (
        "load.png",
        [
            *("sweep", "--trace", "qwen3-4b-chat.synth.parquet", "--hw", "b300-tp4-dsv4-flash.yaml"),
            *("--concurrency", LOADS, "--seeds", "3", "--drafter", "dspark"),
        ],
    ),
    "served-qwen3-4b-h800.png": (
        "latency.png",
        [
            *(
                "run",
                "--trace",
                "qwen3-4b-chat.synth",
                "--hw",
                "h800-qwen3-4b",
                "--arrivals",
                "poisson:rate=1",
            ),
            *("--rate-scale", "20,40,55,65,75", "--requests", "2000", "--seeds", "4", "--policy", "off"),
            *("--policy", "static:k=3", "--policy", "dspark-async"),
            *("--slo", "tpot_p99=20ms", "--slo", "ttft_p99=500ms"),
        ],
    ),
}


def main() -> None:
    """Run every command into a temporary folder, and keep its picture."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, (picture, arguments) in FIGURES.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "dspark_sim", *arguments, "--out", folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shutil.copyfile(Path(folder) / picture, IMAGES / name)
        print(f"docs/img/{name}")


if __name__ == "__main__":
    main()
