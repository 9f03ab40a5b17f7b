"""What trace and profile say by themselves, kept with the results: acceptance, reliability, step cost.

Over the anchors that a full-block replay visits; intervals are 95% cluster-bootstrap intervals over
prompts (:mod:`dspark_sim.workload.visits`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dspark_sim.hardware.cost import verify_ms
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.calibration import ECE_BINS, Calibration
from dspark_sim.workload.calibration import Evidence as Rounds
from dspark_sim.workload.shelf import slices
from dspark_sim.workload.traces import DrafterTrace, Trace
from dspark_sim.workload.visits import bootstrap, count, evidence, visited

RESAMPLES = 200
_LEVEL = (0.025, 0.975)
#: Rounds that are scored at once.
_ROUNDS = 1 << 16


def gather(
    trace: Trace, profile: HardwareProfile, drafters: Iterable[str], most_requests: int
) -> dict[str, Any]:
    """Return acceptance and reliability of each drafter, and the cost of the forward pass by tokens.

    Args:
        trace: its acceptance and confidences.
        profile: its step cost.
        drafters: names of drafters of the trace.
        most_requests: most requests that run at once; the cost is given up to that many whole blocks.
    """
    chosen = [trace.drafter(name) for name in drafters]
    most_tokens = most_requests * (1 + max(drafter.gamma for drafter in chosen))
    return {
        "drafters": {drafter.name: _drafter(trace, drafter) for drafter in chosen},
        "cost": _cost(profile, most_tokens),
    }


def _drafter(trace: Trace, drafter: DrafterTrace) -> dict[str, Any]:
    anchors = visited(trace, drafter)
    counts = count(trace, drafter, anchors)
    found, (low, high) = counts.total(), bootstrap(counts, RESAMPLES, seed=0)
    document: dict[str, Any] = {
        "kind": drafter.kind,
        "gamma": drafter.gamma,
        "rounds": len(anchors),
        "prompts": len(counts.rounds_K),
        "accepted_len": [found.accepted_len, low.accepted_len, high.accepted_len],
        "conditional": _rows(found.conditional_G, low.conditional_G, high.conditional_G),
        "survival": _rows(found.survival_G, low.survival_G, high.survival_G),
        "calibration": drafter.calibration.method,
    }
    if drafter.has_confidence:
        prompts, prompt_Q = np.unique(trace.prompt_key, return_inverse=True)
        raw = Calibration.identity(drafter.gamma)
        bins = _Bins(len(prompts)), _Bins(len(prompts))
        for some in slices(len(anchors), _ROUNDS):
            rounds = evidence(trace, drafter, anchors[some])
            prompt_M = prompt_Q[trace.request_of(anchors[some])]
            for kept, calibration in zip(bins, (raw, drafter.calibration), strict=True):
                kept.add(rounds, calibration, prompt_M)
        there = np.unique(prompt_Q[trace.request_of(anchors)])
        document["reliability"] = {
            name: kept.document(there) for name, kept in zip(("raw", "calibrated"), bins, strict=True)
        }
    return document


class _Bins:
    """Survivals of all positions together, predicted against observed, by prompt [K] and bin [B]."""

    def __init__(self, prompts: int) -> None:
        self._every, self._hits, self._predicted = (np.zeros((prompts, ECE_BINS)) for _ in range(3))
        self._gap_B: FloatArray = np.zeros(ECE_BINS)

    def add(self, rounds: Rounds, calibration: Calibration, prompt_M: IntArray) -> None:
        """Take in some rounds."""
        survival = np.cumprod(calibration.apply(rounds.logit_MG), axis=1)
        inside, hits, prompts = [], [], []
        for position in range(survival.shape[1]):
            there, hit = rounds.outcome(position)
            inside.append(survival[there, position])
            hits.append(hit)
            prompts.append(prompt_M[there])
        predicted, hit = np.concatenate(inside), np.concatenate(hits).astype(np.float64)
        place = np.minimum((predicted * ECE_BINS).astype(np.int64), ECE_BINS - 1)
        cell = np.concatenate(prompts) * ECE_BINS + place
        shape = self._every.shape
        weights = np.ones(len(cell)), hit, predicted
        sums = [np.bincount(cell, weight, minlength=self._every.size).reshape(shape) for weight in weights]
        self._every += sums[0]
        self._hits += sums[1]
        self._predicted += sums[2]
        self._gap_B += np.bincount(place, hit - predicted, minlength=ECE_BINS)

    def document(self, there: IntArray) -> dict[str, Any]:
        """Return the bins with their intervals, over the prompts ``there``, and the ECE of
        :func:`dspark_sim.workload.calibration.ece`."""
        every, hits = self._every[there], self._hits[there]
        total, mean = every.sum(axis=0), self._predicted[there].sum(axis=0)
        random, share = stream(0, "reliability"), np.full(len(there), 1 / max(len(there), 1))
        draws = (random.multinomial(len(there), share) for _ in range(RESAMPLES))
        ratios = [(draw @ hits) / np.maximum(draw @ every, 1e-9) for draw in draws]
        with np.errstate(invalid="ignore"):
            low, high = np.nanquantile(ratios, _LEVEL, axis=0)
        bins = [
            {
                "rounds": int(total[b]),
                "predicted": float(mean[b] / total[b]),
                "observed": float(hits[:, b].sum() / total[b]),
                "low": float(low[b]),
                "high": float(high[b]),
            }
            for b in np.flatnonzero(total)
        ]
        error = float(np.abs(self._gap_B).sum() / total.sum()) if total.sum() else float("nan")
        return {"ece": error, "bins": bins}


def _cost(profile: HardwareProfile, most_tokens: int) -> dict[str, Any]:
    """Return the forward pass by batch tokens [ms], at the sizes where it bends or jumps."""
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    sizes = np.arange(1, most_tokens + 1)
    ms = verify_ms(profile, most_tokens, captured)[1:]
    kept = _corners(ms)
    return {
        "tokens": sizes[kept].tolist(),
        "ms": [float(f"{value:.6g}") for value in ms[kept]],
        "limit": captured[-1] if captured else None,
    }


def _corners(values: FloatArray) -> IntArray:
    """Return the indices of a curve that straight lines between them rebuild it from."""
    bend = np.abs(np.diff(values, 2)) > 1e-9 * np.abs(values).max()
    return (
        np.flatnonzero(np.concatenate([[True], bend, [True]])) if len(values) > 1 else np.arange(len(values))
    )


def _rows(*columns: FloatArray) -> list[list[float | None]]:
    """Return [value, low, high] by position, None where no round has an outcome."""
    return [[None if np.isnan(value) else float(value) for value in row] for row in np.column_stack(columns)]
