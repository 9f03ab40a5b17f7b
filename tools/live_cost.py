"""Predict what a step of live speculative decoding costs on this machine, and time it.

    python tools/live_cost.py --prompts prompts.jsonl --trace chat.parquet --hw cpu-2core-smollm2.yaml

The pair of the trace decodes prompts live, R at a time, on one thread, in that thread's CPU time. Every
step is compared with the profile's cost at its own batch tokens, requests and KV; steps that admit a
request are left out, because they also prefill. Tokens per second are compared with a simulation on the
same profile of what the trace holds of the prompts that ran (other answers to them): nothing of the live
run goes into it. Both sides end every text after so many tokens, so that a line sees several prompts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.model.checkpoints import load_drafter
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.live import LiveDecoder, LiveRound, LiveSettings
from dspark_sim.model.loading import load_target
from dspark_sim.model.prompts import ChatTokenizer, TokenPrompt, read_prompts
from dspark_sim.model.target import Target
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import point
from dspark_sim.schema import DraftKind
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import Trace

Row = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """A target, its drafter, and prompts in its tokens."""

    target: Target
    drafter: Drafter
    prompts: list[TokenPrompt]


@dataclass(frozen=True)
class Step:
    """One live step: what ran, what it took, what it committed."""

    requests: int
    batch_tokens: int
    kv_tokens: int
    committed: int
    measured_s: float
    prompts: frozenset[str]


def live_steps(decoder: LiveDecoder, prompts: list[TokenPrompt], samples: int) -> Iterator[Step]:
    """Decode and yield the steps that admitted nobody."""
    length = {f"{p.prompt_id}#{s}": len(p.ids) for p in prompts for s in range(samples)}
    rounds_of = decoder.run((prompt, sample) for sample in range(samples) for prompt in prompts)
    while True:
        start = time.thread_time()
        rounds = next(rounds_of, None)
        took = time.thread_time() - start
        if rounds is None:
            return
        if all(r.anchor for r in rounds):
            yield _step(rounds, length, took)


def _step(rounds: list[LiveRound], length: dict[str, int], took: float) -> Step:
    return Step(
        requests=len(rounds),
        batch_tokens=sum(1 + r.verify_len for r in rounds),
        kv_tokens=sum(length[r.request_id] + r.anchor + 1 for r in rounds),
        committed=sum(1 + r.accepted for r in rounds),
        measured_s=took,
        prompts=frozenset(r.request_id.rpartition("#")[0] for r in rounds),
    )


def compare(
    steps: list[Step],
    profile: HardwareProfile,
    *,
    kind: DraftKind,
    gamma: int,
    trace: Trace,
    policy: str,
    cut: int,
) -> Row:
    """Return measured and predicted ms a step, and measured and simulated tokens a second."""
    ran = frozenset.union(*(s.prompts for s in steps))
    same = trace.take([key in ran for key in trace.prompt_key])
    requests = max(s.requests for s in steps)
    cost = StepCost(profile, requests, requests * (1 + gamma))
    draft_s = [cost.draft_s(kind, s.requests, gamma) for s in steps]
    predicted_s = [
        cost.step_s(s.batch_tokens, s.requests, s.kv_tokens, d, False)
        for s, d in zip(steps, draft_s, strict=True)
    ]
    measured_s = sum(s.measured_s for s in steps)
    run = simulate(
        same, profile, parse_policy(policy), concurrency=requests, output_tokens=20_000, seed=0,
        max_output_tokens=cut,
    )  # fmt: skip
    live_tok_per_s = sum(s.committed for s in steps) / measured_s
    return {
        "policy": policy,
        "requests": requests,
        "steps": len(steps),
        "prompts": len(ran),
        "measured_step_ms": 1e3 * measured_s / len(steps),
        "predicted_step_ms": 1e3 * sum(predicted_s) / len(steps),
        "median_step_ratio": median(p / s.measured_s for p, s in zip(predicted_s, steps, strict=True)),
        "measured_tok_per_s": live_tok_per_s,
        "simulated_tok_per_s": point(run)["tok_per_s"],
    }


def timed(
    pair: Pair, *, trace: Trace, profile: HardwareProfile, policy: str, requests: int, steps: int, cut: int
) -> Row:
    """Decode live until ``steps`` steps of ``requests`` requests are timed, and compare them."""
    settings = LiveSettings(
        parse_policy(policy),
        profile,
        requests,
        calibration=trace.drafter(None).calibration,
        temperature=trace.meta["temperature"],
        max_new_tokens=cut,
    )
    chosen = list(islice(cycle(pair.prompts), max(8, 2 * requests)))
    decoder = LiveDecoder(pair.target, pair.drafter, settings, max(len(p.ids) for p in chosen))
    full = (s for s in live_steps(decoder, chosen, samples=1 + steps // 4) if s.requests == requests)
    kind = cast(DraftKind, pair.drafter.config.kind)
    kept = list(islice(full, steps))
    return compare(kept, profile, kind=kind, gamma=decoder.gamma, trace=trace, policy=policy, cut=cut)


def show(row: Row) -> None:
    """Print a row."""
    step = row["predicted_step_ms"] / row["measured_step_ms"] - 1
    rate = row["simulated_tok_per_s"] / row["measured_tok_per_s"] - 1
    print(
        f"{row['policy']:12} R={row['requests']:<3} step {row['measured_step_ms']:7.1f} ms, "
        f"predicted {step:+6.1%}; {row['measured_tok_per_s']:6.1f} tok/s, simulated {rate:+6.1%}",
        flush=True,
    )


def main() -> None:
    """Print one line per policy and number of requests, and write a JSON document if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--hw", required=True)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--drafter", default="smollm2-dspark-g7")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--policy", nargs="+", default=["full", "static:k=2"])
    parser.add_argument("--steps", type=int, default=60, help="steps to time per line of 4 requests or more")
    parser.add_argument("--cut", type=int, default=48, help="tokens after which a text ends on both sides")
    parser.add_argument("--out", type=Path, help="JSON document")
    ask = parser.parse_args()
    torch.set_num_threads(1)
    target = load_target(ask.target)
    prompts = ChatTokenizer(ask.target).prepare(read_prompts(ask.prompts), 300)
    pair = Pair(target, load_drafter(ask.drafter, target), prompts)
    trace, profile = read_trace(ask.trace), load_profile(ask.hw)
    cut = min(ask.cut, int(trace.meta["notes"]["max_new_tokens"]))
    rows = []
    for policy, requests in product(ask.policy, ask.requests):
        rows.append(
            timed(
                pair,
                trace=trace,
                profile=profile,
                policy=policy,
                requests=requests,
                cut=cut,
                steps=ask.steps * max(1, 4 // requests),
            )
        )
        show(rows[-1])
    if ask.out:
        ask.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
