"""The search itself: bracket, bisect, check on requests that were not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dspark_sim.capacity.runs import Runs, without
from dspark_sim.capacity.terms import BEYOND, FOUND, KNEE, NOT_MET, Found, Probe, Question, Terms
from dspark_sim.sweeps.workers import spread

#: Shares of the highest rate that are tried in turn until the objectives hold; then it is halved.
_DESCENT = (0.8, 0.6, 0.4)
#: The same, where shorter runs have said where the answer is.
_NEAR = (0.97, 0.94, 0.9)
#: The lowest rate tried, as a share of the highest.
_LOWEST = 1 / 64
#: Without a knee and a highest rate: how often the rate is doubled.
_DOUBLINGS = 6
#: Most times that runs are made twice as long.
_LONGER = 2


def search_all(
    questions: Sequence[Question], *, jobs: int = 1, on_found: Callable[[], None] = lambda: None
) -> list[Found]:
    """Return the answer to every question, in their order.

    Raises:
        InputError: trace, profile, policy or arrivals do not allow a run.
    """
    found: dict[int, Found] = {}
    for i, answer in spread(search, questions, jobs):
        found[i] = answer
        on_found()
    return [found[i] for i in range(len(questions))]


def search(question: Question) -> Found:
    """Return the highest rate that one policy sustains.

    Raises:
        InputError: as :func:`search_all`.
    """
    runs = Runs(question, question.terms.traffic)
    knees = runs.knees()
    answer = _Search(runs, knees, question.terms).answer()
    for more in reversed(range(_LONGER + 1)):
        longer = runs.twice_as_long()
        if longer is None or answer.status == NOT_MET:
            break
        check = longer.check(answer.rate_per_s, runs.requests)
        answer = replace(answer, check=check)
        if not (check.misses and more):
            break
        runs = longer
        answer = _Search(runs, knees, question.terms).answer(near=answer.rate_per_s)
    return answer


class _Search:
    """Bisection: ``hold`` is the highest rate that holds, ``fail`` the lowest one above it that does not."""

    def __init__(self, runs: Runs, knees: Sequence[float] | None, terms: Terms) -> None:
        self._runs, self._knees, self._terms = runs, knees, terms
        self._probes: dict[float, Probe] = {}

    def answer(self, near: float | None = None) -> Found:
        """Return the answer; ``near``: where shorter runs put it, and it can only be lower."""
        top, status = self._top(near)
        if status:
            return self._found(status, top)
        hold = self._descend(top, near)
        if hold is None:
            return self._found(NOT_MET, _LOWEST * top)
        fail = min(rate for rate, probe in self._probes.items() if rate > hold and not probe.holds)
        while fail > hold * (1 + self._terms.tolerance):
            middle = math.sqrt(hold * fail)
            if self._at(middle).holds:
                hold = middle
            else:
                fail = middle
        return self._found(FOUND, hold)

    def _at(self, rate_per_s: float) -> Probe:
        if rate_per_s not in self._probes:
            self._probes[rate_per_s] = self._runs.probe(rate_per_s)
        return self._probes[rate_per_s]

    def _top(self, near: float | None) -> tuple[float, str]:
        """Return a rate that fails, or the one that ends the search with its status."""
        knee = None if self._knees is None else float(np.mean(self._knees))
        limit = min(rate for rate in (knee, self._terms.max_rate_per_s, math.inf) if rate is not None)
        if near is not None and not self._at(near).holds:
            return near, ""
        if math.isfinite(limit):
            return limit, "" if not self._at(limit).holds else KNEE if limit == knee else BEYOND
        rate = self._runs.all_at_once_per_s()
        for _ in range(_DOUBLINGS):
            if not self._at(rate).holds:
                return rate, ""
            rate *= 2
        return rate / 2, BEYOND

    def _descend(self, top: float, near: float | None) -> float | None:
        """Return the first rate below ``top`` that holds; None if none does."""
        shares: list[float] = [*(_NEAR if near is not None else ()), *_DESCENT]
        for share in shares:
            if self._at(share * top).holds:
                return share * top
        lowest = self._runs.few(_LOWEST * top)
        if not lowest.holds:
            self._probes[_LOWEST * top] = lowest
            return None
        share = _DESCENT[-1] / 2
        while share > _LOWEST:
            if self._at(share * top).holds:
                return share * top
            share /= 2
        self._probes[_LOWEST * top] = lowest
        return _LOWEST * top

    def _found(self, status: str, rate_per_s: float) -> Found:
        question = self._runs.question
        return Found(
            tasks=question.tasks,
            status=status,
            rate_per_s=rate_per_s,
            left_out=self._left_out(status, rate_per_s),
            knee_per_s=None if self._knees is None else float(np.mean(self._knees)),
            at=self._at(rate_per_s),
            probes=tuple(self._probes[rate] for rate in sorted(self._probes)),
            requests=self._runs.requests,
            check=None,
        )

    def _left_out(self, status: str, rate_per_s: float) -> tuple[float, ...]:
        """Return the answer without each replication: where its margin crosses 1 between the probes."""
        count = len(self._runs.drawn)
        if count < 2 or status in (BEYOND, NOT_MET):
            return ()
        rates = sorted(self._probes)
        found = []
        for i in range(count):
            knee = math.inf if self._knees is None else float(np.mean(without(self._knees, i)))
            if status == KNEE:
                found.append(knee)
                continue
            margins = [self._probes[rate].left_out[i] for rate in rates]
            found.append(min(knee, _crossing(rates, margins, rate_per_s)))
        return tuple(found)


def _crossing(rates: Sequence[float], margins: Sequence[float], near: float) -> float:
    """Return where the margin rises through 1, straight in logarithms between probes, nearest to ``near``."""
    log_rate, log_margin = np.log(rates), np.log(margins)
    ups = np.flatnonzero((log_margin[:-1] <= 0) & (log_margin[1:] > 0))
    if not ups.size:
        return float(rates[-1] if log_margin[-1] <= 0 else rates[0])
    share = -log_margin[ups] / (log_margin[ups + 1] - log_margin[ups])
    places = log_rate[ups] + share * (log_rate[ups + 1] - log_rate[ups])
    return float(np.exp(places[np.abs(places - math.log(near)).argmin()]))
