"""``python -m benchmarks``: every figure of docs/performance.md, as JSON and as tables."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import closed_loop, memory, open_loop, start_up, sweeping
from benchmarks.measuring import machine
from benchmarks.tables import tables
from dspark_sim.engine.fast import is_installed

RESULTS = Path(__file__).parent / "results.json"
AZURE = Path(__file__).parents[2] / "shared" / "data" / "workloads" / "azure2023_conv.parquet"
_PATHS = ("numpy", "compiled") if is_installed() else ("numpy",)
#: (profile, path, times the hour, rate scale).
HOURS = [("h800-qwen3-4b", path, times, 1.0) for times in (1, 10) for path in _PATHS]
HOURS += [("h800", path, 1, 1.0) for path in _PATHS]
#: More than a million requests and 300 million output tokens, some twenty users at a time.
MILLION = [("h800-qwen3-4b", path, 74, 4.0) for path in _PATHS]
TEXTS = (100, 400, 1600, 6400)
PARTS = ("closed", "open", "linear", "million", "start-up", "memory", "beyond", "sweep")


def main() -> None:
    """Measure the parts that were asked for; figures of the others stay as they are in the file."""
    asked = _words()
    document: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for part in asked.parts:
        print(f"{part} ...", file=sys.stderr)
        document[part] = {"machine": machine(), "figures": _measure(part, asked)}
        asked.out.write_text(json.dumps(document, indent=1) + "\n")
    print(tables(document))


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each figure")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps of a measurement")
    parser.add_argument(
        "--users", type=_numbers, default=closed_loop.USERS, help="of the closed loop: 16,256"
    )
    parser.add_argument("--rule", action="append", choices=closed_loop.RULES, help="of the closed loop")
    parser.add_argument("--workload", type=Path, default=AZURE, help="an imported hour of arrivals")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file")
    words = parser.parse_args()
    unknown = set(words.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    return words


def _numbers(word: str) -> tuple[int, ...]:
    return tuple(map(int, word.split(",")))


def _measure(part: str, asked: argparse.Namespace) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "closed": lambda: closed_loop.measure(
            asked.rounds, asked.share, asked.users, asked.rule or tuple(closed_loop.RULES)
        ),
        "open": lambda: _serve_all(asked.workload, HOURS),
        "million": lambda: _serve_all(asked.workload, MILLION),
        "linear": lambda: open_loop.linear(asked.workload, asked.rounds) if asked.workload.is_file() else [],
        "start-up": lambda: start_up.measure(asked.rounds),
        "memory": lambda: memory.measure([n for n in TEXTS if n <= max(100, TEXTS[-1] * asked.share)]),
        "beyond": lambda: memory.beyond(max(4, int(48 * asked.share)), 128 if asked.share == 1 else 24),
        "sweep": lambda: sweeping.measure(asked.rounds),
    }
    return makers[part]()


def _serve_all(workload: Path, runs: Sequence[tuple[str, str, int, float]]) -> list[dict[str, Any]]:
    if not workload.is_file():
        print(f"{workload}: not there; the open loop is left out", file=sys.stderr)
        return []
    return [_served(workload, *one) for one in runs]


def _served(workload: Path, hw: str, path: str, times: int, scale: float) -> dict[str, Any]:
    """Serve in a process of its own, so that its peak memory is its own."""
    words = [str(workload), hw, "0", str(times), path, str(scale)]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.open_loop", *words], capture_output=True, text=True, check=True
    )
    served: dict[str, Any] = json.loads(ran.stdout)
    return served | {"times": times, "rate_scale": scale}


main()
