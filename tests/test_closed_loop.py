"""The closed loop's users take their time between two requests."""

from __future__ import annotations

import numpy as np
from hardware_cases import SMALL
from small_traces import small_trace

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.reading import parse_profile
from dspark_sim.policies.registry import parse_policy

PROFILE = parse_profile(SMALL, "small")


def run(trace, concurrency, requests, turnaround_s=0.0):
    return simulate(
        trace,
        PROFILE,
        parse_policy("off"),
        concurrency=concurrency,
        output_tokens=1,
        seed=0,
        requests=requests,
        turnaround_s=turnaround_s,
        check=True,
    )


def test_a_lone_user_waits_between_requests():
    trace = small_trace(requests=8)
    at_once = run(trace, concurrency=1, requests=8)
    later = run(trace, concurrency=1, requests=8, turnaround_s=0.5)
    np.testing.assert_allclose(later.requests.end_s - at_once.requests.end_s, 0.5 * np.arange(8), atol=1e-9)
    np.testing.assert_array_equal(later.steps.step_s, at_once.steps.step_s)


def test_nobody_runs_during_the_turnaround_of_all():
    trace = small_trace(requests=12, longest=6)
    log = run(trace, concurrency=3, requests=12, turnaround_s=10.0)
    assert (log.requests.arrival_s[3:] >= 10.0).all()
    assert log.completed == 12
