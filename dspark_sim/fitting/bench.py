"""The closed loop of a benchmark, simulated: texts under common random numbers, one row at a time.

Lengths are stratified: request q of Q has the (u_q + 1/2) / Q quantile of its law, u a permutation; with
another law the same requests stay long or short. The coins of acceptance belong to place and position
in a text, whatever its length.
"""

from __future__ import annotations

from dataclasses import replace
from math import gamma as gamma_function

import numpy as np
from scipy.special import ndtri

from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import simulate
from dspark_sim.fitting.arms import Arm
from dspark_sim.fitting.system import Acceptance, System, Workload
from dspark_sim.hardware.believed import Block, believe
from dspark_sim.policies.registry import parse_policy
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray, RunLog
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.synthetic import PROMPT_SIGMA, SynthDrafter, Synthesis, SynthSpec, logit
from dspark_sim.workload.traces import DrafterTrace, Trace, offsets
from dspark_sim.workload.visits import count, visited

#: Requests that are simulated at most: this many per user, more of them where the rounds of each differ.
#: The rest of the benchmark's are taken to run as those in the middle did.
_WAVES, _WAVES_DRAFTING, _LEAST_DRAFTING = 12, 20, 80
#: Texts over which base logits are found, and their length.
_CALIBRATION_TEXTS, _CALIBRATION_TOKENS = 80, 300


class Bench:
    """Texts of one benchmark: all randomness is drawn once.

    Args:
        workload: number of requests, cut and seed are used; lengths come with each trace.
        gamma: tokens of the longest block.
        longest: texts have room for this many tokens.
    """

    def __init__(self, workload: Workload, gamma: int, longest: int) -> None:
        self.gamma = gamma
        count_Q = max(workload.requests, workload.requests_at_one)
        spec = SynthSpec(drafters=(), target="", made="", requests=count_Q, seed=workload.seed)
        self._drafter = SynthDrafter("drafter", "dspark", (0.5,) * gamma)
        self._spec = spec
        self._draws = draws = Synthesis(spec, self._drafter, _texts(np.full(count_Q, longest)))
        # A coin u lands under sigmoid(base + parts) if and only if logit(u) - parts < base.
        self._needed_NG = logit(draws.uniform_NG) - draws.visible_NG - draws.noise_N1
        self._output_Q, self._prompt_Q = (
            (stream(workload.seed, "bench", name).permutation(count_Q) + 0.5) / count_Q
            for name in ("output_tokens", "prompt_tokens")
        )

    def base(self, conditional_G: FloatArray) -> FloatArray:
        """Return base logits [gamma] that give ``conditional_G`` in the rounds of a full-block replay."""
        texts = _texts(np.full(_CALIBRATION_TEXTS, _CALIBRATION_TOKENS))
        wanted = replace(self._drafter, conditional=tuple(conditional_G.tolist()))
        return Synthesis(self._spec, wanted, texts).base()

    def trace(self, workload: Workload, base_G: FloatArray, blocks: set[int], *, confidences: bool) -> Trace:
        """Return the texts with one drafter for every block length, named after it."""
        length_Q = output_lengths(workload, self._output_Q)
        if confidences:
            cut = self._draws.cut(length_Q)
            texts, full = cut.texts, cut.at(base_G, confidences=True)
        else:
            texts, full = self._without_confidences(length_Q, base_G)
        drafters = {str(k): _shorter(full, k) for k in sorted(blocks | {self.gamma}) if k}
        prompts_Q = prompt_lengths(workload, self._prompt_Q)
        return replace(texts, prompt_tokens_Q=prompts_Q, drafters=drafters)

    def _without_confidences(self, length_Q: IntArray, base_G: FloatArray) -> tuple[Trace, DrafterTrace]:
        long = self._draws.texts
        kept = long.anchor_N < length_Q[long.request_N]
        texts = replace(long, output_tokens_Q=length_Q, offset_Q1=offsets(length_Q))
        run = np.zeros(len(kept), dtype=np.uint8)
        alive = np.ones(len(kept), dtype=bool)
        for j, base in enumerate(base_G):
            alive &= self._needed_NG[:, j] < base
            run += alive
        accepted = np.minimum(run[kept], texts.remaining_N).astype(np.uint8)
        calibration = Calibration.identity(self.gamma)
        full = DrafterTrace("", "dspark", self.gamma, accepted, None, None, None, calibration)
        return texts, full


def longest_text(workload: Workload) -> int:
    """Return the longest text of a workload [tokens]."""
    count_Q = max(workload.requests, workload.requests_at_one)
    return int(output_lengths(workload, np.array([1 - 0.5 / count_Q]))[0])


def output_lengths(workload: Workload, quantile_Q: FloatArray) -> IntArray:
    """Return output lengths at quantiles of the cut Weibull law [tokens], at least 2."""
    scale = workload.output_tokens / gamma_function(1 + 1 / workload.output_shape)
    length_Q = scale * (-np.log1p(-quantile_Q)) ** (1 / workload.output_shape)
    return np.clip(np.rint(length_Q), 2, workload.max_output_tokens).astype(np.int64)


def prompt_lengths(workload: Workload, quantile_Q: FloatArray) -> IntArray:
    """Return prompt lengths at quantiles of the log-normal law [tokens], at least 1."""
    lengths = workload.prompt_tokens * np.exp(PROMPT_SIGMA * ndtri(quantile_Q))
    return np.asarray(np.maximum(np.rint(lengths), 1), dtype=np.int64)


def realised(trace: Trace, base_G: FloatArray) -> Acceptance:
    """Return what a drafter of a trace accepts over the rounds of a full-block replay."""
    full = trace.drafters[str(len(base_G))]
    conditional = count(trace, full, visited(trace, full)).total().conditional_G
    return Acceptance(tuple(base_G.tolist()), tuple(conditional.tolist()))


def requests_of(workload: Workload, arm: Arm, concurrency: int) -> int:
    """Return how many requests of a row are simulated."""
    most = max(_WAVES_DRAFTING * concurrency, _LEAST_DRAFTING) if arm.block else _WAVES * concurrency
    return min(workload.asked(concurrency), most)


def serve_row(trace: Trace, system: System, arm: Arm, concurrency: int, order: int = 0) -> RunLog:
    """Serve one row of a sweep, from an empty engine to the end of the last request.

    Args:
        trace: texts and drafters of :meth:`Bench.trace`.
        system: cost and workload.
        arm: what runs.
        concurrency: users.
        order: number of the order in which requests are sent.

    Raises:
        InputError: profile or drafter cannot serve the arm.
    """
    workload, believed = system.workload, None
    if arm.plans:
        believed = believe("vllm", system.profile, Block("dspark", arm.block))
    return simulate(
        trace,
        system.profile,
        parse_policy(arm.policy),
        concurrency=concurrency,
        output_tokens=1,
        seed=workload.seed + order,
        drafter=str(arm.block) if arm.block else None,
        believed=believed,
        requests=requests_of(workload, arm, concurrency),
        turnaround_s=workload.turnaround_ms * 1e-3,
        serving=Serving(prefill=workload.prefill),
    )


def shifted(base_G: FloatArray, mode_G: FloatArray, wanted_G: FloatArray) -> FloatArray:
    """Return base logits near ``base_G``, which give ``mode_G``, that give about ``wanted_G``."""
    return np.asarray(base_G + logit(wanted_G) - logit(mode_G))


def _shorter(full: DrafterTrace, k: int) -> DrafterTrace:
    """Return the drafter with blocks of the first ``k`` tokens."""
    if k == full.gamma:
        return replace(full, name=str(k))
    logits, free = full.confidence_logit_NG, full.confidence_logit_free_NG
    return replace(
        full,
        name=str(k),
        gamma=k,
        accepted_N=np.minimum(full.accepted_N, np.uint8(k)),
        confidence_logit_NG=None if logits is None else np.ascontiguousarray(logits[:, :k]),
        confidence_logit_free_NG=None if free is None else np.ascontiguousarray(free[:, :k]),
        calibration=Calibration.identity(k),
    )


def _texts(length_Q: IntArray) -> Trace:
    meta = {"target": "", "made": "", "synthetic": True, "temperature": 1.0}
    names = [f"bench-{q:05d}#0" for q in range(len(length_Q))]
    nothing = np.ones_like(length_Q)
    domain = ["bench"] * len(length_Q)
    return Trace("bench", meta, names, domain, nothing, length_Q, None, offsets(length_Q), {})
