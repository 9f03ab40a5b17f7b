"""Calibrated confidences: c = sigmoid(logit / temperature + bias), one pair per draft position.

What must be true is the *survival*, the product c_1 ... c_j that a scheduler adds up, so positions are
fitted from left to right, each against "at least j accepted", with the earlier ones held fixed: the
sequential temperature scaling (STS) of the DSpark paper, arXiv 2607.05147, section 3. Shape legend:
M visited anchors, G = gamma.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dspark_sim.schema import FloatArray, IntArray

BoolArray = NDArray[np.bool_]

#: Equal-width bins of the expected calibration error; the paper's figure 6 has 20.
ECE_BINS = 20

#: Temperatures tried: 1/8 .. 8 in steps of 2.6 percent, 1 among them.
TEMPERATURES = np.exp2(np.linspace(-3.0, 3.0, 161))
_BIAS_LIMIT = 8.0
_NEWTON_STEPS = 25


@dataclass(frozen=True, slots=True)
class Calibration:
    """How raw logits become conditional confidences, and where that was fitted.

    Attributes:
        temperatures: one per draft position [G], positive.
        biases: one per draft position [G], added after the division.
        method: ``identity``, ``sts`` (temperatures only) or ``bias`` (both).
        fitted_on: what it was fitted on, in words.
        ece_before, ece_after: expected calibration error of the survival by position [G], on prompts
            that the fit did not see; empty where nothing was fitted.
    """

    temperatures: tuple[float, ...]
    biases: tuple[float, ...]
    method: str = "identity"
    fitted_on: str = ""
    ece_before: tuple[float, ...] = ()
    ece_after: tuple[float, ...] = ()

    @classmethod
    def identity(cls, gamma: int) -> Calibration:
        """Return the calibration that leaves probabilities as they are."""
        return cls((1.0,) * gamma, (0.0,) * gamma)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Calibration:
        """Build from the ``calibration`` object of a trace's metadata (already validated)."""
        fields: dict[str, Any] = {}
        for key, value in document.items():
            numbers = isinstance(value, list)
            fields[key] = tuple(math.nan if x is None else float(x) for x in value) if numbers else value
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """Return the object that a trace's metadata holds; nan becomes null."""
        document = asdict(self)
        for key, value in document.items():
            if isinstance(value, tuple):
                document[key] = [None if math.isnan(x) else x for x in value]
        return document

    def apply(self, logit_NG: ArrayLike) -> FloatArray:
        """Return conditional confidences [N, G] for raw logits [N, G]."""
        scaled = np.asarray(logit_NG, dtype=np.float64) / np.array(self.temperatures) + np.array(self.biases)
        return sigmoid(scaled)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rounds to fit or score on: one row per visited anchor.

    Attributes:
        logit_MG: raw confidence logits of the coupled block.
        accepted_M: accepted run.
        remaining_M: tokens of the text after the anchor; positions past them have no outcome.
    """

    logit_MG: FloatArray
    accepted_M: IntArray
    remaining_M: IntArray

    def take(self, rows: IntArray) -> Evidence:
        """Return the rounds at ``rows``."""
        return Evidence(self.logit_MG[rows], self.accepted_M[rows], self.remaining_M[rows])

    def outcome(self, position: int) -> tuple[BoolArray, BoolArray]:
        """Return (rows that have an outcome at 0-based ``position`` [M], whether those survived it)."""
        inside = self.remaining_M > position
        return inside, self.accepted_M[inside] > position


def fit(evidence: Evidence, method: str) -> Calibration:
    """Fit ``sts`` (one temperature a position) or ``bias`` (temperature and bias a position).

    ``sts`` takes, from left to right, the temperature of the grid that minimises the ECE of the
    survival. ``bias`` gives each temperature the bias that makes the mean survival equal to the share
    that survived, and takes the temperature of least log loss: with the mean already right, the ECE of
    a few thousand rounds hardly tells temperatures apart. A position without evidence keeps its logits.
    """
    survival_M = np.ones(len(evidence.accepted_M))
    fitted: list[tuple[float, float]] = []
    for position in range(evidence.logit_MG.shape[1]):
        inside, hit = evidence.outcome(position)
        logit = evidence.logit_MG[:, position]
        fitted.append(_fit_position(survival_M[inside], logit[inside], hit, method))
        survival_M *= sigmoid(logit / fitted[-1][0] + fitted[-1][1])
    temperatures, biases = zip(*fitted, strict=True)
    return Calibration(temperatures, biases, method)


def fit_sts(evidence: Evidence) -> Calibration:
    """Sequential temperature scaling, the paper's method."""
    return fit(evidence, "sts")


def fit_bias(evidence: Evidence) -> Calibration:
    """Sequential temperature and bias: mends a head that is wrong on average, which STS cannot."""
    return fit(evidence, "bias")


def _fit_position(before: FloatArray, logit: FloatArray, hit: BoolArray, method: str) -> tuple[float, float]:
    if not hit.size:
        return 1.0, 0.0
    criterion = ece if method == "sts" else log_loss
    best, bias = (np.inf, 0.0, 1.0, 0.0), 0.0
    for temperature in TEMPERATURES:
        scaled = logit / temperature
        bias = _mean_bias(before, scaled, float(hit.mean()), bias) if method == "bias" else 0.0
        error = criterion(before * sigmoid(scaled + bias), hit)
        best = min(best, (error, abs(np.log(temperature)), float(temperature), bias))
    return best[2], best[3]


def _mean_bias(before: FloatArray, scaled: FloatArray, share: float, start: float) -> float:
    """Newton's method, kept in bounds, for the bias at which the mean survival is ``share``."""
    bias = start
    for _ in range(_NEWTON_STEPS):
        chance = sigmoid(scaled + bias)
        slope = float(np.mean(before * chance * (1.0 - chance)))
        step = (share - float(np.mean(before * chance))) / max(slope, 1e-9)
        bias = float(np.clip(bias + np.clip(step, -1.0, 1.0), -_BIAS_LIMIT, _BIAS_LIMIT))
        if abs(step) < 1e-6:
            break
    return bias


def sigmoid(x: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    result: FloatArray = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


def ece(probability: FloatArray, hit: BoolArray) -> float:
    """Return the expected calibration error: mean |share hit - mean probability| over the bins.

    Bins are ``ECE_BINS`` equal widths of 0..1, weighted by how many fall in. nan without data.
    """
    if not hit.size:
        return float("nan")
    place = np.minimum((probability * ECE_BINS).astype(np.int64), ECE_BINS - 1)
    gap = np.bincount(place, weights=hit - probability, minlength=ECE_BINS)
    return float(np.abs(gap).sum() / hit.size)


def auc(score: FloatArray, hit: BoolArray) -> float:
    """Return P(score of a hit > score of a miss), ties counted half; nan unless both occur.

    The Mann-Whitney statistic over mid-ranks.
    """
    hits = int(np.count_nonzero(hit))
    misses = hit.size - hits
    if not hits or not misses:
        return float("nan")
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    mid_rank = np.cumsum(counts) - (counts - 1) / 2
    return float((mid_rank[place][hit].sum() - hits * (hits + 1) / 2) / (hits * misses))


def weighted_auc(score: FloatArray, chance: FloatArray, weight: FloatArray) -> float:
    """Return the AUC of ``score`` for outcomes that happen with probability ``chance``, each event weighted;
    nan unless both outcomes have weight."""
    return ranked_auc(np.unique(score, return_inverse=True)[1], chance, weight)


def ranked_auc(place: IntArray, chance: FloatArray, weight: FloatArray) -> float:
    """``weighted_auc`` of scores given by their places from 0, equal scores at equal places."""
    hits = weight * chance
    hit, miss = (np.bincount(place, weights=x) for x in (hits, weight - hits))
    pairs = hit.sum() * miss.sum()
    below = np.cumsum(miss) - miss / 2
    return float((hit * below).sum() / pairs) if pairs else float("nan")


def log_loss(probability: FloatArray, hit: BoolArray) -> float:
    """Return the mean negative log-likelihood of the outcomes [nats]; nan without data."""
    chance = np.where(hit, probability, 1.0 - probability)
    return float(-np.mean(np.log(np.maximum(chance, 1e-12)))) if hit.size else float("nan")


def brier(probability: FloatArray, hit: BoolArray) -> float:
    """Return the mean squared distance of the probability from the outcome; nan without data."""
    return float(np.mean((probability - hit) ** 2)) if hit.size else float("nan")
