"""Whether a drafter's confidences tell tokens apart that are accepted and that are not.

The area under the ROC curve (AUC) of the conditional confidence c_j over the rounds that decided position j
on their own, beside its ceiling: the AUC of the analytic acceptance rate 1 - TV(q_j, p_j), which is all that
can be known before the drafted token is drawn (arXiv 2607.05147, section 3). Calibration keeps ranks, so
none moves it. Shape legend: M visited anchors, E rounds that decided a position, G = gamma.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.calibration import auc, ranked_auc
from dspark_sim.workload.traces import DrafterTrace, Trace
from dspark_sim.workload.visits import evidence

#: Resamples of prompts behind an interval: an AUC of 100,000 rounds takes milliseconds.
RESAMPLES = 200

Part = tuple[Trace, DrafterTrace, IntArray]


@dataclass(frozen=True, slots=True)
class Discrimination:
    """AUC of one position's own decision, by position [G]; nan where only one outcome was seen.

    Attributes:
        events_G: rounds that decided the position: all before it were accepted.
        auc_G: of the raw confidence logit.
        ceiling_G: of the analytic acceptance rate; nan in a trace that does not record it.
    """

    events_G: IntArray
    auc_G: FloatArray
    ceiling_G: FloatArray

    @property
    def share_G(self) -> FloatArray:
        """How much of the way from a coin to the ceiling: (AUC - .5) / (ceiling - .5)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            share: FloatArray = (self.auc_G - 0.5) / (self.ceiling_G - 0.5)
        return share


def discrimination(trace: Trace, drafter: DrafterTrace, anchors: IntArray) -> Discrimination:
    """Score the confidences of the rounds at ``anchors`` [M] on the tokens they are about.

    Raises:
        InputError: the drafter has no confidence head.
    """
    return pooled_discrimination([(trace, drafter, anchors)])


def pooled_discrimination(parts: Sequence[Part]) -> Discrimination:
    """Score the rounds of several traces together; the shortest draft says how far.

    A token of one trace is ranked against those of the others too, so this is not a mean over traces.

    Raises:
        InputError: a drafter has no confidence head.
    """
    rows = [
        (at.hit_E.size, auc(at.logit_E, at.hit_E), auc(at.rate_E, at.hit_E) if at.known else float("nan"))
        for at in _positions(parts)
    ]
    events, scores, ceilings = zip(*rows, strict=True)
    return Discrimination(np.array(events), np.array(scores), np.array(ceilings))


def share_interval(
    parts: Sequence[Part], resamples: int = RESAMPLES, seed: int = 0, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Return low and high ends [G] of the share of the ceiling, from resampling prompts (percentiles).

    Rounds of one prompt are alike, so whole prompts are drawn. Nan where a trace records no ceiling, or
    where every resample has only one outcome.

    Raises:
        InputError: a drafter has no confidence head.
    """
    ends = [_share_ends(at, resamples, seed, level) for at in _positions(parts)]
    low, high = np.array(ends).T
    return low, high


def _share_ends(at: _Position, resamples: int, seed: int, level: float) -> tuple[float, float]:
    prompts = int(at.prompt_E.max(initial=-1)) + 1
    if not at.known or prompts < 2:
        return float("nan"), float("nan")
    random, equal = stream(seed, "share of the ceiling"), np.full(prompts, 1 / prompts)
    hit_E, shares = at.hit_E.astype(np.float64), []
    places = [np.unique(score, return_inverse=True)[1] for score in (at.logit_E, at.rate_E)]
    for _ in range(resamples):
        weight_E = random.multinomial(prompts, equal)[at.prompt_E].astype(np.float64)
        own, ceiling = (ranked_auc(place, hit_E, weight_E) for place in places)
        shares.append((own - 0.5) / (ceiling - 0.5) if ceiling != 0.5 else float("nan"))
    seen = np.array(shares)[~np.isnan(shares)]
    if not seen.size:
        return float("nan"), float("nan")
    low, high = np.quantile(seen, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class _Position:
    """The rounds that decided one position: confidence logit, acceptance rate (nan: not recorded), outcome,
    and prompt, counted from 0."""

    logit_E: FloatArray
    rate_E: FloatArray
    hit_E: NDArray[np.bool_]
    prompt_E: IntArray

    @property
    def known(self) -> bool:
        """Whether acceptance rates are recorded."""
        return not np.isnan(self.rate_E).any()


def _positions(parts: Sequence[Part]) -> Iterator[_Position]:
    gamma = min(drafter.gamma for _, drafter, _ in parts)
    numbers: dict[tuple[int, str], int] = {}
    decided = []
    for index, (trace, drafter, anchors) in enumerate(parts):
        own = [numbers.setdefault((index, key), len(numbers)) for key in trace.prompt_key]
        decided.append(_decisions(drafter, trace, anchors, np.array(own)))
    for position in range(gamma):
        columns = zip(*(one[position] for one in decided), strict=True)
        logit_E, rate_E, hit_E, prompt_E = (np.concatenate(column) for column in columns)
        yield _Position(logit_E, rate_E, hit_E, prompt_E)


def _decisions(
    drafter: DrafterTrace, trace: Trace, anchors: IntArray, prompt_Q: IntArray
) -> list[tuple[FloatArray, FloatArray, NDArray[np.bool_], IntArray]]:
    """The columns of ``_Position`` by position, of one trace."""
    rounds = evidence(trace, drafter, anchors)
    if drafter.accept_rate_NG is None:
        rate = np.full(rounds.logit_MG.shape, np.nan)
    else:
        rate = drafter.accept_rate_NG[anchors].astype(np.float64)
    prompt_M, found = prompt_Q[trace.request_of(anchors)], []
    for j in range(drafter.gamma):
        at = (rounds.remaining_M > j) & (rounds.accepted_M >= j)
        found.append((rounds.logit_MG[at, j], rate[at, j], rounds.accepted_M[at] > j, prompt_M[at]))
    return found
