"""Runs of the paper case: the engine on one model's fitted step cost, with intervals from the priors.

The step cost is fitted on each figure's own MTP-1 curve (throughput by concurrency on figure 8, the
anchors on figure 7). The engine runs the priors' most likely values; intervals are 95% of the draws
from the priors, by expectation, around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import Point, point
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray
from dspark_sim.validation.paper_cost import (
    Curve,
    MtpStep,
    figure7,
    figure8,
    fit_mtp_step,
    frontier7,
    profile_of,
)
from dspark_sim.validation.paper_predict import DSPARK, GAMMA, predict, step_at
from dspark_sim.validation.priors import (
    DSPARK_ACCEPTED_LEN,
    MTP_ACCEPTED_LEN,
    STRUCTURE,
    Prior,
    draw,
    modes,
)
from dspark_sim.validation.tables import read_rows
from dspark_sim.validation.yields import conditionals, law_trace
from dspark_sim.workload.synthetic import SynthDrafter
from dspark_sim.workload.traces import Trace

POLICIES = ("mtp:k=1", DSPARK, "mtp:k=3", "mtp:k=5")
_DRAWS = 600
_TAILS = (0.025, 0.975)
_ANCHOR_CONCURRENCY = np.unique(np.round(np.geomspace(2, 600, 150)))
_TOKENS_A_REQUEST = 2_000  # two texts
_LEAST_TOKENS, _ANCHORS = 120_000, 150_000


@dataclass(frozen=True)
class Served:
    """One model under one policy on the concurrencies of figure 8; arrays [C], bounds [2, C].

    shift: what the engine found over the expectation, by concurrency.
    """

    model: str
    policy: str
    concurrency: FloatArray
    tok_per_s: FloatArray
    budget: FloatArray
    bounds: FloatArray
    budget_bounds: FloatArray
    shift: FloatArray

    def series(self) -> list[dict[str, Any]]:
        """Return the rows of the JSON document."""
        return [
            {
                "model": self.model,
                "policy": self.policy,
                "concurrency": int(self.concurrency[i]),
                "tok_per_s_per_gpu": float(self.tok_per_s[i]),
                "tok_per_s_per_user": float(self.tok_per_s[i] / self.concurrency[i]),
                "verification_budget": float(self.budget[i]),
                "low": float(self.bounds[0, i]),
                "high": float(self.bounds[1, i]),
                "verification_budget_low": float(self.budget_bounds[0, i]),
                "verification_budget_high": float(self.budget_bounds[1, i]),
            }
            for i in range(len(self.concurrency))
        ]


@dataclass(frozen=True)
class Model:
    """One model of the paper: its curves, fits, priors and draws; the trace is one of :func:`paper_trace`."""

    name: str
    priors: Mapping[str, Prior]
    trace: Trace
    seed: int

    @cached_property
    def curve(self) -> Curve:
        """MTP-1 by concurrency."""
        return figure8(self.name)

    @cached_property
    def fit(self) -> MtpStep:
        """Step cost behind figure 8."""
        return fit_mtp_step(self.curve)

    @cached_property
    def centre(self) -> Mapping[str, FloatArray]:
        """The most likely unknowns, as one draw."""
        return {name: np.array([value]) for name, value in modes(self.priors).items()}

    @cached_property
    def draws(self) -> Mapping[str, FloatArray]:
        """Unknowns drawn from their priors."""
        return draw(self.priors, _DRAWS, self.seed)

    @cached_property
    def structure(self) -> FloatArray:
        """Factors on throughput for what the model leaves out; [D, 1]."""
        p = STRUCTURE
        return stream(self.seed, "prior", "structure").triangular(p.low, p.mode, p.high, _DRAWS)[:, None]

    def serve(self, policy: str) -> Served:
        """Run ``policy`` on every concurrency of figure 8, and put intervals around it."""
        concurrency = self.curve.concurrency_P
        expected = predict(self.fit, self.centre, concurrency, policy)
        drawn = predict(self.fit, self.draws, concurrency, policy)
        found = self._simulate(policy)
        tok_per_s, budget = np.array([point["tok_per_s"] for point in found]), _budgets(found)
        shift = tok_per_s / expected.tok_per_s_DC[0]
        factor = 1.0 if policy == POLICIES[0] else self.structure
        budget_shift = budget - expected.budget_DC[0]
        return Served(
            model=self.name,
            policy=policy,
            concurrency=concurrency,
            tok_per_s=tok_per_s,
            budget=budget,
            bounds=np.quantile(drawn.tok_per_s_DC * factor, _TAILS, axis=0) * shift,
            budget_bounds=np.clip(np.quantile(drawn.budget_DC, _TAILS, axis=0) + budget_shift, 1, 1 + GAMMA),
            shift=shift,
        )

    def _simulate(self, spec: str) -> list[Point]:
        most = int(self.curve.concurrency_P.max())
        unknowns = modes(self.priors)
        step = step_at(self.fit, {name: np.asarray(value) for name, value in unknowns.items()})
        profile = profile_of(step, self.name, most, GAMMA, waits=spec == DSPARK)
        policy = parse_policy(spec)
        return [
            point(
                simulate(
                    self.trace,
                    profile,
                    policy,
                    concurrency=int(running),
                    output_tokens=max(_TOKENS_A_REQUEST * int(running), _LEAST_TOKENS),
                    seed=self.seed,
                    drafter=spec,
                )
            )
            for running in self.curve.concurrency_P
        ]

    def sensitivity(self, concurrency: float) -> list[dict[str, Any]]:
        """Return what each unknown alone does to DSpark at one load, at the ends of its range."""
        at = np.array([concurrency])
        centre = predict(self.fit, self.centre, at, DSPARK)
        rows = []
        for name, prior in self.priors.items():
            ends = {key: value.repeat(2) for key, value in self.centre.items()}
            ends[name] = np.array([prior.low, prior.high])
            moved = predict(self.fit, ends, at, DSPARK)
            change = 100 * (moved.tok_per_s_DC[:, 0] / centre.tok_per_s_DC[0, 0] - 1)
            budget = moved.budget_DC[:, 0] - centre.budget_DC[0, 0]
            rows.append(
                {
                    "model": self.name,
                    "unknown": name,
                    "range": [prior.low, prior.high],
                    "throughput_pct": change.tolist(),
                    "verification_budget": budget.tolist(),
                }
            )
        return rows

    def anchors(self, dspark: Served) -> list[dict[str, Any]]:
        """Return DSpark against MTP-1 at each SLA anchor, on figure 7's own MTP-1 curve."""
        fit = fit_mtp_step(figure7(self.name))
        concurrency = _ANCHOR_CONCURRENCY
        shift = np.interp(concurrency, dspark.concurrency, dspark.shift)
        centre = predict(fit, self.centre, concurrency, DSPARK).tok_per_s_DC * shift
        drawn = predict(fit, self.draws, concurrency, DSPARK).tok_per_s_DC * shift * self.structure
        curves = np.concatenate([centre, drawn])
        rows = [row for row in read_rows("paper_anchors") if row["model"] == self.name]
        return [self._anchor(row, concurrency, curves) for row in rows]

    def _anchor(self, row: Mapping[str, str], concurrency: FloatArray, curves: FloatArray) -> dict[str, Any]:
        sla, gain = float(row["sla"]), float(row["throughput_gain_pct"])
        base = float(np.interp(sla, *frontier7(self.name)))
        at_sla = np.array([np.interp(sla, (curve / concurrency)[::-1], curve[::-1]) for curve in curves])
        matched = np.array([np.interp(base, curve, curve / concurrency) for curve in curves])
        low, high = np.quantile(at_sla[1:], _TAILS)  # the first curve is the prediction
        return {
            "model": self.name,
            "sla": sla,
            "throughput_gain_pct": 100 * (at_sla[0] / base - 1),
            "speedup_pct": 100 * (matched[0] / sla - 1),
            "published": {
                "throughput_gain_pct": gain,
                "speedup_pct": [float(row["speedup_low_pct"]), float(row["speedup_high_pct"])],
            },
            "tok_per_s_per_gpu": float(at_sla[0]),
            "low": float(low),
            "high": float(high),
            "mtp1_tok_per_s_per_gpu": base,
            "published_tok_per_s_per_gpu": base * (1 + gain / 100),
            "speedup_pct_bounds": (100 * (np.quantile(matched[1:], _TAILS) / sla - 1)).tolist(),
        }


def _budgets(points: list[Point]) -> FloatArray:
    return np.array([point["verification_budget"] for point in points])


@cache
def paper_trace(traffic: float, dspark_shift: float) -> Trace:
    """Return one set of texts with DSpark and every MTP-k on them, each drafter named by its policy.

    An accepted length is one of a fixed k, over the anchors that this k visits: each k its own drafter.

    Args:
        traffic: logit shift of every acceptance.
        dspark_shift: logit shift of DSpark's, beside.
    """
    mtp = {f"mtp:k={k}": MTP_ACCEPTED_LEN[:k] for k in (1, 3, 5)}
    drafters = [SynthDrafter(name, "mtp", conditionals(lengths, traffic)) for name, lengths in mtp.items()]
    own = conditionals(DSPARK_ACCEPTED_LEN, traffic + dspark_shift)
    drafters.append(SynthDrafter(DSPARK, "dspark", own))
    return law_trace(drafters, "DeepSeek-V4", anchors=_ANCHORS)
