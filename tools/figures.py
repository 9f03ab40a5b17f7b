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

#: picture -> (file of the result folder, arguments of ``dspark-sim sweep``)
FIGURES = {
    "frontier-math-h800.png": (
        "frontier.png",
        ["--trace", "math.parquet", "--hw", "h800.yaml", "--concurrency", LOADS, "--seeds", "3"],
    ),
    "frontier-draft-length-h200.png": (
        "frontier.png",
        [
            *("--trace", "qwen3-4b-chat.synth.parquet", "--hw", "h200-qwen3-8b.yaml"),
            *("--concurrency", LOADS, "--seeds", "3", "--drafter", "dspark", "--policy", "off"),
            *("--policy", "static:k=3", "--policy", "dspark-async", "--policy", "draft-length"),
        ],
    ),
    "load-cliff-b300.png": (
        "load.png",
        [
            *("--trace", "qwen3-4b-chat.synth.parquet", "--hw", "b300-tp4-dsv4-flash.yaml"),
            *("--concurrency", LOADS, "--seeds", "3", "--drafter", "dspark"),
        ],
    ),
}


def main() -> None:
    """Run every command into a temporary folder, and keep its picture."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, (picture, arguments) in FIGURES.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "dspark_sim", "sweep", *arguments, "--out", folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shutil.copyfile(Path(folder) / picture, IMAGES / name)
        print(f"docs/img/{name}")


if __name__ == "__main__":
    main()
