"""Case ``kv-capped``: KV capacity, not load, sets the batch.

Where contexts are long, the KV cache is full before the GPU is busy: the batch cannot grow, so each
step has tokens to spare, and speculation raises throughput and user speed together, by the same
factor. Where contexts are short the batch grows to saturation, and the same rules trade one for the
other. A demonstration of section 5.3 of arXiv 2607.05147: nothing is fitted, and nothing was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import load_profile
from dspark_sim.hardware.sections import KvMemory
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import point
from dspark_sim.validation.cases import CaseResult, Check, Line, Panel, Row
from dspark_sim.validation.yields import law_trace
from dspark_sim.workload.published import QWEN3_4B
from dspark_sim.workload.synthetic import SynthDrafter
from dspark_sim.workload.traces import Trace

#: KV tokens beside 16 GB of weights and 8 GB of workspace in 80 GB; 36 layers, 8 KV heads of 128, bf16.
KV_TOKENS = int((80e9 - 16e9 - 8e9) / (36 * 2 * 8 * 128 * 2))
_CONTEXTS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
_BLOCK_TOKENS = 16
#: At this context and beyond, KV leaves at most 47 requests, which the GPU serves far below saturation.
_LONG = 8_000
_USERS = 512
_POLICIES = ("off", "full", "dspark-async")
_TOKENS_A_REQUEST, _LEAST_TOKENS, _ANCHORS = 600, 20_000, 60_000
#: What speculation must bring at least, both to the GPU and to each user, where KV caps the batch.
_LEAST_GAIN = 2.0
_MOST_LEAD, _LEAST_RISE = 0.02, 2.0


@dataclass(frozen=True, slots=True)
class _Load:
    """One context; running: mean without speculation; user: 1 / median TPOT [tok/s/user]."""

    context: int
    running: float
    tok_per_s: dict[str, float]
    user: dict[str, float]

    def gain(self, policy: str) -> float:
        return self.tok_per_s[policy] / self.tok_per_s["off"]


def kv_capped(seed: int = 0) -> CaseResult:
    """Serve more users than KV holds, at several contexts, without and with speculation."""
    trace = law_trace(
        [SynthDrafter("dspark", "dspark", QWEN3_4B["chat"]["dspark"])], "Qwen3-8B", anchors=_ANCHORS
    )
    loads = [_serve(trace, context, seed) for context in _CONTEXTS]
    rows = [
        Row(f"{policy} over off, context {load.context:,}", None, load.gain(policy), "times", "predicted")
        for load in loads
        for policy in _POLICIES[1:]
    ]
    capped = [load for load in loads if load.context >= _LONG]
    least = min(load.gain("dspark-async") for load in capped)
    least_user = min(load.user["dspark-async"] / load.user["off"] for load in capped)
    lead = max(load.gain("full") - load.gain("dspark-async") for load in loads)
    rise = loads[-1].gain("dspark-async") / loads[0].gain("dspark-async")
    return CaseResult(
        name="kv-capped",
        title="KV capacity caps the batch: throughput and user speed rise together (Qwen3-8B, H800)",
        sources=["section 5.3 of arXiv 2607.05147; profile h800; acceptance of figure 2, chat"],
        rows=rows,
        checks=[
            Check(
                "least gain in throughput where KV caps the batch [times]", least, _LEAST_GAIN, at_least=True
            ),
            Check("least gain in user speed there [times]", least_user, _LEAST_GAIN, at_least=True),
            Check("lead of whole blocks over scheduling, largest [times]", lead, _MOST_LEAD),
            Check("gain at the longest context over that at the shortest", rise, _LEAST_RISE, at_least=True),
        ],
        panels=_panels(loads),
        notes=[
            f"KV holds {KV_TOKENS:,} tokens; {_USERS} users wait for a place",
            *(f"context {load.context:,}: {load.running:.0f} requests run on average" for load in loads),
        ],
    )


def _serve(trace: Trace, context: int, seed: int) -> _Load:
    prompts = np.full_like(trace.prompt_tokens_Q, context - int(trace.output_tokens_Q.mean()) // 2)
    long_prompts = replace(trace, prompt_tokens_Q=prompts)
    kv = KvMemory(block_tokens=_BLOCK_TOKENS, num_blocks=KV_TOKENS // _BLOCK_TOKENS)
    profile = replace(load_profile("h800"), kv=kv)
    runs = {
        policy: simulate(
            long_prompts,
            profile,
            parse_policy(policy),
            concurrency=_USERS,
            output_tokens=max(_LEAST_TOKENS, _TOKENS_A_REQUEST * min(_USERS, KV_TOKENS // context)),
            seed=seed,
        )
        for policy in _POLICIES
    }
    points = {policy: point(run) for policy, run in runs.items()}
    return _Load(
        context,
        float(runs["off"].steps.num_running.mean()),
        {policy: found["tok_per_s"] for policy, found in points.items()},
        {policy: found["tok_per_s_per_user_median_tpot"] for policy, found in points.items()},
    )


def _panels(loads: list[_Load]) -> list[Panel]:
    context = np.array([load.context for load in loads], dtype=np.float64)
    throughput = [
        Line(policy, policy, context, np.array([load.tok_per_s[policy] for load in loads]))
        for policy in _POLICIES
    ]
    user = [
        Line(policy, policy, context, np.array([load.user[policy] for load in loads])) for policy in _POLICIES
    ]
    label = "context of a request [tokens]"
    return [
        Panel("", label, "throughput [tok/s/GPU]", throughput),
        Panel("", label, "speed of each user [tok/s/user]", user),
    ]
