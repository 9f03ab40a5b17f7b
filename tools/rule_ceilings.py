"""Ceilings of the leads of docs/beat-the-paper.md, before anything is built.

    python tools/rule_ceilings.py recycle --trace chat --profile h100-qwen3-8b --loads 16 64 256

A plain loop over a dense trace (prompts of the tuning half), without lag and with each step's best budget,
so that differences are the lead's own:

    recycle   keep tails of blocks after a coupled bonus; drafts for the others only
    who       draft for the n requests of best past acceptance only, n and block length chosen each step
    ends      know where every text ends, and verify nothing past it
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


class Loop:
    """A closed loop of rounds. Of each request: text, row of its anchor, the block it drafted last (row of
    that block's anchor, tokens of it used up, tokens of it left over as a draft), and its past.
    """

    def __init__(self, trace: Trace, hw: HardwareProfile, load: int, seed: int) -> None:
        head, self.trace, self.random = trace.drafter(), trace, np.random.default_rng(seed)
        self.gamma, self.kind = head.gamma, head.kind
        self.accepted_N = head.accepted_N.astype(np.int64)
        self.confidence_NG, self.survival_NG = head.confidence_NG(), head.survival_NG()
        self.first_Q, self.last_Q = trace.offset_Q1[:-1], trace.offset_Q1[1:] - 1
        self.texts = np.flatnonzero(self.last_Q > self.first_Q)
        self.running = min(load, hw.max_num_seqs or load)
        self.cost = StepCost(hw, self.running, self.running * (1 + self.gamma))
        self.text_R = self.random.choice(self.texts, self.running)
        length_R = (self.last_Q - self.first_Q)[self.text_R]
        self.row_R = self.first_Q[self.text_R] + (self.random.random(self.running) * length_R).astype(
            np.int64
        )
        self.origin_R = self.row_R.copy()
        self.used_R, self.tail_R = (np.zeros(self.running, dtype=np.int64) for _ in range(2))
        self.hits_R, self.tests_R, self.mean = np.zeros(self.running), np.zeros(self.running), 0.5

    def draft_s(self, count: int, k: int) -> float:
        """Return what drafting k tokens of ``count`` requests costs [s]."""
        return self.cost.draft_s(self.kind, count, k) if count and k else 0.0

    def step(self) -> Step:
        """Return what a plan sees."""
        place, kv = np.arange(self.gamma), self.trace.prompt_tokens_Q[self.text_R] + self.row_R + 1
        at_RG = np.minimum(self.used_R[:, None] + place, self.gamma - 1)
        inside_RG = self.confidence_NG[self.origin_R[:, None], at_RG]
        tail_RG = np.where(place < self.tail_R[:, None], inside_RG, 0.0)
        kv_tokens = int((kv - self.first_Q[self.text_R]).sum())
        return Step(
            self.survival_NG[self.row_R],
            np.cumprod(tail_RG, axis=1, dtype=np.float64),
            self.tail_R,
            self.last_Q[self.text_R] - self.row_R,
            (self.hits_R + 6 * self.mean) / (self.tests_R + 6),
            self.cost.step_s_M(self.running, kv_tokens, self.running * self.gamma, 0.0, False),
            self.draft_s,
        )

    def commit(self, step: Step) -> int:
        """Verify and commit what the plan decided, keep tails; return the tokens committed."""
        keep_R, length_R = step.keep_R, step.verify_len_R
        of_tail_R = np.clip(np.minimum(self.accepted_N[self.origin_R] - self.used_R, self.tail_R), 0, None)
        run_R = np.where(keep_R, of_tail_R, self.accepted_N[self.row_R])
        commit_R = np.minimum(np.minimum(length_R, run_R) + 1, step.left_R)
        self._learn(run_R > 0, (length_R > 0) & ~keep_R)
        block_R = np.where(keep_R, self.tail_R, step.k)
        self.origin_R = np.where(keep_R, self.origin_R, self.row_R)
        self.used_R = np.where(keep_R, self.used_R, 0) + length_R + 1
        # The bonus equals the first unverified token where a whole block would have been accepted further.
        self.tail_R = np.where(run_R > length_R, np.maximum(block_R - length_R - 1, 0), 0)
        self.row_R = self.row_R + commit_R
        self._replace(np.flatnonzero(self.row_R >= self.last_Q[self.text_R]))
        return int(commit_R.sum())

    def _learn(self, hit_R: np.ndarray, tested_R: np.ndarray) -> None:
        self.hits_R = np.where(tested_R, _FADE * self.hits_R + hit_R, self.hits_R)
        self.tests_R = np.where(tested_R, _FADE * self.tests_R + 1, self.tests_R)
        if tested_R.any():
            self.mean += 0.02 * (float(hit_R[tested_R].mean()) - self.mean)

    def _replace(self, done: IntArray) -> None:
        self.text_R[done] = self.random.choice(self.texts, done.size)
        self.row_R[done] = self.first_Q[self.text_R[done]]
        self.tail_R[done], self.hits_R[done], self.tests_R[done] = 0, 0.0, 0.0


def speed(trace: Trace, hw: HardwareProfile, load: int, plan: Plan, seed: int) -> tuple[float, float]:
    """Return tok/s, and the share of requests that drafted."""
    loop, time_s, tokens, drafted = Loop(trace, hw, load, seed), 0.0, 0, 0.0
    for n in range(_STEPS):
        step = loop.step()
        plan(step)
        count = int(np.count_nonzero(~step.keep_R)) if step.k else 0
        committed = loop.commit(step)
        if n >= _WARM_UP:
            time_s += float(step.rest_s_M[step.verify_len_R.sum()]) + loop.draft_s(count, step.k)
            tokens, drafted = tokens + committed, drafted + count / loop.running
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
    parser.add_argument("lead", choices=["recycle", "who", "ends", "users"])
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
    if args.lead == "users":
        users(args)
    else:
        compare(args, plans[args.lead])


if __name__ == "__main__":
    main()
