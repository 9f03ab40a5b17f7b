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
    mean, half = mean_and_half(values, 0.1)
    return abs(mean - law) <= half


def mean_and_half(values, warmup: float) -> tuple[float, float]:
    """Mean, and half its 99% interval by 20 batch means, without a share of the values at the front."""
    batches = np.array_split(values[round(warmup * len(values)) :], 20)
    means = np.array([batch.mean() for batch in batches])
    return float(means.mean()), float(T_99 * means.std(ddof=1) / np.sqrt(len(means)))


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


@pytest.mark.parametrize("law", ["constant", "two-point"])
def test_processor_sharing(law):
    """Step cost in proportion to the batch shares the machine: time in system = service / (1 - load),
    whatever the law of the service times. A step is 1/30 of a service, so waiting for one to end adds 1%."""
    load, mean_rounds, step_s = 0.5, 30, 0.001
    line = table([1, 100], [1e3 * step_s, 1e5 * step_s], key="tokens", value="ms")
    profile = make_profile(
        verify=line, capture=None, eager=None, host={"constant_ms": 0.0, "bubble_ms": 0.0}, max_num_seqs=90
    )
    rng = np.random.default_rng(3)
    rounds = np.full(2_000, mean_rounds) if law == "constant" else rng.choice([10, 50], 2_000)
    log = run_queue(f"poisson:rate={load / (mean_rounds * step_s)}", rounds, profile=profile)
    assert agrees((log["end_s"] - log["arrival_s"]) / (rounds * step_s), 1 / (1 - load))


def test_warm_up_and_horizon_do_not_move_a_mean_outside_its_interval():
    """M/D/1 at a load of 0.7, over 4,000 and 8,000 requests, with 5% to 40% of them left out at the front."""
    load, rounds = 0.7, np.ones(8_000, dtype=np.int64)
    spec, law = f"poisson:rate={load / SERVICE_S}", load * SERVICE_S / (2 * (1 - load))
    found = []
    for count in (4_000, 8_000):
        log = run_queue(spec, rounds[:count], profile=one_slot())
        wait_s = log["admission_s"] - log["arrival_s"]
        for share in (0.05, 0.1, 0.2, 0.4):
            found.append(mean_and_half(wait_s, share))
    for mean, half in found:
        assert abs(mean - law) <= half
        assert all(abs(mean - other) <= half + more for other, more in found)


def test_accepted_length_under_arrivals():
    """Each draft token accepted with chance alpha: tau = (1 - alpha^(gamma + 1)) / (1 - alpha)."""
    alpha, gamma, length, count = 0.7, 3, 1_500, 40
    rng = np.random.default_rng(5)
    left = np.arange(length * count)[::-1] % length
    accepted = np.minimum(rng.geometric(1 - alpha, length * count) - 1, gamma)
    mix = make_mix([make_trace([length] * count, np.minimum(accepted, left), gamma=gamma)])
    times = parse_arrivals("poisson:rate=2").times(count, 0)
    workload = Workload("long", {}, times, np.full(count, 5), np.full(count, length))
    demand = demand_of_workload(mix, workload, 0)
    run = serve(mix.trace, demand, times, constant_cost(), parse_policy("full"), seed=0,
                serving=Serving("mixed"))  # fmt: skip
    per_text = (length - 1) / run.requests.rounds
    half = T_99 * per_text.std(ddof=1) / np.sqrt(count)
    assert abs(per_text.mean() - (1 - alpha ** (gamma + 1)) / (1 - alpha)) <= half


def test_infinitely_many_servers():
    """A step that costs the same for any batch, slots without end: nobody waits but for a step to end."""
    rounds = np.random.default_rng(4).integers(1, 60, 4_000)
    log = run_queue("poisson:rate=300", rounds, profile=constant_cost(1e3 * SERVICE_S))
    np.testing.assert_allclose(log["end_s"] - log["admission_s"], rounds * SERVICE_S, rtol=1e-6)
    wait_s = log["admission_s"] - log["arrival_s"]
    assert wait_s.max() <= SERVICE_S + 1e-9
    assert agrees(wait_s, SERVICE_S / 2)
