"""Confidences of synthetic traces as good as they are asked to be: AUC by spread, calibration error by bias.

Synthetic confidences are true (:mod:`~dspark_sim.workload.synthetic`). How well they rank follows from how
much acceptance differs between rounds: the visible spreads, scaled together, until the survival's AUC,
averaged over positions, is the one asked for. How far they are off follows from a bias on each position's
logit, found from left to right, as temperatures are: the survival is too high on average by the error
asked for. A real head before calibration is like that (figure 6 of arXiv 2607.05147).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.schema import FloatArray
from dspark_sim.workload.calibration import sigmoid
from dspark_sim.workload.synth_spec import MAX_SPREAD, SynthSpec
from dspark_sim.workload.synthetic import LOGIT_STEP, synthesise
from dspark_sim.workload.traces import DrafterTrace, Float16Array, Trace
from dspark_sim.workload.visits import evidence, reliability, visited

_SPREADS = ("spread_requests", "spread_rounds", "spread_positions")
#: Texts over which the spreads are found, and least scale of the spreads.
_TEXTS, _LEAST = 200, 0.05
#: Bias beyond which a logit is certain either way.
_MAX_BIAS = 8.0


def match_auc(spec: SynthSpec, auc: float) -> SynthSpec:
    """Return ``spec`` with its visible spreads scaled so that the survival's AUC is ``auc``.

    Args:
        spec: its first drafter with a confidence head is matched; needs spreads above 0.
        auc: mean over positions of the AUC of the survival, on visited anchors.

    Raises:
        InputError: no drafter has a head, no spread is above 0, or no scale reaches ``auc``.
    """
    head = next((drafter for drafter in spec.drafters if drafter.kind == "dspark"), None)
    most = max(getattr(spec, name) for name in _SPREADS)
    if head is None or not most:
        raise InputError(f"AUC {auc:g}: needs a drafter of kind dspark, and a spread above 0")
    from scipy.optimize import brentq

    small = replace(spec, drafters=(head,), requests=min(spec.requests, _TEXTS))
    ends = (_LEAST, MAX_SPREAD / most)
    low, high = (mean_auc(synthesise(_scaled(small, end), "match"), head.name) for end in ends)
    if not low <= auc <= high:
        raise InputError(f"AUC {auc:g}: scaling the spreads gives {low:.3f} to {high:.3f}")

    def off(log_scale: float) -> float:
        return mean_auc(synthesise(_scaled(small, np.exp(log_scale)), "match"), head.name) - auc

    return _scaled(spec, float(np.exp(brentq(off, *np.log(ends), xtol=0.005))))


def mean_auc(trace: Trace, name: str) -> float:
    """Return the AUC of the raw survival, averaged over positions, on visited anchors."""
    drafter = trace.drafter(name)
    scores = reliability(drafter, evidence(trace, drafter, visited(trace, drafter)), calibrated=False)
    return float(np.nanmean(scores.auc_G))


def _scaled(spec: SynthSpec, scale: float) -> SynthSpec:
    return replace(spec, **{name: scale * getattr(spec, name) for name in _SPREADS})


def overconfident(trace: Trace, ece: Sequence[float]) -> Trace:
    """Return ``trace`` with confidences that are too high by a calibration error of ``ece``.

    Args:
        trace: synthetic, with confidences that are true.
        ece: expected calibration error of the survival by position; one value: the same for all.

    Raises:
        InputError: not one value or one a position, or a value that no bias reaches.
    """
    drafters, biases = dict(trace.drafters), {}
    for name, drafter in trace.drafters.items():
        if drafter.has_confidence:
            bias_G = _bias(trace, drafter, _by_position(ece, drafter.gamma))
            drafters[name] = replace(
                drafter,
                confidence_logit_NG=_shifted(drafter.logits_NG(), bias_G),
                confidence_logit_free_NG=_shifted(drafter.logits_NG(free=True), bias_G),
            )
            biases[name] = bias_G.tolist()
    if not biases:
        raise InputError("calibration error: no drafter has a confidence head")
    notes = {**trace.meta["notes"], "requested_ece": list(ece), "confidence_bias": biases}
    return replace(trace, drafters=drafters, meta={**trace.meta, "notes": notes})


def _by_position(ece: Sequence[float], gamma: int) -> list[float]:
    if len(ece) not in (1, gamma) or not all(0 <= value < 1 for value in ece):
        raise InputError(f"calibration error: expected 1 or {gamma} numbers in 0..1, 1 excluded")
    return list(ece) * (gamma if len(ece) == 1 else 1)


def _bias(trace: Trace, drafter: DrafterTrace, ece: list[float]) -> FloatArray:
    """Return the bias of each position's logit [G], from left to right."""
    from scipy.optimize import brentq

    rounds = evidence(trace, drafter, visited(trace, drafter))
    before_M = np.ones(len(rounds.logit_MG))
    biases = []
    for position, wanted in enumerate(ece):
        inside_M, hit = rounds.outcome(position)
        observed, logit_M = float(hit.mean()), rounds.logit_MG[:, position]

        def off(
            bias: float,
            before: FloatArray = before_M[inside_M],
            logit: FloatArray = logit_M[inside_M],
            target: float = observed + wanted,
        ) -> float:
            return float((before * sigmoid(logit + bias)).mean()) - target

        if off(-_MAX_BIAS) > 0 or off(_MAX_BIAS) < 0:
            raise InputError(
                f"calibration error at position {position + 1}: {wanted:g} cannot be reached; "
                f"{observed:.3f} of the rounds accept that far"
            )
        biases.append(float(np.rint(brentq(off, -_MAX_BIAS, _MAX_BIAS) / LOGIT_STEP) * LOGIT_STEP))
        before_M = before_M * sigmoid(logit_M + biases[-1])
    return np.array(biases)


def _shifted(logit_NG: Float16Array, bias_G: FloatArray) -> Float16Array:
    return (logit_NG.astype(np.float64) + bias_G).astype(np.float16)
