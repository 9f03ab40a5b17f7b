"""Requests that arrive in time, served under a policy: what arrives, one run, many runs over processes.

A run depends on its task alone. Under one seed every policy and every rate meets the same requests with the
same texts in the same order; a rate only squeezes or stretches the times between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.engine.recorder import Sink
from dspark_sim.engine.simulator import serve
from dspark_sim.errors import InputError
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.details import DETAIL
from dspark_sim.results.serving import COOLDOWN, Window, serving_figures, write_requests
from dspark_sim.results.serving_details import serving_detail
from dspark_sim.results.slo import Slo
from dspark_sim.schema import FloatArray, RunLog
from dspark_sim.sweeps.running import Setup, Task
from dspark_sim.sweeps.workers import spread
from dspark_sim.workload.arrivals import parse_arrivals
from dspark_sim.workload.mix import Demand, Mix, demand_of_mix, demand_of_workload, make_mix, read_mix
from dspark_sim.workload.workloads import read_workload


@dataclass(frozen=True)
class Traffic:
    """Which requests arrive when.

    Attributes:
        workload: request table with lengths, and arrivals unless ``arrivals`` gives them; None: lengths
            are those of the texts.
        arrivals: spec of :mod:`dspark_sim.workload.arrivals`.
        requests: only the first so many; needed where only ``arrivals`` says what comes.
        mix: ``FILE=weight`` words; empty: the texts of the trace alone.
    """

    workload: str | None = None
    arrivals: str | None = None
    requests: int | None = None
    mix: tuple[str, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether arrivals have no end of their own: the run stands for a service in its steady state."""
        return self.arrivals is not None and not self.arrivals.startswith("burst")

    def draw(self, task: Task) -> Drawn:
        """Return the requests that ``task`` meets: the same for every policy under one seed.

        Raises:
            InputError: a file, spec or weight that does not hold, or a workload without arrivals.
        """
        return _draw(self, task.setup, task.share, task.seed)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Requests with their texts, and when they arrive [s]."""

    mix: Mix
    demand: Demand
    arrival_s_Q: FloatArray

    @property
    def rate_per_s(self) -> float:
        """Requests over the time from the start of the clock to the last arrival [1/s]."""
        return len(self.arrival_s_Q) / float(self.arrival_s_Q[-1]) if self.arrival_s_Q[-1] else float("inf")

    def at_rate(self, rate_per_s: float) -> FloatArray:
        """Return the same arrivals squeezed or stretched to ``rate_per_s``, all of them together [s]."""
        return self.arrival_s_Q * (self.rate_per_s / rate_per_s)


@lru_cache(maxsize=8)
def _draw(traffic: Traffic, setup: Setup, share: tuple[int, int] | None, seed: int) -> Drawn:
    mix = _mix(traffic.mix, setup, share)
    cut = setup.max_output_tokens
    if traffic.workload is None:
        assert traffic.requests is not None
        assert traffic.arrivals is not None
        times = parse_arrivals(traffic.arrivals).times(traffic.requests, seed)
        return Drawn(mix, demand_of_mix(mix, len(times), seed, cut), times)
    workload = read_workload(traffic.workload)
    if traffic.requests is not None:
        workload = workload.head(traffic.requests)
    if traffic.arrivals is not None:
        times = parse_arrivals(traffic.arrivals).times(len(workload), seed)
        workload = replace(workload.head(len(times)), arrival_s_Q=times)
    arrivals = workload.arrivals
    return Drawn(mix, demand_of_workload(mix, workload, seed, cut), arrivals)


@lru_cache(maxsize=8)
def _mix(words: tuple[str, ...], setup: Setup, share: tuple[int, int] | None) -> Mix:
    if not words:
        return make_mix([Task(setup, "", "", 0, 0, share).load_trace()])
    if share is not None:
        raise InputError("--replicate prompts: deals out the prompts of --trace; it cannot deal out a --mix")
    return read_mix(words)


@dataclass(frozen=True)
class Arm:
    """One run to serve.

    Attributes:
        task: set-up, drafter, policy, seed; its load is not looked at.
        traffic: what arrives.
        rate_scale: arrivals come so many times as fast.
        warmup: share of the requests, in order of arrival, that are served and not measured; 0 measures
            the run whole, else ``COOLDOWN`` of them are left out at the end too.
        slos: objectives.
        records: file for one row a request; None: none.
        steps: file for one row a step; both files are then written while the run goes on, which keeps
            nothing, and the run has no detail. None: none.
    """

    task: Task
    traffic: Traffic
    rate_scale: float = 1.0
    warmup: float = 0.0
    slos: tuple[Slo, ...] = ()
    records: Path | None = None
    steps: Path | None = None

    @property
    def window(self) -> Window | None:
        """Which requests are measured; None: all."""
        requests = len(self.traffic.draw(self.task).demand)
        return Window.of(requests, self.warmup, COOLDOWN) if self.warmup else None


def serve_at(task: Task, drawn: Drawn, arrival_s_Q: FloatArray, sink: Sink | None = None) -> RunLog:
    """Serve ``drawn`` requests at the given times; ``sink`` as in :func:`dspark_sim.engine.simulator.serve`.

    Raises:
        InputError: trace, profile, policy or arrivals do not allow it.
    """
    setup = task.setup
    return serve(
        drawn.mix.trace,
        drawn.demand,
        arrival_s_Q,
        setup.load_profile(),
        parse_policy(task.policy),
        seed=task.seed,
        drafter=task.drafter,
        believed=setup.load_believed(task.drafter),
        serving=setup.serving,
        fast=setup.fast,
        sink=sink,
    )


def serve_arm(arm: Arm, sink: Sink | None = None) -> RunLog:
    """Serve one run; ``sink`` as in :func:`dspark_sim.engine.simulator.serve`.

    Raises:
        InputError: as :meth:`Traffic.draw` and :func:`serve_at`.
    """
    drawn = arm.traffic.draw(arm.task)
    return serve_at(arm.task, drawn, drawn.arrival_s_Q / arm.rate_scale, sink)


def measure(arm: Arm) -> dict[str, Any]:
    """Serve one run; write its records if they are wanted, and return its figures.

    Beside those of :func:`~dspark_sim.results.serving.serving_figures`: ``rate_scale``, and
    ``offered_per_s``, the requests over the time to the last arrival, and its detail
    (:mod:`~dspark_sim.results.serving_details`).
    """
    return figures_of(arm, serve_arm(arm)) if arm.steps is None else _streamed(arm)


def _streamed(arm: Arm) -> dict[str, Any]:
    from dspark_sim.results.streaming import RunFiles

    assert arm.steps is not None
    assert arm.records is not None
    with RunFiles(arm.steps, arm.records) as files:
        run = serve_arm(arm, files)
    return _rate_of(arm) | files.figures(run, arm.slos, arm.window)


def figures_of(arm: Arm, run: RunLog) -> dict[str, Any]:
    """Return the figures of a run that ``arm`` asked for; write its records if they are wanted."""
    if arm.records is not None:
        write_requests(arm.records, run)
    detail = serving_detail(run, arm.task.setup.load_profile(), arm.window)
    return _rate_of(arm) | serving_figures(run, arm.slos, arm.window) | {DETAIL: detail}


def _rate_of(arm: Arm) -> dict[str, Any]:
    offered = arm.traffic.draw(arm.task).rate_per_s * arm.rate_scale
    return {"rate_scale": arm.rate_scale, "offered_per_s": offered if np.isfinite(offered) else None}


def measure_all(
    arms: Sequence[Arm], *, jobs: int = 1, on_run: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Return the figures of every arm, in their order.

    Raises:
        InputError: as :func:`measure`, at the first arm that is not allowed.
    """
    found: dict[int, dict[str, Any]] = {}
    for i, figures in spread(measure, arms, jobs):
        found[i] = figures
        on_run()
    return [found[i] for i in range(len(arms))]
