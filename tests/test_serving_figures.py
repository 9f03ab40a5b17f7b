"""Figures of served requests: objectives and goodput against plain loops, windows, the growing queue."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_serving import services
from test_serving_cases import run_of
from worlds import constant_cost

from dspark_sim.engine.simulator import serve
from dspark_sim.errors import InputError
from dspark_sim.results.serving import Window, knee_passed, serving_figures
from dspark_sim.results.slo import parse_slos

SLOS = parse_slos(["ttft_p90=60ms", "tpot_p50=12ms", "e2e_p99=200ms"])


def by_hand(run, slo_values, inside):
    """Return which measured requests keep all bounds: a loop over requests."""
    log, kept = run.requests, []
    for q in range(len(log.request)):
        if log.request[q] in inside:
            n = log.output_tokens[q]
            tpot = 0.0 if n == 1 else (log.end_s[q] - log.start_s[q]) / (n - 1)
            times = {"ttft": log.start_s[q] - log.arrival_s[q], "tpot": tpot}
            times["e2e"] = log.end_s[q] - log.arrival_s[q]
            kept.append(all(times[metric] <= limit for metric, limit in slo_values.items()))
    return kept


def with_gaps(run):
    """The requests that ended with more than one token."""
    return {int(q) for q, n in zip(run.requests.request, run.requests.output_tokens, strict=True) if n > 1}


@settings(max_examples=30, deadline=None)
@given(world=services(), whole=st.booleans())
def test_attainment_and_goodput_are_counts(world, whole):
    run = serve(**world)
    count = len(world["demand"])
    window = None if whole or count < 3 else Window(1, count - 1)
    figures = serving_figures(run, SLOS, window)
    inside = set(range(count)) if window is None else set(range(1, count - 1))
    kept = by_hand(run, {slo.metric: slo.limit_s for slo in SLOS}, inside)
    assert figures["measured"] == len(kept)
    if not kept:
        return
    assert figures["attainment"] == pytest.approx(np.mean(kept))
    assert figures["attainment"] <= min(entry["attainment"] for entry in figures["slo"].values())
    for slo in SLOS:
        entry = figures["slo"][slo.name]
        # A text of one token has no time per token: it misses no bound, and is in no quantile.
        counted = inside if slo.metric != "tpot" else inside & with_gaps(run)
        within = by_hand(run, {slo.metric: slo.limit_s}, counted)
        assert entry["met"] == (not within or 100 * np.mean(within) >= slo.percent - 1e-9)
    if figures["goodput_requests_per_s"] is not None:
        assert figures["goodput_requests_per_s"] <= figures["requests_per_s"] + 1e-12
        assert figures["goodput_tok_per_s"] <= figures["tok_per_s"] + 1e-9
    if window is None and figures["makespan_s"]:
        assert figures["window_s"] == pytest.approx(figures["makespan_s"])
        assert figures["tok_per_s"] * figures["makespan_s"] == pytest.approx(run.requests.output_tokens.sum())
        assert figures["goodput_requests_per_s"] * figures["makespan_s"] == pytest.approx(sum(kept))


def test_preemptions_and_waiting_are_counted():
    """One slot, three requests of 3 steps each at once: 2, 1, 0 wait for 3 steps each, so 1 on average."""
    run = run_of([4] * 3, [4] * 3, prefill="none", profile=constant_cost(10.0, max_num_seqs=1))
    figures = serving_figures(run)
    assert (figures["mean_waiting"], figures["most_waiting"]) == (pytest.approx(1.0), 2)
    assert figures["mean_users"] == pytest.approx(1.0)
    assert figures["queue_ms"]["mean"] == pytest.approx(30.0)
    assert (figures["preemptions"], figures["preempted_requests"], figures["refused"]) == (0, 0, 0)


def test_a_service_of_nothing_but_refused_requests_has_no_times():
    from test_serving_cases import kv

    figures = serving_figures(run_of([50, 60], [3, 3], profile=kv(10)), SLOS)
    assert (figures["refused"], figures["measured"], figures["requests_per_s"]) == (2, 0, None)
    assert figures["ttft_ms"]["p99"] is None


@pytest.mark.parametrize(("rate", "passed"), [(60.0, False), (90.0, False), (130.0, True)])
def test_the_knee_is_passed_where_the_queue_grows(rate, passed):
    """One slot of 10 ms a request keeps up with 100 a second; a long queue below that is chance."""
    arrival_s = np.random.default_rng(2).exponential(1 / rate, 2000).cumsum()
    profile = constant_cost(10.0, max_num_seqs=1)
    run = run_of(np.ones(2000, int), np.full(2000, 2), arrival_s, prefill="none", profile=profile)
    assert knee_passed(run.requests) is passed


def test_a_warm_up_must_leave_something():
    assert Window.of(100, 0.25, 0.05) == Window(25, 95)
    with pytest.raises(InputError, match="leaves none to measure"):
        Window.of(3, 0.9, 0.05)
