"""Engine steps a second of a closed loop, against the raw loop: numpy path, compiled path, full metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.measuring import Work, interleaved
from benchmarks.raw_loop import RawLoop
from dspark_sim.engine.fast import is_installed
from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import point
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import Trace

#: (trace, profile, does the raw loop replay it on the cost that the engine charges).
CASES = (("qwen3-4b-chat.synth", "b300-tp4-dsv4-flash"), ("chat", "b300-tp4-dsv4-flash"))
RULES = {"static": "static:k=3", "dspark-async": "dspark-async"}
USERS = (16, 64, 256, 1024)
#: Steps of one measurement, by path; long enough that setting up does not show.
STEPS = {"numpy": 6_000, "compiled": 40_000, "raw": 4_000}


def measure(rounds: int, share: float, users: Sequence[int], rules: Sequence[str]) -> list[dict[str, Any]]:
    """Return the figures of every trace, rule and number of users.

    Args:
        rounds: measurements of each.
        share: of the steps above.
        users: numbers of users.
        rules: of :data:`RULES`.
    """
    figures = []
    for trace_name, hw in CASES:
        trace, profile = read_trace(trace_name), load_profile(hw, {"max_num_seqs": str(max(USERS))})
        for rule in rules:
            for each in users:
                figures += _one(trace, profile, rule, each, rounds, share)
    return figures


def _one(
    trace: Trace, profile: HardwareProfile, rule: str, users: int, rounds: int, share: float
) -> list[dict[str, Any]]:
    raw = RawLoop(trace, profile, rule, users)

    def run_raw() -> int:
        steps = max(200, int(STEPS["raw"] * share))
        raw.run(steps)
        return steps

    run_raw()
    per_step = raw.tokens / raw.steps
    works: dict[str, Work] = {"raw": run_raw}
    seen: dict[str, dict[str, Any]] = {}
    for path in ("numpy", "compiled") if is_installed() else ("numpy",):
        tokens = int(STEPS[path] * share * per_step)
        works[path] = _engine(trace, profile, RULES[rule], users, tokens, path == "compiled", seen)
    rows = []
    for path, figure in interleaved(works, "raw", rounds).items():
        row = {"trace": trace.name, "rule": rule, "users": users, "path": path, **figure}
        row["steps_per_s"] = row.pop("units_per_s")
        row["request_steps_per_s"] = row["steps_per_s"] * users
        tokens_by_step = seen[path]["tokens"] / seen[path]["steps"] if path in seen else per_step
        row["tokens_per_s"] = row["steps_per_s"] * tokens_by_step
        rows.append(row)
    return rows


def _engine(
    trace: Trace,
    profile: HardwareProfile,
    spec: str,
    users: int,
    tokens: int,
    fast: bool,
    seen: dict[str, dict[str, Any]],
) -> Work:
    policy = parse_policy(spec)

    def run() -> int:
        log = simulate(
            trace,
            profile,
            policy,
            concurrency=users,
            output_tokens=tokens,
            seed=0,
            drafter="dspark",
            fast=fast,
        )
        measured = point(log)
        seen["compiled" if fast else "numpy"] = {
            "tokens": measured["output_tokens"],
            "steps": measured["steps"],
        }
        return int(measured["steps"]) + int(log.meta["warmup_steps"])

    return run
