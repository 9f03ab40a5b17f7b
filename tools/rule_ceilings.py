"""Ceilings of the leads of docs/beat-the-paper.md, before anything is built.

    python tools/rule_ceilings.py recycle --trace chat --profile h100-qwen3-8b --loads 16 64 256

A plain loop over a dense trace (prompts of the tuning half), without lag and with each step's best budget,
so that differences are the lead's own:

    recycle   keep tails of blocks after a coupled bonus; drafts for the others only
    who       draft for the n requests of best past acceptance only, n and block length chosen each step
    ends      know where every text ends, and verify nothing past it
    history   no loop: does a request's history add to what the head says of position 1?
    users     the simulator: p99 of time per token where users who are behind are verified first
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.policies.selection import expected_tokens_M, top_k
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.calibration import auc, sigmoid
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import Trace

_STEPS, _WARM_UP, _SEEDS = 500, 100, 2
_FADE = 0.97


@dataclass
class Step:
    """What a plan may look at, and what it decides.

    fresh_RG, tail_RG: survivals of a new block, and of a kept tail (0 where there is none).
    tail_R: tokens of the kept tail. left_R: tokens to the end of the text.
    past_R: acceptance of position 1 in the past of the request. rest_s_M: cost without drafting [s].
    keep_R, k: who does without a draft, and the block length of the others. verify_len_R.
    """

    fresh_RG: FloatArray
    tail_RG: FloatArray
    tail_R: IntArray
    left_R: IntArray
    past_R: FloatArray
    rest_s_M: FloatArray
    draft_s: Callable[[int, int], float]
    keep_R: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    k: int = 0
    verify_len_R: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def plan(self, lengths: Iterable[int], keeps: Iterable[np.ndarray], undrafted: FloatArray | None) -> None:
        """Take the keep mask, block length and budget of most expected tokens a second.

        ``undrafted``: survivals of those that keep; None: of their tails.
        """
        place, best = np.arange(self.fresh_RG.shape[1]), 0.0
        kept_RG = self.tail_RG if undrafted is None else undrafted
        for keep_R in keeps:
            count = int(np.count_nonzero(~keep_R))
            for k in lengths:
                survival_RG = np.where(keep_R[:, None], kept_RG, self.fresh_RG * (place < k))
                most = int(np.count_nonzero(survival_RG))
                cost_M = self.rest_s_M[: most + 1] + self.draft_s(count, k)
                theta_M = expected_tokens_M(survival_RG)[: most + 1] / cost_M
                if theta_M.max() > best:
                    best, budget = float(theta_M.max()), int(theta_M.argmax())
                    self.keep_R, self.k = keep_R, k
                    self.verify_len_R = top_k(survival_RG, budget)


Plan = Callable[[Step], None]


def plain(lengths: Iterable[int]) -> Plan:
    """No lead: one draft for all."""
    return lambda step: step.plan(lengths, [np.zeros(len(step.tail_R), dtype=bool)], None)


def recycling(lengths: Iterable[int], least: float) -> Plan:
    """Tails whose first survival is ``least`` or more are kept, or none."""

    def plan(step: Step) -> None:
        good_R = (step.tail_R > 0) & (step.tail_RG[:, 0] >= least)
        step.plan(lengths, [np.zeros_like(good_R), good_R], None)

    return plan


def selective(lengths: Iterable[int]) -> Plan:
    """Eighths of the batch, best past acceptance first, draft."""

    def plan(step: Step) -> None:
        running = len(step.tail_R)
        order = np.argsort(-step.past_R, kind="stable")
        keeps = []
        for eighth in range(1, 9):
            keep_R = np.ones(running, dtype=bool)
            keep_R[order[: round(running * eighth / 8)]] = False
            keeps.append(keep_R)
        step.plan(lengths, keeps, np.zeros_like(step.fresh_RG))

    return plan


def knowing_ends(lengths: Iterable[int]) -> Plan:
    """Tokens past the end of a text are known to be worthless."""

    def plan(step: Step) -> None:
        step.fresh_RG = step.fresh_RG * (np.arange(step.fresh_RG.shape[1]) < step.left_R[:, None] - 1)
        plain(lengths)(step)

    return plan


def speed(trace: Trace, hw: HardwareProfile, load: int, plan: Plan, seed: int) -> tuple[float, float]:
    """Return tok/s, and the share of requests that drafted."""
    head, random = trace.drafter(), np.random.default_rng(seed)
    gamma, kind, accepted_N = head.gamma, head.kind, head.accepted_N.astype(np.int64)
    confidence_NG, survival_NG = head.confidence_NG(), head.survival_NG()
    first_Q, last_Q = trace.offset_Q1[:-1], trace.offset_Q1[1:] - 1
    texts, place = np.flatnonzero(last_Q > first_Q), np.arange(gamma)
    running = min(load, hw.max_num_seqs or load)
    cost = StepCost(hw, running, running * (1 + gamma))
    text_R = random.choice(texts, running)
    row_R = first_Q[text_R] + (random.random(running) * (last_Q - first_Q)[text_R]).astype(np.int64)
    origin_R, offset_R, tail_R = row_R.copy(), np.zeros(running, np.int64), np.zeros(running, np.int64)
    hits_R, tests_R, mean = np.zeros(running), np.zeros(running), 0.5
    time_s = tokens = drafted = 0.0
    for n in range(_STEPS):
        kv = int((trace.prompt_tokens_Q[text_R] + row_R - first_Q[text_R] + 1).sum())
        at_RG = np.minimum(offset_R[:, None] + place, gamma - 1)
        in_tail_RG = np.where(place < tail_R[:, None], confidence_NG[origin_R[:, None], at_RG], 0.0)
        step = Step(
            survival_NG[row_R],
            np.cumprod(in_tail_RG, axis=1, dtype=np.float64),
            tail_R,
            last_Q[text_R] - row_R,
            (hits_R + 6 * mean) / (tests_R + 6),
            cost.step_s_M(running, kv, running * gamma, 0.0, False),
            lambda count, k: cost.draft_s(kind, count, k) if count and k else 0.0,
        )
        plan(step)
        keep_R, length_R, count = step.keep_R, step.verify_len_R, int(np.count_nonzero(~step.keep_R))
        available_R = np.clip(np.minimum(accepted_N[origin_R] - offset_R, tail_R), 0, None)
        run_R = np.where(keep_R, available_R, accepted_N[row_R])
        commit_R = np.minimum(np.minimum(length_R, run_R) + 1, step.left_R)
        tested_R = (length_R > 0) & ~keep_R
        hits_R = np.where(tested_R, _FADE * hits_R + (run_R > 0), hits_R)
        tests_R = np.where(tested_R, _FADE * tests_R + 1, tests_R)
        mean += 0.02 * (float((run_R > 0)[tested_R].mean()) - mean) if tested_R.any() else 0.0
        if n >= _WARM_UP:
            time_s += float(step.rest_s_M[length_R.sum()]) + step.draft_s(count, step.k)
            tokens += float(commit_R.sum())
            drafted += count * (step.k > 0) / running
        origin_R = np.where(keep_R, origin_R, row_R)
        offset_R = np.where(keep_R, offset_R, 0) + length_R + 1
        block_R = np.where(keep_R, offset_R - length_R - 1 + tail_R, step.k)
        tail_R = np.where(run_R > length_R, np.maximum(block_R - offset_R, 0), 0)
        row_R = row_R + commit_R
        done = np.flatnonzero(row_R >= last_Q[text_R])
        text_R[done] = random.choice(texts, done.size)
        row_R[done] = first_Q[text_R[done]]
        tail_R[done], hits_R[done], tests_R[done] = 0, 0.0, 0.0
    return tokens / time_s, drafted / (_STEPS - _WARM_UP)


def compare(args: argparse.Namespace, plans: dict[str, Plan]) -> None:
    """Print the gain of every plan over the first."""
    trace, hw = tuning_half(args.trace), load_profile(args.profile)
    for load in args.loads:
        found = {
            name: np.mean([speed(trace, hw, load, plan, seed) for seed in range(_SEEDS)], axis=0)
            for name, plan in plans.items()
        }
        base = next(iter(found.values()))[0]
        words = [f"{name} {tok / base - 1:+.1%} ({share:.0%} draft)" for name, (tok, share) in found.items()]
        print(f"{args.trace} x {args.profile} x {load}: {'; '.join(words)}")


def history(args: argparse.Namespace) -> None:
    """Print AUC and log loss of position 1 by logistic regression on even texts, scored on odd ones."""
    trace = tuning_half(args.trace)
    rows = np.array(list(_rounds(trace, verified=2)))
    hit, odd = rows[:, 1] > 0, rows[:, 0] % 2 == 1
    print(f"{args.trace}: {len(rows):,} rounds, position 1 accepted in {hit.mean():.3f}")
    columns = {
        "head": [2],
        "history": [3],
        "head and history": [2, 3],
        "all and the last round": [2, 3, 4, 5],
    }
    for name, chosen in columns.items():
        inputs = np.column_stack([np.ones(len(rows)), rows[:, chosen]])
        told = sigmoid(inputs[odd] @ _logistic(inputs[~odd], hit[~odd].astype(float)))
        loss = -np.where(hit[odd], np.log(told), np.log1p(-told)).mean()
        print(f"  {name}: AUC {auc(told, hit[odd]):.3f}, log loss {loss:.4f}")


def _rounds(trace: Trace, verified: int) -> Iterable[tuple[float, ...]]:
    """Yield text, accepted, logit of c_1, logit of past acceptance, last accepted, whether the bonus hit."""
    head = trace.drafter()
    confidence_N, accepted_N = head.confidence_NG()[:, 0], head.accepted_N.astype(int)
    mean = float((accepted_N > 0).mean())
    for text in range(len(trace.output_tokens_Q)):
        at, last = int(trace.offset_Q1[text]), int(trace.offset_Q1[text + 1]) - 1
        hits = tests = before = bonus = 0.0
        while at < last:
            past = (hits + 2 * mean) / (tests + 2)
            accepted = int(accepted_N[at])
            yield text, accepted, _logit(confidence_N[at]), _logit(past), before, bonus
            hits, tests = _FADE * hits + (accepted > 0), _FADE * tests + 1
            before, bonus = min(accepted, verified), float(accepted > verified)
            at += int(before) + 1


def _logit(p: float) -> float:
    p = min(max(p, 1e-4), 1 - 1e-4)
    return float(np.log(p / (1 - p)))


def _logistic(inputs: FloatArray, hit: FloatArray) -> FloatArray:
    weights = np.zeros(inputs.shape[1])
    for _ in range(20):
        told = sigmoid(inputs @ weights)
        curvature = (inputs * (told * (1 - told))[:, None]).T @ inputs + 1e-6 * np.eye(len(weights))
        weights = weights + np.linalg.solve(curvature, inputs.T @ (hit - told))
    return weights


def users(args: argparse.Namespace) -> None:
    """Print throughput and p99 of time per token of texts of 50 tokens and more."""
    trace, hw = tuning_half(args.trace), load_profile(args.profile)
    file = Path(__file__).with_name("late_first.py")
    late = [f"{file}:late-first,power={power}" for power in (1.0, 3.0, 6.0)]
    for load in args.loads:
        for spec in ("dspark-async", *late, "draft-length"):
            speeds, slowest_ms = [], []
            for seed in range(_SEEDS):
                policy = parse_policy(spec)
                run = simulate(trace, hw, policy, concurrency=load, output_tokens=500 * load, seed=seed)
                log = run.requests
                each_ms = 1e3 * (log.end_s - log.start_s) / np.maximum(log.output_tokens - 1, 1)
                speeds.append(tok_per_s(run))
                slowest_ms.append(np.quantile(each_ms[log.output_tokens >= 50], 0.99))
            name, p99 = spec.rpartition(":")[2], np.mean(slowest_ms)
            print(f"{args.trace} x {load}, {name}: {np.mean(speeds):,.0f} tok/s, p99 {p99:.2f} ms")


def tuning_half(name: str) -> Trace:
    """Return the prompts that tune."""
    return read_trace(f"{name}.parquet").share_of_prompts(0, 2)


def main() -> None:
    """Run one lead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("lead", choices=["recycle", "who", "ends", "history", "users"])
    parser.add_argument("--trace", default="chat")
    parser.add_argument("--profile", default="h100-qwen3-8b")
    parser.add_argument("--loads", type=int, nargs="+", default=[16, 64, 256])
    args = parser.parse_args()
    any_length, whole = range(8), [7]
    plans: dict[str, dict[str, Plan]] = {
        "recycle": {
            "whole blocks": plain(whole),
            "and tails": recycling(whole, 0.0),
            "and good tails": recycling(whole, 0.6),
            "any length": plain(any_length),
            "any length and tails": recycling(any_length, 0.0),
        },
        "who": {"any length": plain(any_length), "of some requests": selective(any_length)},
        "ends": {"whole blocks": plain(whole), "ends known": knowing_ends(whole)},
    }
    if args.lead in ("history", "users"):
        {"history": history, "users": users}[args.lead](args)
    else:
        compare(args, plans[args.lead])


if __name__ == "__main__":
    main()
