"""The anchors that a full-block replay visits, and what a drafter does there.

Averages over *all* anchors of a dense trace weigh easy stretches too much: a replay jumps over them.
Every figure here is taken over visited anchors: start at anchor 0, commit min(accepted + 1, n - 1 - i),
go on from there until the text is complete. Shape legend: Q requests, N anchors, M visited anchors,
G = gamma, K prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.calibration import Calibration, Evidence, auc, brier, ece
from dspark_sim.workload.shelf import Shelf, slices
from dspark_sim.workload.traces import DrafterTrace, Trace

#: Anchors that are replayed at once.
_ANCHORS = 1 << 17


def visited(trace: Trace, drafter: DrafterTrace) -> IntArray:
    """Return the anchors [M], as rows of the trace in ascending order, that a full-block replay visits."""
    parts = (_visited(trace, drafter, *some) for some in _whole_texts(trace.offset_Q1))
    shelf = drafter.home
    rows: IntArray = np.concatenate(list(parts)) if shelf is None else _shelved(shelf, drafter, parts)
    return rows


def _shelved(shelf: Shelf, drafter: DrafterTrace, parts: Iterable[IntArray]) -> IntArray:
    rows: IntArray = shelf.array(f"{drafter.name}.visited", np.int64, (), parts)
    return rows


def _whole_texts(offset_Q1: IntArray) -> Iterator[tuple[int, int]]:
    """Yield (first, last + 1) of requests whose texts together have about :data:`_ANCHORS` anchors."""
    first, count = 0, len(offset_Q1) - 1
    while first < count:
        end = int(np.searchsorted(offset_Q1, offset_Q1[first] + _ANCHORS))
        end = min(max(end, first + 1), count)
        yield first, end
        first = end


def _visited(trace: Trace, drafter: DrafterTrace, first: int, end: int) -> IntArray:
    offset_Q1 = trace.offset_Q1[first : end + 1]
    begin, stop = int(offset_Q1[0]), int(offset_Q1[-1])
    left_N = np.repeat(offset_Q1[1:] - 1, np.diff(offset_Q1)) - np.arange(begin, stop)
    step_N = np.minimum(drafter.accepted_N[begin:stop].astype(np.int64) + 1, left_N)
    seen = np.zeros(len(step_N), dtype=bool)
    at, last = offset_Q1[:-1] - begin, offset_Q1[1:] - 1 - begin
    while (running := at < last).any():
        at, last = at[running], last[running]
        seen[at] = True
        at = at + step_N[at]
    return begin + np.flatnonzero(seen)


def evidence(trace: Trace, drafter: DrafterTrace, anchors: IntArray) -> Evidence:
    """Return the rounds at ``anchors`` [M] as evidence for fitting or scoring confidences.

    Raises:
        InputError: the drafter has no confidence head.
    """
    return Evidence(
        drafter.logits_NG()[anchors].astype(np.float64),
        drafter.accepted_N[anchors].astype(np.int64),
        trace.remaining_of(anchors),
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums per prompt [K, ...] from which every acceptance figure is a ratio.

    Attributes:
        rounds_K, committed_K: rounds, and output tokens they committed (bonus included).
        inside_KG: rounds whose position j lies inside the text.
        survived_KG: those that accepted 1..j.
        reached_KG: those that accepted 1..j-1, so that position j was decided on its own.
    """

    rounds_K: IntArray
    committed_K: IntArray
    inside_KG: IntArray
    survived_KG: IntArray
    reached_KG: IntArray

    def total(self, weight_K: IntArray | None = None) -> Acceptance:
        """Return the pooled figures, each prompt counted ``weight_K`` times (once if None)."""
        weight = np.ones(len(self.rounds_K), dtype=np.int64) if weight_K is None else weight_K
        survived = weight @ self.survived_KG
        conditional = _ratio(survived, weight @ self.reached_KG)
        return Acceptance(
            accepted_len=float(_ratio(weight @ self.committed_K, weight @ self.rounds_K)),
            accepted_len_uncut=1.0 + float(np.nansum(np.cumprod(conditional))),
            survival_G=_ratio(survived, weight @ self.inside_KG),
            conditional_G=conditional,
        )


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance of one drafter over visited anchors; nan where no round has an outcome.

    Attributes:
        accepted_len: output tokens committed per round, bonus included, cut at the end of the text.
        accepted_len_uncut: the same far from the end of a text, 1 + the sum of the survivals that the
            conditionals multiply to; what the literature's tables compare.
        survival_G: share of rounds that accept positions 1..j, of those whose position j is inside.
        conditional_G: share that accepts position j, of those that accepted 1..j-1.
    """

    accepted_len: float
    accepted_len_uncut: float
    survival_G: FloatArray
    conditional_G: FloatArray

    def vector(self) -> FloatArray:
        """Return all figures in one row: accepted_len, accepted_len_uncut, survival, conditional."""
        lengths = [self.accepted_len, self.accepted_len_uncut]
        return np.concatenate([lengths, self.survival_G, self.conditional_G])


def _ratio(above: NDArray[np.int64], below: NDArray[np.int64]) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.true_divide(above, below), dtype=np.float64)


def count(trace: Trace, drafter: DrafterTrace, anchors: IntArray) -> Counts:
    """Return the sums per prompt over ``anchors`` [M]; prompts without an anchor are left out."""
    _, prompt_Q = np.unique(trace.prompt_key, return_inverse=True)
    prompts, gamma = int(prompt_Q.max(initial=-1)) + 1, drafter.gamma
    sums = [
        np.zeros((prompts, *columns), dtype=np.int64) for columns in ((), (), (gamma,), (gamma,), (gamma,))
    ]
    for some in slices(len(anchors), _ANCHORS):
        for total, more in zip(sums, _counted(trace, drafter, anchors[some], prompt_Q), strict=True):
            total[: len(more)] += more
    there = sums[0] > 0
    return Counts(*(total[there] for total in sums))


def _counted(trace: Trace, drafter: DrafterTrace, anchors: IntArray, prompt_Q: IntArray) -> list[IntArray]:
    """Return the sums per prompt over some anchors, up to the last prompt that has one."""
    prompt_M = prompt_Q[trace.request_of(anchors)]
    accepted = drafter.accepted_N[anchors].astype(np.int64)
    remaining = trace.remaining_of(anchors)
    position_G = np.arange(drafter.gamma)
    inside = remaining[:, None] > position_G
    rows = (
        np.ones_like(accepted),
        np.minimum(accepted + 1, remaining),
        inside,
        accepted[:, None] > position_G,
        inside & (accepted[:, None] >= position_G),
    )
    return [_sum_by(prompt_M, row) for row in rows]


def _sum_by(group_M: IntArray, values: NDArray[np.generic]) -> IntArray:
    total = np.zeros((int(group_M.max(initial=-1)) + 1, *values.shape[1:]), dtype=np.int64)
    np.add.at(total, group_M, values)
    return total


def bootstrap(
    counts: Counts, resamples: int, seed: int, level: float = 0.95
) -> tuple[Acceptance, Acceptance]:
    """Return the low and high ends of percentile intervals from resampling prompts.

    Rounds of one prompt are alike, so whole prompts are drawn (cluster bootstrap); of a single prompt
    there is no interval, and the ends are nan.
    """
    prompts = len(counts.rounds_K)
    if prompts < 2:
        nothing = _acceptance(np.full_like(counts.total().vector(), np.nan))
        return nothing, nothing
    random, share = stream(seed, "bootstrap"), np.full(prompts, 1 / prompts)
    draws = np.array([counts.total(random.multinomial(prompts, share)).vector() for _ in range(resamples)])
    # A position that no prompt reaches has no interval; its column would only draw a warning.
    seen = ~np.isnan(draws).all(axis=0)
    ends = np.full((2, draws.shape[1]), np.nan)
    ends[:, seen] = np.nanquantile(draws[:, seen], [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = ends
    return _acceptance(low), _acceptance(high)


def _acceptance(vector: FloatArray) -> Acceptance:
    survival, conditional = np.split(vector[2:], 2)
    return Acceptance(float(vector[0]), float(vector[1]), survival, conditional)


@dataclass(frozen=True, slots=True)
class Reliability:
    """How good the survival predicted by the confidences is, by position [G]."""

    ece_G: FloatArray
    auc_G: FloatArray
    brier_G: FloatArray


def reliability(drafter: DrafterTrace, rounds: Evidence, calibrated: bool) -> Reliability:
    """Score the survivals, raw or under the drafter's calibration, against what was accepted."""
    return score(drafter.calibration if calibrated else Calibration.identity(drafter.gamma), rounds)


def score(calibration: Calibration, rounds: Evidence) -> Reliability:
    """Score the survivals that ``calibration`` gives to ``rounds`` against what was accepted."""
    survival = np.cumprod(calibration.apply(rounds.logit_MG), axis=1)
    scores = []
    for position in range(survival.shape[1]):
        inside, hit = rounds.outcome(position)
        predicted = survival[inside, position]
        scores.append((ece(predicted, hit), auc(predicted, hit), brier(predicted, hit)))
    return Reliability(*np.array(scores).T)
