"""Closed forms: a service made degenerate is a queue whose waiting times are known.

A step of constant cost, one slot, no speculation: a request of n tokens is served for n - 1 steps.
Each mean lies in the 99% interval around the formula that batch means give.
"""

from __future__ import annotations

import numpy as np
import pytest
from worlds import constant_cost, make_profile, make_trace, table

from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import DECODE_ONLY, serve
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.workload.arrivals import parse_arrivals
from dspark_sim.workload.mix import demand_of_workload, make_mix
from dspark_sim.workload.workloads import Workload

SERVICE_S = 0.010
#: Half a two-sided 99% interval of Student's t with 19 degrees of freedom, in standard errors.
T_99 = 2.86


def run_queue(spec, rounds, *, profile: HardwareProfile, serving=DECODE_ONLY, seed=0):
    """Serve requests of ``rounds`` rounds each, arriving by ``spec``; a round commits one token."""
    count = len(rounds)
    trace = make_trace([2000], np.zeros(2000), gamma=1)
    times = parse_arrivals(spec).times(count, seed)
    workload = Workload("queue", {}, times, np.ones(count, dtype=np.int64), rounds + 1)
    mix = make_mix([trace])
    demand = demand_of_workload(mix, workload, seed)
    run = serve(mix.trace, demand, times, profile, parse_policy("off"), seed=seed, serving=serving)
    order = np.argsort(run.requests.request)
    return {name: getattr(run.requests, name)[order] for name in ("arrival_s", "admission_s", "end_s")}


def agrees(values, law: float) -> bool:
    """Whether ``law`` lies in the 99% interval of the mean, from 20 batches after a tenth of warm-up."""
    batches = np.array_split(values[len(values) // 10 :], 20)
    means = np.array([batch.mean() for batch in batches])
    return bool(abs(means.mean() - law) <= T_99 * means.std(ddof=1) / np.sqrt(len(means)))


def one_slot(ms: float = 1e3 * SERVICE_S) -> HardwareProfile:
    return constant_cost(ms, max_num_seqs=1)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_m_d_1(load):
    """Wait = load * service / (2 (1 - load))."""
    log = run_queue(f"poisson:rate={load / SERVICE_S}", np.ones(10_000, dtype=np.int64), profile=one_slot())
    wait_s = log["admission_s"] - log["arrival_s"]
    assert agrees(wait_s, load * SERVICE_S / (2 * (1 - load)))
    np.testing.assert_allclose(log["end_s"] - log["admission_s"], SERVICE_S, rtol=1e-6)


def test_m_m_1():
    """Geometric rounds of a short step are exponential service to within a step: load * E[S] / (1 - load).

    Pollaczek-Khinchine with the geometric's own second moment is exact.
    """
    load, mean_rounds, step_s = 0.6, 15, 0.001
    rounds = np.random.default_rng(1).geometric(1 / mean_rounds, 6_000)
    rate = load / (mean_rounds * step_s)
    log = run_queue(f"poisson:rate={rate}", rounds, profile=one_slot(1e3 * step_s))
    second_moment = (2 * mean_rounds**2 - mean_rounds) * step_s**2
    exact = rate * second_moment / (2 * (1 - load))
    assert agrees(log["admission_s"] - log["arrival_s"], exact)
    assert exact == pytest.approx(load * mean_rounds * step_s / (1 - load), rel=0.04)


def test_m_d_c():
    """With constant service, one queue before c servers is c queues served in turn: round-robin."""
    servers, load = 2, 0.8
    log = run_queue(
        f"poisson:rate={servers * load / SERVICE_S}",
        np.ones(10_000, dtype=np.int64),
        profile=one_slot(),
        serving=Serving(replicas=servers),
    )
    assert agrees(log["admission_s"] - log["arrival_s"], m_d_c_wait(servers, load) * SERVICE_S)


def m_d_c_wait(servers: int, load: float) -> float:
    """Mean wait [services] of M/D/c: number in system one service later, iterated to its stationary law."""
    size = 400
    poisson = np.zeros(size)
    poisson[0] = np.exp(-servers * load)
    for n in range(1, size):
        poisson[n] = poisson[n - 1] * servers * load / n
    law = np.zeros(size)
    law[0] = 1.0
    for _ in range(3000):
        left = np.concatenate([[law[: servers + 1].sum()], law[servers + 1 :]])
        law = np.convolve(left, poisson)[:size]
    queue = (np.maximum(np.arange(size) - servers, 0) * law).sum()
    return queue / (servers * load)


def test_processor_sharing():
    """Step cost in proportion to the batch shares the machine: time in system = service / (1 - load),
    whatever the law of the service times (to within a step)."""
    load, mean_rounds, step_s = 0.5, 30, 0.001
    line = table([1, 100], [1e3 * step_s, 1e5 * step_s], key="tokens", value="ms")
    profile = make_profile(
        verify=line, capture=None, eager=None, host={"constant_ms": 0.0, "bubble_ms": 0.0}, max_num_seqs=90
    )
    rate = load / (mean_rounds * step_s)
    for rounds in (
        np.full(2_000, mean_rounds),
        np.random.default_rng(3).choice([10, 50], 2_000),
    ):
        log = run_queue(f"poisson:rate={rate}", rounds, profile=profile)
        slowdown = (log["end_s"] - log["arrival_s"]) / (rounds * step_s)
        assert np.mean(slowdown) == pytest.approx(1 / (1 - load), rel=0.1)


def test_infinitely_many_servers():
    """A step that costs the same for any batch, slots without end: nobody waits but for a step to end."""
    rounds = np.random.default_rng(4).integers(1, 60, 4_000)
    log = run_queue("poisson:rate=300", rounds, profile=constant_cost(1e3 * SERVICE_S))
    np.testing.assert_allclose(log["end_s"] - log["admission_s"], rounds * SERVICE_S, rtol=1e-6)
    wait_s = log["admission_s"] - log["arrival_s"]
    assert wait_s.max() <= SERVICE_S + 1e-9
    assert agrees(wait_s, SERVICE_S / 2)
