"""Expected tokens of a round by verification budget, from a synthetic law of acceptance and confidence.

With many requests, verifying the budget's best draft tokens of the whole batch amounts to one
threshold on survival. So the survivals of many rounds, sorted once, give accepted tokens by tokens
verified, and a search over priors needs no simulation. The engine confirms the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.schema import FloatArray
from dspark_sim.workload.calibration import sigmoid
from dspark_sim.workload.published import conditionals_of
from dspark_sim.workload.synthetic import SynthDrafter, SynthSpec, logit, synthesise
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import visited

_POINTS_A_TOKEN = 40
_SPREAD = SynthSpec((), "", "")


def conditionals(accepted_len: Sequence[float], shift: float = 0.0) -> tuple[float, ...]:
    """Return conditional acceptance by position from accepted lengths at k = 1, 2, ..., logits shifted."""
    return tuple(sigmoid(logit(np.array(conditionals_of(accepted_len))) + shift).tolist())


def shifted_accepted_len(accepted_len: Sequence[float], shift: FloatArray) -> FloatArray:
    """Return the accepted length at k = len(accepted_len) under each logit shift; shape of ``shift``."""
    base = logit(np.array(conditionals(accepted_len)))
    return np.asarray(1 + np.cumprod(sigmoid(base + np.asarray(shift)[..., None]), axis=-1).sum(axis=-1))


def shifted_to(conditional: Sequence[float], accepted_len: float) -> tuple[float, ...]:
    """Return ``conditional`` with its logits shifted so that the accepted length is ``accepted_len``."""
    from scipy.optimize import brentq

    base = logit(np.array(conditional))
    shift = brentq(lambda s: 1 + np.cumprod(sigmoid(base + s)).sum() - accepted_len, -4, 4)
    return tuple(sigmoid(base + shift).tolist())


def law_trace(drafters: Sequence[SynthDrafter], target: str, spread: float = 1.0, anchors: int = 0) -> Trace:
    """Return a synthetic trace of long texts after ``drafters``; ``spread`` scales the visible spreads.

    Args:
        drafters: conditional acceptance by position.
        target: model that the trace stands for.
        spread: 1 gives the AUCs of figure 6 of arXiv 2607.05147.
        anchors: about how many output tokens in all; 0: a small trace for expectations.
    """
    spec = SynthSpec(
        drafters=tuple(drafters),
        target=target,
        made="published accepted lengths, spreads after figure 6 of arXiv 2607.05147",
        requests=max(60, anchors // 1000),
        output_tokens=1000.0 if anchors else 250.0,
        spread_requests=spread * _SPREAD.spread_requests,
        spread_rounds=spread * _SPREAD.spread_rounds,
        spread_positions=spread * _SPREAD.spread_positions,
    )
    return synthesise(spec, "law")


@dataclass(frozen=True, slots=True)
class YieldLaw:
    """Accepted draft tokens a round by draft tokens verified a round, over shift [A] and spread [S].

    verified_L: 0..gamma, evenly. accepted_ASL: expected accepted tokens at each.
    """

    shift_A: FloatArray
    spread_S: FloatArray
    verified_L: FloatArray
    accepted_ASL: FloatArray

    def accepted_DL(self, shift_D: FloatArray, spread_D: FloatArray) -> FloatArray:
        """Return accepted tokens by tokens verified at each (shift, spread), read bilinearly; [D, L]."""
        i, u = _place(self.shift_A, shift_D)
        j, v = _place(self.spread_S, spread_D)
        table = self.accepted_ASL
        low = (1 - v)[:, None] * table[i, j] + v[:, None] * table[i, j + 1]
        high = (1 - v)[:, None] * table[i + 1, j] + v[:, None] * table[i + 1, j + 1]
        return np.asarray((1 - u)[:, None] * low + u[:, None] * high)


def yield_law(accepted_len: Sequence[float], shift_A: FloatArray, spread_S: FloatArray) -> YieldLaw:
    """Tabulate the law of a drafter that has ``accepted_len`` at k = 1..gamma.

    Args:
        accepted_len: accepted lengths of fixed-length verification.
        shift_A: shifts of every acceptance logit to tabulate.
        spread_S: spreads to tabulate, as in :func:`law_trace`.
    """
    gamma = len(accepted_len)
    verified_L = np.linspace(0, gamma, _POINTS_A_TOKEN * gamma + 1)
    accepted = [
        [_accepted_L(conditionals(accepted_len, shift), spread, verified_L) for spread in spread_S]
        for shift in shift_A
    ]
    return YieldLaw(shift_A, spread_S, verified_L, np.array(accepted))


def _accepted_L(conditional: tuple[float, ...], spread: float, verified_L: FloatArray) -> FloatArray:
    trace = law_trace([SynthDrafter("law", "dspark", conditional)], "law", spread)
    return best_accepted(trace.drafter("law").survival_NG()[visited(trace, trace.drafter("law"))], verified_L)


def best_accepted(survival_NG: FloatArray, verified_X: FloatArray) -> FloatArray:
    """Return expected accepted tokens a round if the best ``verified_X`` a round are verified; [X]."""
    rounds = len(survival_NG)
    best = np.sort(survival_NG, axis=None)[::-1]
    total = np.concatenate([[0.0], np.cumsum(best)]) / rounds
    return np.asarray(np.interp(verified_X, np.arange(len(total)) / rounds, total))


def _place(grid: FloatArray, value_D: FloatArray) -> tuple[np.ndarray, FloatArray]:
    """Return the cell of each value on an ascending grid and its share of the way through it."""
    cell = np.clip(np.searchsorted(grid, value_D) - 1, 0, len(grid) - 2)
    return cell, (value_D - grid[cell]) / (grid[cell + 1] - grid[cell])
