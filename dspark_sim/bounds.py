"""How far any rule could get on a trace and a profile, at one load of a closed, decode-only loop.

Three yardsticks, the last of which is a bound. The best static length in hindsight. A per-step
clairvoyant that knows what would be accepted: a reference, since it does not weigh which anchor comes
next. And a bound that holds for every rule, clairvoyant ones included:

Let T(B) be what a step of R requests and B tokens costs at least, and alpha + beta B <= T(B) for every
B that can occur. A step's rounds then pay, together, at least sum over r of (alpha / R + beta (1 + l_r)).
So a text costs at least the cheapest walk over its anchors, i -> i + j + 1 for any j <= accepted_i at
alpha / R + beta (1 + j): a dynamic programme over the dense trace. Attention adds a line in the KV
tokens, the draft pass its cheapest share a request. Every beta gives a bound; the least is taken.
Shape legend: Q requests, J = G + 1 commits of a round, K values of beta tried at once, M = R * G.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.schema import DraftKind, FloatArray, IntArray, RunLog
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.traces import DrafterTrace, Trace

_BETAS, _ROUNDS = 9, 4
_CERTAIN = 30.0


@dataclass(frozen=True, slots=True)
class Bound:
    """What no rule can exceed.

    Attributes:
        tok_per_s: committed tokens per second.
        alpha_s, beta_s: the line under the step's cost that gave it [s], [s/token].
    """

    tok_per_s: float
    alpha_s: float
    beta_s: float


@dataclass(frozen=True, slots=True)
class _Floor:
    """Lower bounds of the parts of a step.

    Attributes:
        tokens_M: batch tokens B that can occur.
        step_s_M: least duration of a step of that many, without attention and drafting [s].
        attention_s, attention_s_per_token: line in the KV tokens of the batch under its attention.
        draft_s_J: least draft cost of a request that verifies j tokens [s].
    """

    tokens_M: FloatArray
    step_s_M: FloatArray
    attention_s: float
    attention_s_per_token: float
    draft_s_J: FloatArray


def share_of_gain(tok_per_s: float, off: float, bound: float) -> float:
    """Return the part of the gain that the bound leaves over no speculation; NaN where it leaves none."""
    return (tok_per_s - off) / (bound - off) if bound > off else float("nan")


def bound(
    trace: Trace,
    profile: HardwareProfile,
    *,
    concurrency: int,
    drafter: str | None = None,
    kind: DraftKind | None = None,
    max_output_tokens: int | None = None,
) -> Bound:
    """Return a throughput that no rule exceeds in a closed loop.

    Args:
        trace: acceptance to replay; each of its requests is served equally often.
        profile: true cost of a step.
        concurrency: users of the loop [requests].
        drafter: drafter of the trace; None as in ``Trace.drafter``.
        kind: what a draft pass costs as; None: the drafter's own kind.
        max_output_tokens: cuts every text [tokens].

    Raises:
        InputError: no such drafter, or the profile has no cost for its kind.
    """
    chosen = trace.drafter(drafter)
    running = min(concurrency, profile.max_num_seqs or concurrency)
    length_Q = np.minimum(trace.output_tokens_Q, max_output_tokens or trace.output_tokens_Q)
    walks = _Walks(trace, chosen, length_Q)
    floor = _floor(profile, running, chosen.gamma, kind or chosen.kind, walks.context_range)
    low, high = 0.0, _steepest(floor)
    best = Bound(np.inf, 0.0, 0.0)
    for _ in range(_ROUNDS):
        beta_K = np.linspace(low, high, _BETAS)
        alpha_K = (floor.step_s_M - beta_K[:, None] * floor.tokens_M).min(axis=1) + floor.attention_s
        edge_KJ = (
            alpha_K[:, None] / running + beta_K[:, None] * np.arange(1, chosen.gamma + 2) + floor.draft_s_J
        )
        total_K = walks.least_s(edge_KJ, floor.attention_s_per_token)
        at = int(total_K.argmax())
        found = Bound(float(walks.tokens / total_K[at]), float(alpha_K[at]), float(beta_K[at]))
        best = min(best, found, key=lambda each: each.tok_per_s)
        low, high = beta_K[max(at - 1, 0)], beta_K[min(at + 1, _BETAS - 1)]
    return best


def _steepest(floor: _Floor) -> float:
    """Return a slope beyond which no line helps [s/token]: the steepest chord from the first point."""
    rise, run = np.diff(floor.step_s_M), np.diff(floor.tokens_M)
    return float(max((rise / run).max(initial=0.0), 1e-9))


class _Walks:
    """Cheapest walks over the anchors of all texts, from their ends backwards, all texts at once.

    Args:
        trace: the texts.
        drafter: what is accepted from each anchor.
        length_Q: output tokens of each text.
    """

    def __init__(self, trace: Trace, drafter: DrafterTrace, length_Q: IntArray) -> None:
        # The longest first: those still under way are then a prefix.
        self._order = np.argsort(-length_Q, kind="stable")
        self._steps_Q = length_Q[self._order] - 1
        self._last_Q = (trace.offset_Q1[:-1] + length_Q - 1)[self._order]
        self._context_Q = (trace.prompt_tokens_Q + length_Q)[self._order]
        self._accepted_N = drafter.accepted_N.astype(np.int64)
        self._gamma = drafter.gamma
        self.tokens = int(self._steps_Q.sum())
        shortest = trace.prompt_tokens_Q[self._order] + 1
        self.context_range = (float(shortest.min()), float(self._context_Q.max()))

    def least_s(self, edge_KJ: FloatArray, per_context_token_s: float) -> FloatArray:
        """Return the least total duration of all texts [K] if a round of j + 1 tokens costs ``edge_KJ``."""
        ahead_KQJ = np.zeros((len(edge_KJ), len(self._steps_Q), self._gamma + 1))
        place, total_K = np.arange(self._gamma + 1), np.zeros(len(edge_KJ))
        for left in range(1, int(self._steps_Q.max(initial=0)) + 1):
            under_way = int(np.searchsorted(-self._steps_Q, -left, side="right"))
            ahead_KQJ = ahead_KQJ[:, :under_way]
            accepted_Q = self._accepted_N[self._last_Q[:under_way] - left]
            cost_KQJ = edge_KJ[:, None, :] + ahead_KQJ
            cost_KQJ[:, place > accepted_Q[:, None]] = np.inf
            least_KQ = cost_KQJ.min(axis=2) + per_context_token_s * (self._context_Q[:under_way] - left)
            ahead_KQJ = np.concatenate([least_KQ[:, :, None], ahead_KQJ[:, :, :-1]], axis=2)
            total_K += least_KQ[:, self._steps_Q[:under_way] == left].sum(axis=1)
        return total_K


def _floor(
    profile: HardwareProfile, running: int, gamma: int, kind: DraftKind, contexts: tuple[float, float]
) -> _Floor:
    cost = StepCost(profile, running, running * (1 + gamma))
    step_s_M = cost.step_s_M(running, 0, running * gamma, 0.0, False) - cost.attention_s(running, 0)
    return _Floor(
        running + np.arange(len(step_s_M), dtype=np.float64),
        step_s_M,
        *_attention_line(cost, profile, running, contexts),
        _draft_s_J(cost, kind, running, gamma),
    )


def _draft_s_J(cost: StepCost, kind: DraftKind, running: int, gamma: int) -> FloatArray:
    """Return the least share of a draft pass of a request that verifies j = 0..G tokens [s]."""
    shares = [
        min(cost.drafting_s(kind, count, k) / count for count in range(1, running + 1))
        for k in range(1, gamma + 1)
    ]
    # A longer block would do as well: the least over all that are long enough.
    least = np.minimum.accumulate(shares[::-1])[::-1]
    return np.concatenate([[0.0], least])


def _attention_line(
    cost: StepCost, profile: HardwareProfile, running: int, contexts: tuple[float, float]
) -> tuple[float, float]:
    """Return (s, s/token) of a line in KV tokens under the attention of a step, the highest in mid-range.

    At a fixed R attention is piecewise linear in the mean context, so a line under its corners is
    under all of it.
    """
    if profile.attention is None:
        return 0.0, 0.0
    low, high = contexts
    inner = [float(c) for c in profile.attention.context_tokens if low < c < high]
    kv_tokens = sorted({round(running * c) for c in (low, *inner, high)})
    corners = [(kv, cost.attention_s(running, kv)) for kv in kv_tokens]
    if len(corners) == 1:
        return corners[0][1], 0.0
    lines = [_through(*pair) for pair in combinations(corners, 2)]
    under = [(a, b) for a, b in lines if all(a + b * x <= y + 1e-15 for x, y in corners)]
    middle = (kv_tokens[0] + kv_tokens[-1]) / 2
    return max(under, key=lambda line: line[0] + line[1] * middle)


def _through(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return one[1] - slope * one[0], slope


def clairvoyant(
    trace: Trace,
    profile: HardwareProfile,
    *,
    concurrency: int,
    output_tokens: int,
    seed: int,
    drafter: str | None = None,
    max_output_tokens: int | None = None,
    rule: str = "dspark-async:lag=0",
) -> RunLog:
    """Run the rule that knows what would be accepted, and takes the best budget of every step.

    It sees a trace whose confidences are the truth, and pays no bubble; a reference, not a bound and
    not a policy. ``rule``: what it does with that; ``draft-length:lag=0`` also drafts no more than pays.

    Raises:
        InputError: as :func:`~dspark_sim.engine.simulator.simulate`.
    """
    chosen = trace.drafter(drafter)
    truth = replace(trace, drafters={chosen.name: _told(chosen)})
    free = replace(profile, host=replace(profile.host, bubble_ms=0.0))
    return simulate(
        truth,
        free,
        parse_policy(rule),
        concurrency=concurrency,
        output_tokens=output_tokens,
        seed=seed,
        max_output_tokens=max_output_tokens,
    )


def yardsticks(
    trace: Trace,
    profile: HardwareProfile,
    speeds: Mapping[str, float],
    *,
    concurrency: int,
    output_tokens: int,
    seed: int,
    drafter: str | None = None,
    max_output_tokens: int | None = None,
) -> dict[str, Any]:
    """Return what policies reached at one load, beside the yardsticks [tok/s], and their shares of the gain.

    Args:
        trace: as replayed.
        profile: true cost of a step.
        speeds: tok/s by policy label; ``off`` must be there, ``static:k=N`` count for the best static.
        concurrency: the load [requests].
        output_tokens: of the clairvoyant's run [tokens].
        seed: of the same.
        drafter: as in :func:`bound`.
        max_output_tokens: as in :func:`bound`.
    """
    limit = bound(
        trace, profile, concurrency=concurrency, drafter=drafter, max_output_tokens=max_output_tokens
    )
    seer = clairvoyant(
        trace, profile, concurrency=concurrency, output_tokens=output_tokens, seed=seed, drafter=drafter,
        max_output_tokens=max_output_tokens,
    )  # fmt: skip
    fixed = [label for label in speeds if label == "off" or label.startswith("static:")]
    best = max(fixed, key=speeds.__getitem__)
    return {
        "concurrency": concurrency,
        "off": speeds["off"],
        "best_static": {"policy": best, "tok_per_s": speeds[best]},
        "clairvoyant": tok_per_s(seer),
        "bound": limit.tok_per_s,
        "line": {"alpha_s": limit.alpha_s, "beta_s": limit.beta_s},
        "policies": {
            label: {"tok_per_s": speed, "share": share_of_gain(speed, speeds["off"], limit.tok_per_s)}
            for label, speed in speeds.items()
        },
    }


def _told(drafter: DrafterTrace) -> DrafterTrace:
    """Return the drafter with confidences that say what is accepted."""
    accepted = np.arange(drafter.gamma) < drafter.accepted_N[:, None]
    logit_NG = np.where(accepted, _CERTAIN, -_CERTAIN).astype(np.float16)
    return replace(
        drafter,
        confidence_logit_NG=logit_NG,
        confidence_logit_free_NG=logit_NG,
        calibration=Calibration.identity(drafter.gamma),
    )
