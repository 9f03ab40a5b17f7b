"""Does a replay tell the truth? Live rounds against replayed rounds of the same pair and prompts.

The test permutes whole texts within their prompt: given a prompt, live texts and recorded texts are
independent draws of the same target, so under the hypothesis "a replayed round has the law of a live
one" it does not matter which of a prompt's texts carry the label *live*. That is exact where a text's
rounds depend on that text alone (full-block verification; any rule at R = 1), and an approximation
where texts of one batch share a budget. Rounds of one text are never torn apart, since they are
alike, and prompts are never mixed, since they differ.
Shape legend: M rounds, U texts (units), G gamma, P permutations, K statistics of one family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.base import Policy
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.calibration import sigmoid
from dspark_sim.workload.rounds import Rounds, merge
from dspark_sim.workload.traces import Trace

#: Bins of the distribution test, cut at quantiles of both sides together.
_BINS = 64


def replay_rounds(
    trace: Trace,
    profile: HardwareProfile,
    policy: Policy,
    *,
    concurrency: int,
    seed: int,
    drafter: str | None = None,
) -> Rounds:
    """Serve every request of ``trace`` once, in shuffled order from first token to last, and log the rounds.

    Nothing here depends on simulated time.

    Raises:
        InputError: the policy does not fit the drafter.
    """
    log: list[tuple[IntArray, IntArray, IntArray]] = []
    simulate(
        trace,
        profile,
        policy,
        concurrency=concurrency,
        output_tokens=1,
        seed=seed,
        drafter=drafter,
        requests=len(trace.request_id),
        observer=lambda *rounds: log.append(rounds),
    )
    row_M, verify_len_M, accepted_M = (np.concatenate(parts) for parts in zip(*log, strict=True))
    return Rounds(
        meta={"policy": policy.label, "concurrency": concurrency, "trace": trace.name, "seed": seed},
        request_id=[trace.request_id[q] for q in trace.request_N[row_M]],
        anchor_M=trace.anchor_N[row_M],
        verify_len_M=verify_len_M,
        accepted_M=accepted_M,
        confidence_logit_MG=trace.drafter(drafter).logits_NG()[row_M],
    )


def one_text_a_prompt(trace: Trace, prompts: Sequence[str]) -> list[Trace]:
    """Split off traces that each hold one text of every prompt, as many as the rarest prompt has.

    Streams of equal length are compared, so that both sides fill and drain a batch alike.

    Raises:
        InputError: the trace lacks a prompt.
    """
    rows: dict[str, list[int]] = {prompt: [] for prompt in prompts}
    for row, key in enumerate(trace.prompt_key):
        if key in rows:
            rows[key].append(row)
    missing = [prompt for prompt, found in rows.items() if not found]
    if missing:
        raise InputError(f"trace '{trace.name}' has no text of prompt '{missing[0]}' ({len(missing)} such)")
    return [trace.take(np.array(taken)) for taken in zip(*rows.values(), strict=False)]


@dataclass(frozen=True, slots=True)
class Finding:
    """One family of statistics, live minus replay.

    Attributes:
        name: what is compared.
        live, replay: pooled values, one per member of the family (position, mostly).
        statistic: the family's largest deviation, in standard deviations of its permutation law (or
            the largest distance of distribution functions).
        p_value: share of permutations that deviate at least as much, the observed one included.
    """

    name: str
    live: tuple[float, ...]
    replay: tuple[float, ...]
    statistic: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Verdict on a pair of logs: ``agrees`` unless a family is refused at alpha / families (Bonferroni)."""

    findings: tuple[Finding, ...]
    live_rounds: int
    replay_rounds: int
    permutations: int
    alpha: float

    @property
    def agrees(self) -> bool:
        """Whether no family is refused."""
        return min(f.p_value for f in self.findings) > self.alpha / len(self.findings)


def compare(
    live: Rounds, replay: Rounds, *, permutations: int = 1999, seed: int = 0, alpha: float = 0.01
) -> Agreement:
    """Test whether replayed rounds have the law of live ones.

    Compared are the means of accepted draft tokens and of verify lengths; by position the mean
    confidence, the mean of confidence where the position was accepted (the joint law), and the whole
    distribution of confidences (largest distance of distribution functions). Prompts that one side
    lacks are left out.

    Raises:
        InputError: the logs have no prompt in common.
    """
    common = set(live.prompt_key) & set(replay.prompt_key)
    if not common:
        raise InputError("replay check: live and replayed rounds have no prompt in common")
    live, replay = (log.take(np.array([key in common for key in log.prompt_key])) for log in (live, replay))
    texts = _Texts(live, replay)
    label_PU = texts.labels(permutations, seed)
    findings = [_means(name, texts, values_MK, label_PU) for name, values_MK in texts.families().items()]
    findings.append(_distributions(texts, label_PU))
    return Agreement(tuple(findings), len(live), len(replay), permutations, alpha)


class _Texts:
    """Rounds of both sides, and the texts that they belong to."""

    def __init__(self, live: Rounds, replay: Rounds) -> None:
        both = merge([live, replay])
        side = np.repeat([1, 0], [len(live), len(replay)])
        names = [f"{s} {name}" for s, name in zip(side, both.request_id, strict=True)]
        _, first_U, self.text_M = np.unique(names, return_index=True, return_inverse=True)
        self.live_U = side[first_U] == 1
        _, self.prompt_U = np.unique(np.array(both.prompt_key)[first_U], return_inverse=True)
        self.accepted_M, self.verify_len_M = both.accepted_M, both.verify_len_M
        self.confidence_MG = sigmoid(both.confidence_logit_MG.astype(np.float64))
        self.rounds_U = self.sums(np.ones((len(both), 1)))[:, 0]

    def sums(self, values_MK: FloatArray) -> FloatArray:
        """Sum the rounds of each text [U, K]."""
        total = np.zeros((len(self.live_U), values_MK.shape[1]))
        np.add.at(total, self.text_M, values_MK)
        return total

    def families(self) -> dict[str, FloatArray]:
        """Values of each round [M, K] whose means are compared, by name."""
        gamma = self.confidence_MG.shape[1]
        accepted_MG = (self.accepted_M[:, None] > np.arange(gamma)).astype(np.float64)
        return {
            "accepted draft tokens": self.accepted_M[:, None].astype(np.float64),
            "verify length": self.verify_len_M[:, None].astype(np.float64),
            "acceptance by position": accepted_MG,
            "confidence by position": self.confidence_MG,
            "confidence where accepted, by position": self.confidence_MG * accepted_MG,
        }

    def labels(self, permutations: int, seed: int) -> FloatArray:
        """Which texts count as live [1 + P, U]: as they are, then shuffled within their prompts."""
        order_U = np.argsort(self.prompt_U, kind="stable")
        size = np.bincount(self.prompt_U)
        place_U = np.arange(len(order_U)) - np.repeat(np.cumsum(size) - size, size)
        chosen_U = place_U < np.repeat(np.bincount(self.prompt_U, self.live_U), size)
        key_PU = self.prompt_U + stream(seed, "permutations").random((permutations, len(order_U)))
        label_PU = np.zeros((permutations, len(order_U)))
        np.put_along_axis(label_PU, np.argsort(key_PU, axis=1), chosen_U[None].astype(np.float64), axis=1)
        return np.vstack([self.live_U.astype(np.float64), label_PU])


def _pooled(texts: _Texts, values_UK: FloatArray, label_PU: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means over all live and over all replayed rounds, each [1 + P, K]."""
    sides = (label_PU, 1 - label_PU)
    live, replay = ((label @ values_UK) / (label @ texts.rounds_U)[:, None] for label in sides)
    return live, replay


def _means(name: str, texts: _Texts, values_MK: FloatArray, label_PU: FloatArray) -> Finding:
    live_PK, replay_PK = _pooled(texts, texts.sums(values_MK), label_PU)
    difference_PK = live_PK - replay_PK
    spread_K = difference_PK[1:].std(axis=0)
    # A value that never varies (the verify length of full-block verification) deviates by nothing.
    deviation_PK = np.abs(difference_PK) / np.where(spread_K > 1e-12, spread_K, np.inf)
    return _finding(name, live_PK[0], replay_PK[0], deviation_PK.max(axis=1))


def _distributions(texts: _Texts, label_PU: FloatArray) -> Finding:
    """Largest distance of the confidences' distribution functions, over values and positions."""
    gamma = texts.confidence_MG.shape[1]
    cuts = np.linspace(0, 1, _BINS + 1)[1:-1]
    below = [c[:, None] <= np.unique(np.quantile(c, cuts)) for c in texts.confidence_MG.T]
    live_PK, replay_PK = _pooled(texts, texts.sums(np.hstack(below).astype(np.float64)), label_PU)
    distance_PK = np.abs(live_PK - replay_PK)
    ends = np.cumsum([0, *(b.shape[1] for b in below)])
    by_position = [float(distance_PK[0, ends[j] : ends[j + 1]].max(initial=0.0)) for j in range(gamma)]
    return _finding(
        "distribution of confidence (distance, by position)", np.array(by_position), np.zeros(gamma),
        distance_PK.max(axis=1),
    )  # fmt: skip


def _finding(name: str, live_K: FloatArray, replay_K: FloatArray, statistic_P: FloatArray) -> Finding:
    p_value = float(np.mean(statistic_P >= statistic_P[0] - 1e-12))
    return Finding(name, tuple(live_K.tolist()), tuple(replay_K.tolist()), float(statistic_P[0]), p_value)
