"""Capacity: the search against closed forms and against a grid of its own, its words, its files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from worlds import constant_cost, make_profile, make_trace, table

from dspark_sim.capacity import search as searching
from dspark_sim.capacity.document import document, sentences
from dspark_sim.capacity.runs import Runs
from dspark_sim.capacity.search import search
from dspark_sim.capacity.terms import BEYOND, FOUND, KNEE, NOT_MET, Check, Found, Question, Terms
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve
from dspark_sim.errors import InputError
from dspark_sim.files import write_text
from dspark_sim.open_loop import Traffic
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.slo import Slo, latencies, parse_slos
from dspark_sim.results.stats import jackknife, t_interval
from dspark_sim.sweeps.running import Setup, Task
from dspark_sim.workload.arrivals import parse_arrivals
from dspark_sim.workload.mix import demand_of_mix, make_mix
from dspark_sim.workload.trace_io import read_trace

ROUNDS, STEP_S = 10, 0.010


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Ask for the capacity of a service whose texts take ten steps of 10 ms each, one token a step."""

    def question(
        profile, slos, *, arrivals="deterministic:rate=3", requests=200, seeds=1, max_rate=None, rounds=ROUNDS
    ) -> Found:
        trace = texts(rounds)
        monkeypatch.setattr(Setup, "load_trace", lambda self: trace)
        monkeypatch.setattr(Setup, "load_profile", lambda self: profile)
        setup = Setup(str(tmp_path), f"of the test, {rounds}")
        tasks = tuple(Task(setup, "dspark", "off", 1, seed) for seed in range(seeds))
        traffic = Traffic(arrivals=arrivals, requests=requests)
        return search(Question(tasks, Terms(traffic, parse_slos(slos), max_rate_per_s=max_rate)))

    return question


def texts(rounds: int = ROUNDS):
    return make_trace([rounds + 1] * 4, np.zeros(4 * (rounds + 1)), gamma=1)


def one_slot(slots: int = 1):
    return constant_cost(1e3 * STEP_S, max_num_seqs=slots)


@pytest.mark.parametrize("slots", [1, 3])
def test_the_knee_is_slots_over_service(ask, slots):
    """A backlog of requests of 100 ms each in c slots: c / 0.1 s, to the bit of a rounding."""
    found = ask(one_slot(slots), [])
    assert (found.status, found.knee_per_s) == (KNEE, pytest.approx(slots / (ROUNDS * STEP_S)))
    assert found.rate_per_s == found.knee_per_s


def test_a_clock_is_served_on_time_up_to_the_knee(ask):
    """D/D/1: nobody waits as long as arrivals are slower than the service, so the objective binds nothing."""
    found = ask(one_slot(), ["e2e_p99=111ms"])
    assert (found.status, found.rate_per_s) == (KNEE, pytest.approx(10.0))


def test_a_highest_rate_below_the_limit_is_said_to_be_below_it(ask):
    found = ask(one_slot(), ["e2e_p99=111ms"], max_rate=4.0)
    assert (found.status, found.rate_per_s) == (BEYOND, 4.0)


def test_without_a_limit_on_requests_at_once_there_is_no_knee(ask):
    """Steps of constant cost, slots without end: any rate holds, and no rate is called the limit."""
    found = ask(constant_cost(1e3 * STEP_S), ["tpot_p99=11ms"])
    assert (found.status, found.knee_per_s) == (BEYOND, None)


def test_an_objective_below_the_lone_service_is_met_at_no_rate(ask):
    found = ask(one_slot(), ["tpot_p50=9ms"], seeds=2)
    assert (found.status, found.left_out) == (NOT_MET, ())
    assert found.rate_per_s == pytest.approx(10 / 64)
    [line] = [line for line in sentences(said(found, ["tpot_p50=9ms"])) if "cannot" in line]
    assert "off: cannot meet tpot_p50 <= 9 ms even at 0.16 requests/s, where it is 10.0 ms" in line


def test_the_rate_at_which_a_share_of_arrivals_waits(ask):
    """M/D/1 of service D: P(wait <= x) = (1 - load) exp(load x / D) up to x = D; 80% within D / 2."""
    found = ask(one_slot(), ["queue_p80=5ms"], arrivals="poisson:rate=1", requests=1500, seeds=4, rounds=1)
    law = scipy.optimize.brentq(lambda load: (1 - load) * np.exp(load / 2) - 0.8, 0.1, 0.9) / STEP_S
    assert found.status == FOUND
    low, high = jackknife(np.log(found.rate_per_s), np.log(found.left_out))
    assert low < np.log(law) < high
    assert high - low < 0.3


def test_bisection_agrees_with_a_grid(ask):
    """Step time in proportion to the batch: within 2% of the highest rate of a grid of 1% steps."""
    line = table([1, 100], [1.0, 100.0], key="tokens", value="ms")
    host = {"constant_ms": 2.0, "bubble_ms": 0.0}
    profile = make_profile(verify=line, capture=None, eager=None, host=host, max_num_seqs=64)
    limit_ms = 20
    found = ask(profile, [f"tpot_p90={limit_ms}ms"], arrivals="poisson:rate=1", requests=300, seeds=2)
    trace = make_mix([texts()])
    holds = [
        rate
        for rate in found.rate_per_s * np.arange(0.9, 1.1, 0.01)
        if pooled_ms(trace, profile, "off", range(2), 300, rate, "tpot", 90) <= limit_ms
    ]
    assert found.rate_per_s == pytest.approx(max(holds), rel=0.02)
    assert found.status == FOUND
    assert found.at.margin <= 1 < min(p.margin for p in found.probes if p.rate_per_s > found.rate_per_s)


def pooled_ms(mix, profile, policy, seeds, count, rate, metric, percent, prefill="none") -> float:
    """Quantile of all replications at a rate, in plain loops: no code of the search."""
    times = [t for seed in seeds for t in times_s(mix, profile, policy, seed, count, rate, metric, prefill)]
    known = sorted(t for t in times if not np.isnan(t))
    return 1e3 * known[-(-len(known) * percent // 100) - 1]


def times_s(mix, profile, policy, seed, count, rate, metric, prefill) -> list[float]:
    """Return what the requests between a quarter and 95% of one replication took."""
    arrival_s = parse_arrivals("poisson:rate=1").times(count, seed)
    arrival_s = arrival_s / arrival_s[-1] * count / rate
    run = serve(
        mix.trace, demand_of_mix(mix, count, seed), arrival_s, profile, parse_policy(policy), seed=seed,
        serving=Serving(prefill),
    )  # fmt: skip
    chosen = {q for q in range(count) if count * 0.25 <= q < count * 0.95}
    latency = latencies(run.requests)[metric]
    return [t for q, t in zip(run.requests.request, latency, strict=True) if q in chosen]


def holds(mix, profile, policy, seeds, count, rate, metric, percent, prefill, limit_ms) -> bool:
    """Whether the quantile of all replications keeps its bound; no more of them are run than decide it.

    The quantile breaks its bound as soon as more times are above it than the quantile leaves out of all.
    """
    known = above = 0
    left_out = (1 - percent / 100) * len(seeds) * count * 0.7
    for seed in seeds:
        found = np.array(times_s(mix, profile, policy, seed, count, rate, metric, prefill))
        known += int((~np.isnan(found)).sum())
        above += int((1e3 * found > limit_ms).sum())
        if above > left_out + 1:
            return False
    return above <= known - -(-known * percent // 100)


def test_a_grid_decides_as_the_whole_of_its_replications_do():
    line = table([1, 100], [1.0, 100.0], key="tokens", value="ms")
    profile = make_profile(verify=line, capture=None, eager=None, max_num_seqs=64)
    asked = (make_mix([texts()]), profile, "off", range(3), 80)
    found = [(pooled_ms(*asked, rate, "tpot", 90), rate) for rate in (5.0, 60.0)]
    limits_ms = sorted(value for value, _ in found)
    assert limits_ms[0] < limits_ms[-1]
    for value, rate in found:
        for limit_ms in (*limits_ms, *(limit - 1e-6 for limit in limits_ms)):
            assert holds(*asked, rate, "tpot", 90, "none", limit_ms) == (value <= limit_ms)


def test_runs_that_were_too_short_are_made_longer(ask, monkeypatch):
    """As long as unseen requests miss the objectives, twice; then the answer says so."""
    monkeypatch.setattr(Runs, "check", lambda self, rate, seen: Check(self.requests, 1.2, (1.1, 1.3)))
    found = ask(one_slot(), ["queue_p60=1ms"], arrivals="poisson:rate=1", requests=50, seeds=2)
    assert (found.requests, found.check.requests) == (200, 400)
    assert "upper bound" in " ".join(sentences(said(found, ["queue_p60=1ms"])))
    monkeypatch.setattr(searching, "_LONGER", 0)
    assert ask(one_slot(), ["queue_p60=1ms"], arrivals="poisson:rate=1", requests=50).requests == 50


def said(found: Found, slos):
    terms = Terms(Traffic(), parse_slos(slos))
    return document([found], terms, "off", {})


times = st.lists(st.one_of(st.floats(0, 10), st.just(float("nan"))), min_size=1, max_size=60)


@given(time_s=times, percent=st.sampled_from([1.0, 50.0, 90.0, 99.0, 99.9]), limit_s=st.floats(0.01, 10))
def test_a_quantile_keeps_its_bound_if_and_only_if_that_share_does(time_s, percent, limit_s):
    slo, latency = Slo("tpot", percent, limit_s), np.array(time_s)
    known = latency[~np.isnan(latency)]
    kept = int((known <= limit_s).sum())
    assert (slo.value_s(latency) <= limit_s) == (100 * kept >= percent * len(known) - 1e-6)
    assert slo.kept(latency).sum() == kept + len(latency) - len(known)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_the_jackknife_of_a_mean_is_students_interval(values):
    x = np.array(values)
    interval = t_interval(values)
    left_out = [np.delete(x, i).mean() for i in range(len(x))]
    np.testing.assert_allclose(jackknife(x.mean(), left_out), (interval.low, interval.high), atol=1e-9)
    assert jackknife(1.0, [1.0]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tpot=25ms"], "expected METRIC_pQUANTILE=TIME"),
        (["tpop_p99=25ms"], "unknown metric 'tpop'.*did you mean 'tpot'"),
        (["itl_p99=25ms"], "bound tpot instead"),
        (["tpot_p0=25ms"], "bounds nothing"),
        (["tpot_p99=25"], "no unit"),
        (["tpot_p99=-1ms"], "above 0"),
        (["tpot_p99=.ms"], "not a number"),
        (["tpot_p99=1s", "tpot_p99=2s"], "given twice"),
    ],
)
def test_bad_objectives_are_refused(words, message):
    with pytest.raises(InputError, match=message):
        parse_slos(words)


def test_objectives_have_one_spelling():
    labels = [slo.label for slo in parse_slos(["ttft_p99=2s", "tpot_p99.9=0.025s", "e2e_p50=1500ms"])]
    assert labels == ["ttft_p99=2s", "tpot_p99.9=25ms", "e2e_p50=1.5s"]


ASKED = ("--hw", "h800", "--requests", "60", "--policy", "off", "--policy", "full", "--seeds", "2")


def test_the_command_writes_the_same_folder_with_any_number_of_processes(command, toy_trace, tmp_path):
    import pyarrow.parquet as pq

    asked = ("capacity", "--trace", toy_trace, *ASKED, "--slo", "tpot_p90=8ms", "--set", "max_num_seqs=4")
    one = command(*asked, "--jobs", "1", "--out", tmp_path / "one")
    two = command(*asked, "--jobs", "2", "--out", tmp_path / "two", "--json")
    assert (one.code, two.code) == (0, 0)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["capacity.json", "capacity.png", "capacity.svg", "points.parquet", "run.json"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    answers = json.loads((tmp_path / "one" / "capacity.json").read_text())
    assert answers == two.document
    assert answers["schema"] == "dspark-sim/capacity/1"
    off, full = answers["answers"]
    assert (off["policy"], off["vs_baseline_pct"], full["replications"]) == ("off", 0.0, 2)
    assert off["share_of_knee"] == pytest.approx(off["rate_per_s"] / off["knee_per_s"])
    assert pq.read_table(tmp_path / "one" / "points.parquet")["rate_per_s"].to_pylist() == [
        off["rate_per_s"], full["rate_per_s"]
    ]  # fmt: skip
    assert "load knee" in one.out
    assert "tpot_p90" in one.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slo", "tpot_p99=x"], "--slo"),
        (["--max-rate", "0"], "--max-rate 0.0: must be"),
        (["--tolerance", "2"], "--tolerance 2.0: must be"),
        (["--arrivals", "burst:n=50"], "there is no rate to scale"),
        (["--prefill", "mixd"], "unknown prefill 'mixd'"),
        (["--workload", "no.parquet"], "no.parquet"),
    ],
)
def test_bad_words_are_refused_in_one_line(command, toy_trace, words, message):
    assert message in command("capacity", "--trace", toy_trace, *ASKED, *words).error


def test_a_workload_without_arrivals_comes_as_poisson(command, toy_trace, tmp_path):
    path = tmp_path / "lengths.csv"
    write_text(path, "prompt_tokens,output_tokens\n" + "20,9\n" * 40)
    words = ("--hw", "h800", "--policy", "off", "--seeds", "1", "--set", "max_num_seqs=2", "--json")
    answers = command("capacity", "--trace", toy_trace, *words, "--workload", path).document
    assert answers["about"]["traffic"] | {"sha256": ""} == {
        "workload": "lengths.csv", "sha256": "", "arrivals": "poisson:rate=1", "requests": 40, "mix": []
    }  # fmt: skip
    assert answers["answers"][0]["check"] is None


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["chat", "code", "math"])
def test_the_shipped_traces_agree_with_a_grid(command, trace):
    """Six policies at one objective: each within 2% of the best of a grid of 1% steps around.

    The grid is gone down from its top: the first rate that holds is its highest.
    """
    from dspark_sim.hardware.profile import load_profile

    answers = command(
        "capacity", "--trace", trace, "--hw", "h800", "--slo", "tpot_p99=25ms", "--json"
    ).document
    mix, profile = make_mix([read_trace(trace)]), load_profile("h800", None)
    for entry in answers["answers"]:
        rates = entry["rate_per_s"] * np.arange(0.95, 1.051, 0.01)
        asked = (mix, profile, entry["policy"], range(4), entry["requests"])
        best = next(rate for rate in rates[::-1] if holds(*asked, rate, "tpot", 99, "mixed", 25))
        assert entry["rate_per_s"] == pytest.approx(best, rel=0.02), entry["policy"]
