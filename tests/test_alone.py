"""A replica that is alone runs ahead of the clock; an event for every step gives the same records."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import random_profile, random_trace

from dspark_sim.engine import alone
from dspark_sim.engine.serving import Deployment, Serving
from dspark_sim.engine.simulator import serve, simulate
from dspark_sim.policies.registry import parse_policy
from dspark_sim.workload.mix import demand_of_mix, make_mix


def _served(seed: int, spec: str, prefill: str):
    mix = make_mix([random_trace(seed)])
    arrival_s = np.random.default_rng(seed).exponential(0.2, 30).cumsum()
    demand = demand_of_mix(mix, 30, seed, None)
    world = {"seed": seed, "serving": Serving(prefill), "check": True}
    return serve(mix.trace, demand, arrival_s, random_profile(seed, 3), parse_policy(spec), **world)


def _looped(seed: int, spec: str, turnaround_s: float):
    world = {
        "concurrency": 5,
        "output_tokens": 200,
        "seed": seed,
        "turnaround_s": turnaround_s,
        "check": True,
    }
    return simulate(random_trace(seed), random_profile(seed, 3), parse_policy(spec), **world)


RUNS = [
    *((_served, (seed, "dspark-async", "mixed:budget=16")) for seed in range(4)),
    (_served, (5, "dspark", "separate")),
    (_served, (6, "static:k=1", "none")),
    *((_looped, (seed, "dspark-async", 0.03)) for seed in range(3)),
    (_looped, (7, "dspark", 0.0)),
]


@pytest.mark.parametrize(("run", "words"), RUNS)
def test_running_ahead_records_the_same(run, words, monkeypatch):
    monkeypatch.setattr(alone, "STRETCH", 7)
    ahead = run(*words)
    monkeypatch.setattr(Deployment, "_is_alone", False)
    by_event = run(*words)
    assert len(ahead.steps.step_s) > 5
    for part in ("steps", "requests", "gaps"):
        ours, theirs = getattr(ahead, part), getattr(by_event, part)
        for name in ours.__slots__:
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    assert ahead.meta == by_event.meta
