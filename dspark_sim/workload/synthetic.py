"""Synthetic dense traces, for models that nobody here can run: acceptance by position in, a trace out.

Every anchor i of request q has, at draft position j, the acceptance logit

    l_j = base_j + request_q + round_i + position_ij + noise_i,

with normal parts of stated spread; ``round`` is correlated from token to token. Acceptance is a coin of
probability sigmoid(l_j) at each position until the first miss. The confidence head sees everything
but ``noise``, and says the truth about what it sees: the probability that position j is accepted given
the visible parts and that 1..j-1 were, noise integrated out (Gauss-Hermite). So confidences are
calibrated posterior means by construction, on the anchors that a replay visits too (the noise of an
anchor is independent of the path that led to it), and a larger noise makes them less sharp, not wrong.

The free block shares the difficulty of the anchor and its first position (a confidence c_1 reads the
anchor only) and has position parts of its own beyond it.

``base_j`` is found by iteration: the requested conditional acceptance holds on visited anchors, where
easy rounds are over-represented at late positions and under-represented among anchors.

That is the mode ``empirical``. The others are in :mod:`~dspark_sim.workload.synth_modes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import asdict, replace
from math import gamma as gamma_function
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim import __version__
from dspark_sim.rng import stream
from dspark_sim.schema import TRACE_FORMAT, FloatArray, IntArray
from dspark_sim.workload.calibration import Calibration, sigmoid
from dspark_sim.workload.synth_modes import alike, course, narrow
from dspark_sim.workload.synth_spec import Mode, SynthDrafter, SynthSpec, check
from dspark_sim.workload.traces import DrafterTrace, Float16Array, Trace, offsets
from dspark_sim.workload.visits import count, visited

__all__ = ["SynthDrafter", "SynthSpec", "Synthesis", "difficulty", "logit", "synthesise", "synthesise_blocks"]

#: Output lengths follow a Weibull law of this shape (coefficient of variation .44).
LENGTH_SHAPE = 2.4
#: Prompt lengths are log-normal with this standard deviation of the logarithm.
PROMPT_SIGMA = 0.6
#: Confidence logits are rounded to this step: 0.4 percent of a probability at most, half the file.
LOGIT_STEP = 1 / 64
#: Texts that are drawn at once; a third of a gigabyte if they are of the default length.
BLOCK = 2_000
_NODES = 15
_ITERATIONS = 40
_TOLERANCE = 0.002


def synthesise(spec: SynthSpec, name: str) -> Trace:
    """Return the trace of ``spec``, labelled synthetic in its metadata.

    Raises:
        InputError: a field of ``spec`` is out of range.
    """
    check(spec)
    length = output_lengths(spec)
    texts = Trace(
        name=name,
        meta={},
        request_id=[f"synth-{q:05d}#0" for q in range(spec.requests)],
        domain=[spec.domain] * spec.requests,
        prompt_tokens_Q=prompt_lengths(spec),
        output_tokens_Q=length,
        arrival_s_Q=None,
        offset_Q1=offsets(length),
        drafters={},
    )
    drafters = {drafter.name: Synthesis(spec, drafter, texts).drafter_trace() for drafter in spec.drafters}
    return replace(texts, meta=_meta(spec), drafters=drafters)


def synthesise_blocks(spec: SynthSpec, name: str) -> Iterator[Trace]:
    """Yield the trace of ``spec`` in blocks of up to :data:`BLOCK` texts; one is held at a time.

    The only block of a small trace is :func:`synthesise`'s. Of several, each is drawn from streams of its own
    and has the requested acceptance by itself.

    Raises:
        InputError: as :func:`synthesise`.
    """
    check(spec)
    for number, texts in enumerate(np.array_split(np.arange(spec.requests), -(-spec.requests // BLOCK))):
        seed = spec.seed
        if number:
            seed = int(stream(spec.seed, "synth", "block", number).integers(1 << 62))
        part = synthesise(replace(spec, requests=len(texts), seed=seed), name)
        names = [f"synth-{q:05d}#0" for q in texts]
        yield replace(part, meta=_meta(spec), request_id=names)


def output_lengths(spec: SynthSpec) -> IntArray:
    """Draw output lengths [Q], at least 2 tokens, of mean ``spec.output_tokens``."""
    scale = spec.output_tokens / gamma_function(1 + 1 / LENGTH_SHAPE)
    draws = scale * stream(spec.seed, "synth", "output_tokens").weibull(LENGTH_SHAPE, spec.requests)
    return np.maximum(np.rint(draws), 2).astype(np.int64)


def prompt_lengths(spec: SynthSpec) -> IntArray:
    """Draw prompt lengths [Q], at least 1 token, of mean ``spec.prompt_tokens``."""
    location = np.log(spec.prompt_tokens) - PROMPT_SIGMA**2 / 2
    draws = stream(spec.seed, "synth", "prompt_tokens").lognormal(location, PROMPT_SIGMA, spec.requests)
    return np.maximum(np.rint(draws), 1).astype(np.int64)


class Synthesis:
    """One drafter on the given texts; all randomness is drawn once, whatever the base logits are.

    Args:
        spec: spreads and seed.
        drafter: its name, kind and requested conditional acceptance.
        texts: lengths; the trace that it drafts for.
    """

    def __init__(self, spec: SynthSpec, drafter: SynthDrafter, texts: Trace) -> None:
        self.spec = spec
        self.drafter = drafter
        self.texts = texts
        self.gamma = len(drafter.conditional)
        shape = (len(texts.request_N), self.gamma)
        anchor_N1 = self._anchor_part()[:, None]
        position_NG = spec.spread_positions * self._stream("position").standard_normal(shape)
        free_NG = spec.spread_positions * self._stream("position", "free").standard_normal(shape)
        free_NG[:, 0] = position_NG[:, 0]
        self.visible_NG = anchor_N1 + position_NG
        self.visible_free_NG = anchor_N1 + free_NG
        self.noise_N1 = spec.noise * self._stream("noise").standard_normal((shape[0], 1))
        self.uniform_NG = self._stream("coin").random(shape)

    def _stream(self, *names: str) -> np.random.Generator:
        return stream(self.spec.seed, "synth", self.drafter.name, *names)

    def _anchor_part(self) -> FloatArray:
        """Request and round parts [N]: a common one, and one of the drafter's own."""
        spec = self.spec
        common = difficulty(spec, self.texts, stream(spec.seed, "synth", "difficulty"))
        own = difficulty(spec, self.texts, self._stream("difficulty"))
        return sqrt(spec.shared) * common + sqrt(1 - spec.shared) * own + course(spec, self.texts)

    def cut(self, output_tokens_Q: IntArray) -> Synthesis:
        """Return the same draws for the same texts, cut to ``output_tokens_Q`` tokens each."""
        kept = self.texts.anchor_N < output_tokens_Q[self.texts.request_N]
        shorter = copy(self)
        shorter.texts = replace(
            self.texts, output_tokens_Q=output_tokens_Q, offset_Q1=offsets(output_tokens_Q)
        )
        shorter.visible_NG, shorter.visible_free_NG = self.visible_NG[kept], self.visible_free_NG[kept]
        shorter.noise_N1, shorter.uniform_NG = self.noise_N1[kept], self.uniform_NG[kept]
        return shorter

    def drafter_trace(self) -> DrafterTrace:
        """Return the drafter that has the requested acceptance, with confidences if it is of that kind."""
        if self.spec.mode == "minimum-variance":
            return narrow(self.drafter, self.texts, self.uniform_NG[:, 0])
        return self.at(self.base(), confidences=self.drafter.kind == "dspark")

    def at(self, base_G: FloatArray, *, confidences: bool) -> DrafterTrace:
        """Return the drafter that has these base logits [G]."""
        if not confidences:
            return self._trace(base_G, None, None)
        coupled, free = (base_G + visible for visible in (self.visible_NG, self.visible_free_NG))
        return self._trace(base_G, self._confidence(coupled), self._confidence(free))

    def _trace(
        self, base_G: FloatArray, coupled: Float16Array | None, free: Float16Array | None
    ) -> DrafterTrace:
        return DrafterTrace(
            name=self.drafter.name,
            kind=self.drafter.kind,
            gamma=self.gamma,
            accepted_N=self._accepted(base_G),
            confidence_logit_NG=coupled,
            confidence_logit_free_NG=free,
            accept_rate_NG=None,
            calibration=Calibration.identity(self.gamma),
        )

    def base(self) -> FloatArray:
        """Return base logits [G] under which the requested acceptance holds on visited anchors."""
        if self.spec.mode == "geometric":
            return self._alike_base()
        wanted = logit(np.array(self.drafter.conditional))
        base = best = wanted
        least = np.inf
        for _ in range(_ITERATIONS):
            got = self._conditional(base)
            error = float(np.abs(got - self.drafter.conditional).max())
            if error < least:
                best, least = base, error
            if error < _TOLERANCE:
                break
            base = base + wanted - logit(np.clip(got, 0.01, 0.99))
        return best

    def _alike_base(self) -> FloatArray:
        """Return one base logit for all positions, under which the requested accepted length holds."""
        wanted = float(logit(np.array(alike(self.drafter))))
        base = wanted
        for _ in range(_ITERATIONS):
            conditional = tuple(self._conditional(np.full(self.gamma, base)).tolist())
            got = float(logit(np.array(alike(replace(self.drafter, conditional=conditional)))))
            if abs(got - wanted) < _TOLERANCE:
                break
            base += wanted - got
        return np.full(self.gamma, base)

    def _conditional(self, base_G: FloatArray) -> FloatArray:
        trial = self._trace(base_G, None, None)
        conditional = count(self.texts, trial, visited(self.texts, trial)).total().conditional_G
        return np.where(np.isnan(conditional), self.drafter.conditional, conditional)

    def _accepted(self, base_G: FloatArray) -> NDArray[np.uint8]:
        hit = self.uniform_NG < sigmoid(base_G + self.visible_NG + self.noise_N1)
        run = np.logical_and.accumulate(hit, axis=1).sum(axis=1)
        return np.asarray(np.minimum(run, self.texts.remaining_N), dtype=np.uint8)

    def _confidence(self, visible_NG: FloatArray) -> Float16Array:
        """Return the logits of P(position accepted | visible parts, those before accepted)."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        hit, miss = np.zeros_like(visible_NG), np.zeros_like(visible_NG)
        for node, weight in zip(self.spec.noise * nodes, weights, strict=True):
            chance = sigmoid(visible_NG + node)
            survived = weight * np.cumprod(chance, axis=1)
            hit += survived
            miss += survived / chance * sigmoid(-visible_NG - node)
        return (np.rint(np.log(hit / miss) / LOGIT_STEP) * LOGIT_STEP).astype(np.float16)


def logit(probability: FloatArray) -> FloatArray:
    """Return log(p / (1 - p))."""
    odds: FloatArray = np.log(probability / (1.0 - probability))
    return odds


def difficulty(spec: SynthSpec, texts: Trace, random: np.random.Generator) -> FloatArray:
    """Draw request plus round parts [N]; the round part is a stationary AR(1) along each text."""
    length_Q = texts.output_tokens_Q
    request_Q = spec.spread_requests * random.standard_normal(len(length_Q))
    fresh_QL = random.standard_normal((len(length_Q), int(length_Q.max())))
    innovation = sqrt(1 - spec.correlation**2)
    round_QL = fresh_QL
    for t in range(1, fresh_QL.shape[1]):
        round_QL[:, t] = spec.correlation * round_QL[:, t - 1] + innovation * fresh_QL[:, t]
    part = request_Q[texts.request_N] + spec.spread_rounds * round_QL[texts.request_N, texts.anchor_N]
    return np.asarray(part, dtype=np.float64)


def _said_only_in(mode: Mode) -> tuple[str, ...]:
    """Return the fields of a spec that say nothing in ``mode``."""
    course_fields = ("drift", "switch", "dwell")
    return () if mode == "drift" else course_fields if mode != "empirical" else ("mode", *course_fields)


def _meta(spec: SynthSpec) -> dict[str, Any]:
    model = asdict(spec)
    for name in _said_only_in(spec.mode):
        del model[name]
    drafters = {d["name"]: list(d["conditional"]) for d in model.pop("drafters")}
    notes = {"model": model, "requested_conditional_acceptance": drafters, "length_shape": LENGTH_SHAPE}
    return {
        "format": TRACE_FORMAT,
        "target": spec.target,
        "synthetic": True,
        "made": spec.made,
        "temperature": spec.temperature,
        "seed": spec.seed,
        "drafters": {d.name: {"kind": d.kind, "gamma": len(d.conditional)} for d in spec.drafters},
        "recorder": f"dspark-sim {__version__} synth",
        "notes": notes,
    }
