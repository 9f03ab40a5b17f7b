"""The cells of docs/beat-the-paper.md: a rule against `dspark-async` on the same requests.

    python tools/beat_the_paper.py --policy draft-length --half report --out cells.json

Traces x profiles x loads of one half of the split; a replicate is a disjoint share of the prompts with a
seed of its own. Prints the mean gain with Student's interval over replicates, and the worst cells.
`--policy dspark-async@3` cuts every block to three tokens: that length, chosen before the run. With several
policies the last lines set the first against the best of `dspark-async` and the others in hindsight, cell
by cell.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.files import write_text
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.sensitivity import World, axis
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import Trace

BASELINE = "dspark-async"
LOADS = (16, 32, 64, 128, 256)
REPLICATES = 8
TRACES = {
    "tune": ("chat", "math", "qwen3-4b-chat.synth"),
    "report": (
        *("chat", "math", "code", "qwen3-4b-chat.synth"),
        *("qwen3-4b-code.synth", "qwen3-4b-math.synth", "dsv4-pro.synth"),
    ),
}
PROFILES = {
    "tune": (
        *("gb10x2-inkling", "trtllm-additive", "h100-llama-3.1-8b", "h100-qwen3-4b", "h100-qwen3-8b"),
        "h200-qwen3-14b",
    ),
    "report": (
        *("b300-tp4-dsv4-flash", "cpu-2core-smollm2", "h100-llama-3.1-70b", "h100-qwen3-14b"),
        *("h200-qwen3-4b", "h200-qwen3-8b"),
    ),
}
#: Student's t, 97.5%, by degrees of freedom.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}


def share(trace: Trace, half: str, replicate: int) -> Trace:
    """Return the prompts of one replicate: even shares tune, odd ones report."""
    return trace.share_of_prompts(2 * replicate + (half == "report"), 2 * REPLICATES)


def cells(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield each cell with the throughputs of every policy, one a replicate."""
    specs, known = [BASELINE, *args.policy], known_speeds(args.known)
    for name in args.traces or TRACES[args.half]:
        trace = read_trace(f"{name}.parquet")
        parts = [share(trace, args.half, n) for n in range(args.replicates)]
        for profile in args.profiles or PROFILES[args.half]:
            hw = load_profile(profile)
            for load in args.loads:
                size = {"load": load, "each": args.tokens_per_user}
                there = known.get((name, profile, load), {})
                speeds = {
                    spec: there[spec]
                    if spec in there and spec not in args.policy
                    else [speed(part, hw, spec, seed=n, **size) for n, part in enumerate(parts)]
                    for spec in dict.fromkeys([*specs, *there])
                }
                yield {"trace": name, "profile": profile, "load": load, "tok_per_s": speeds}


def known_speeds(files: Sequence[Path]) -> dict[tuple[str, str, int], dict[str, list[float]]]:
    """Return by cell what earlier runs wrote: points are deterministic, once is enough."""
    found = [cell for file in files for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]]
    return {(cell["trace"], cell["profile"], cell["load"]): cell["tok_per_s"] for cell in found}


def speed(part: Trace, hw: HardwareProfile, spec: str, *, load: int, each: int, seed: int) -> float:
    """Return the throughput of a policy [tok/s]; ``POLICY@k``: with blocks cut to k tokens."""
    spec, _, length = spec.partition("@")
    head = part.drafter()
    world = World(replace(part, drafters={head.name: head}), hw)
    trace = axis("gamma").change(world, int(length or head.gamma)).trace if length else part
    policy = parse_policy(spec)
    return tok_per_s(
        simulate(trace, hw, policy, concurrency=load, output_tokens=each * load, seed=seed)
    )  # fmt: skip


def gain_NC(found: list[dict[str, Any]], spec: str, others: Sequence[str] = ()) -> np.ndarray:
    """Return the relative gain by replicate and cell, over the best mean of the baseline and ``others``."""
    gains = []
    for cell in found:
        speeds = {name: np.array(values) for name, values in cell["tok_per_s"].items()}
        best = max((BASELINE, *others), key=lambda name: speeds[name].mean())
        gains.append(speeds[spec] / speeds[best] - 1.0)
    return np.array(gains).T


def interval(values_N: np.ndarray) -> tuple[float, float]:
    """Return mean and half-width of Student's 95% interval."""
    count = len(values_N)
    wide = _T[count - 1] * values_N.std(ddof=1) / np.sqrt(count) if count > 1 else float("nan")
    return float(values_N.mean()), float(wide)


def summary(found: list[dict[str, Any]], spec: str) -> str:
    """Return the mean gain, gains by profile, trace and load, and the worst cells, as text."""
    gains = gain_NC(found, spec)
    mean, wide = interval(gains.mean(axis=1))
    lines = [f"{spec}: {len(found)} cells, mean gain {mean:+.2%} +- {wide:.2%}"]
    for key in ("profile", "trace", "load"):
        for value in dict.fromkeys(cell[key] for cell in found):
            chosen = [cell[key] == value for cell in found]
            m, w = interval(gains[:, chosen].mean(axis=1))
            lines.append(f"  {key} {value}: {m:+.2%} +- {w:.2%}")
    order = np.argsort(gains.mean(axis=0))
    lines.append("  worst cells:")
    for at in order[:8]:
        cell = found[at]
        m, w = interval(gains[:, at])
        lines.append(f"    {cell['trace']} x {cell['profile']} x {cell['load']}: {m:+.2%} +- {w:.2%}")
    return "\n".join(lines)


def main() -> None:
    """Run the cells, print what they say, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", action="append", required=True)
    parser.add_argument("--half", choices=["tune", "report"], required=True)
    parser.add_argument("--replicates", type=int, default=REPLICATES)
    parser.add_argument("--tokens-per-user", type=int, default=200)
    parser.add_argument("--loads", type=int, nargs="+", default=list(LOADS))
    parser.add_argument("--traces", nargs="+")
    parser.add_argument("--profiles", nargs="+")
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="what --out wrote earlier")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found, start = [], time.perf_counter()
    for cell in cells(args):
        found.append(cell)
        print(f"\r{len(found)} cells, {time.perf_counter() - start:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    for spec in args.policy:
        print(summary(found, spec))
    if len(args.policy) > 1:
        gains = gain_NC(found, args.policy[0], args.policy[1:])
        mean, wide = interval(gains.mean(axis=1))
        worst = gains.mean(axis=0).min()
        print(
            f"{args.policy[0]} against the best of each cell: {mean:+.2%} +- {wide:.2%}, worst {worst:+.2%}"
        )
    if args.out:
        write_text(args.out, json.dumps({"half": args.half, "cells": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
