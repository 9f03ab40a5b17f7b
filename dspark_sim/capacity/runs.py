"""The replications of one policy, served together at any rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dspark_sim.capacity.terms import Check, Probe, Question
from dspark_sim.open_loop import Drawn, Traffic, serve_at
from dspark_sim.results.knee import load_knee
from dspark_sim.results.serving import COOLDOWN, WARMUP, Window, serving_figures
from dspark_sim.results.slo import Slo, latencies
from dspark_sim.results.stats import jackknife
from dspark_sim.schema import FloatArray, RunLog

#: How many requests are enough at a rate so low that they rarely meet.
_FEW = 400
_LEAST_MARGIN = 1e-6


class Runs:
    """The replications of one policy, served at any rate."""

    def __init__(self, question: Question, traffic: Traffic) -> None:
        self.question, self._traffic = question, traffic
        self.drawn = [traffic.draw(task) for task in question.tasks]
        self.requests = len(self.drawn[0].demand)

    def twice_as_long(self) -> Runs | None:
        """Return runs of twice as many requests; None if the workload has not that many."""
        longer = Runs(self.question, replace(self._traffic, requests=2 * self.requests))
        return longer if longer.requests == 2 * self.requests else None

    def knees(self) -> list[float] | None:
        """Return the load knee of each replication [1/s]; None if one has none."""
        found = []
        for task, drawn in zip(self.question.tasks, self.drawn, strict=True):
            run = serve_at(task, drawn, np.zeros_like(drawn.arrival_s_Q))
            found.append(load_knee(run, task.setup.serving.replicas))
        known = [knee for knee in found if knee is not None]
        return known if len(known) == len(found) else None

    def all_at_once_per_s(self) -> float:
        """Return the requests that get done in a second if all come at once [1/s]."""
        task, drawn = self.question.tasks[0], self.drawn[0]
        run = serve_at(task, drawn, np.zeros_like(drawn.arrival_s_Q))
        return len(drawn.demand) / float(run.requests.end_s.max())

    def probe(self, rate_per_s: float) -> Probe:
        """Serve every replication at a rate."""
        window = Window.of(self.requests, WARMUP, COOLDOWN)
        return self._probe(self.drawn, rate_per_s, window)

    def few(self, rate_per_s: float) -> Probe:
        """Serve the first few requests of every replication at a rate so low that few are enough."""
        count = min(_FEW, self.requests)
        traffic = replace(self._traffic, requests=count)
        drawn = [traffic.draw(task) for task in self.question.tasks]
        return self._probe(drawn, rate_per_s, Window(0, count))

    def check(self, rate_per_s: float, seen: int) -> Check:
        """Serve every replication at a rate, and measure what comes behind the first ``seen`` requests."""
        last = Window.of(self.requests, 0.0, COOLDOWN).last
        probe = self._probe(self.drawn, rate_per_s, Window(seen, last))
        interval = jackknife(math.log(probe.margin), [math.log(m) for m in probe.left_out])
        bounds = None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
        return Check(self.requests, probe.margin, bounds)

    def _probe(self, drawn: Sequence[Drawn], rate_per_s: float, window: Window) -> Probe:
        slos = self.question.terms.slos
        times, figures = [], []
        for task, requests in zip(self.question.tasks, drawn, strict=True):
            run = serve_at(task, requests, requests.at_rate(rate_per_s))
            times.append(_measured(run, window, slos))
            figures.append(
                {"rate_scale": 1.0, "offered_per_s": rate_per_s} | serving_figures(run, slos, window)
            )
        margins = _margins(times, slos)
        others = [without(times, i) for i in range(len(times))] if len(times) > 1 else []
        left_out = tuple(max(_margins(some, slos), default=_LEAST_MARGIN) for some in others)
        return Probe(rate_per_s, tuple(margins), max(margins, default=_LEAST_MARGIN), left_out, figures)


def _measured(run: RunLog, window: Window, slos: Sequence[Slo]) -> list[FloatArray]:
    """Return the times that each objective bounds, of the measured requests [s]."""
    mine, latency = window.holds(run.requests), latencies(run.requests)
    return [latency[slo.metric][mine] for slo in slos]


def _margins(times: Sequence[Sequence[FloatArray]], slos: Sequence[Slo]) -> list[float]:
    """Return quantile over bound of each objective, over all replications together."""
    pooled = [np.concatenate([run[i] for run in times]) for i in range(len(slos))]
    return [
        max(slo.value_s(time_s) / slo.limit_s, _LEAST_MARGIN)
        for slo, time_s in zip(slos, pooled, strict=True)
    ]


def without(items: Sequence[Any], index: int) -> list[Any]:
    """Return the items but one."""
    return [item for i, item in enumerate(items) if i != index]
