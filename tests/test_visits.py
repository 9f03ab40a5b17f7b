"""Visited anchors and what is counted on them, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import small_trace

from dspark_sim.workload.calibration import auc, ece
from dspark_sim.workload.summary import summarise
from dspark_sim.workload.traces import DrafterTrace, Trace
from dspark_sim.workload.visits import bootstrap, count, evidence, reliability, visited

SHAPES = {"seed": st.integers(0, 10**6), "requests": st.integers(1, 9), "gamma": st.integers(1, 8)}


def walk(trace: Trace, drafter: DrafterTrace) -> list[tuple[int, int, int]]:
    """Every round of a full-block replay: (request, anchor, tokens committed)."""
    rounds = []
    for q, n in enumerate(trace.output_tokens_Q.tolist()):
        i = 0
        while i < n - 1:
            committed = min(int(drafter.accepted_N[trace.offset_Q1[q] + i]) + 1, n - 1 - i)
            rounds.append((q, i, committed))
            i += committed
        assert i == n - 1
    return rounds


@settings(deadline=None)
@given(**SHAPES)
def test_visited_anchors_are_those_of_a_replay(seed: int, requests: int, gamma: int):
    trace = small_trace(seed, requests, gamma, longest=30)
    for drafter in trace.drafters.values():
        wanted = [int(trace.offset_Q1[q]) + i for q, i, _ in walk(trace, drafter)]
        assert visited(trace, drafter).tolist() == wanted


@settings(deadline=None)
@given(**SHAPES)
def test_counts_are_those_of_a_replay(seed: int, requests: int, gamma: int):
    trace = small_trace(seed, requests, gamma, longest=30)
    drafter = trace.drafter()
    rounds = walk(trace, drafter)
    figures = count(trace, drafter, visited(trace, drafter)).total()
    if rounds:
        assert figures.accepted_len == pytest.approx(np.mean([c for *_, c in rounds]))
    for j in range(gamma):
        inside, accepted = [], []
        for q, i, _ in rounds:
            if j < trace.output_tokens_Q[q] - 1 - i:
                inside.append(True)
                accepted.append(int(drafter.accepted_N[trace.offset_Q1[q] + i]))
        survived = sum(a > j for a in accepted)
        reached = sum(a >= j for a in accepted)
        np.testing.assert_allclose(figures.survival_G[j], survived / len(inside) if inside else np.nan)
        np.testing.assert_allclose(figures.conditional_G[j], survived / reached if reached else np.nan)


def test_every_token_but_the_first_is_committed_once():
    trace = small_trace(7, requests=9, longest=40)
    for drafter in trace.drafters.values():
        counts = count(trace, drafter, visited(trace, drafter))
        assert counts.committed_K.sum() == (trace.output_tokens_Q - 1).sum()


def test_an_all_accepting_drafter_and_an_all_rejecting_one():
    trace = small_trace(1, requests=4, gamma=3, longest=20)
    drafter = trace.drafter()
    for accepted, conditional in ((3, 1.0), (0, 0.0)):
        run = np.minimum(accepted, trace.remaining_N).astype(np.uint8)
        constant = DrafterTrace("x", "mtp", 3, run, None, None, None, drafter.calibration)
        figures = count(trace, constant, visited(trace, constant)).total()
        np.testing.assert_array_equal(figures.conditional_G[: 3 if accepted else 1], conditional)
        assert figures.accepted_len_uncut == accepted + 1


def test_the_bootstrap_resamples_prompts_not_rounds():
    """Samples of a prompt are copies here, so more samples must not narrow the interval."""
    one = small_trace(2, requests=12, samples=1, longest=40)
    copies = one.take(np.repeat(np.arange(12), 4))
    copies.request_id[:] = [f"{name.partition('#')[0]}#{s % 4}" for s, name in enumerate(copies.request_id)]

    def width(trace: Trace) -> float:
        drafter = trace.drafter()
        low, high = bootstrap(count(trace, drafter, visited(trace, drafter)), 300, seed=1)
        assert low.accepted_len < count(trace, drafter, visited(trace, drafter)).total().accepted_len
        return high.accepted_len - low.accepted_len

    assert width(copies) == pytest.approx(width(one), rel=1e-9)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(0)
    trace = small_trace(0, requests=40, gamma=1, samples=1, longest=30)
    covered = 0
    for trial in range(100):
        run = np.minimum(random.random(len(trace.request_N)) < 0.6, trace.remaining_N).astype(np.uint8)
        coin = DrafterTrace("x", "mtp", 1, run, None, None, None, trace.drafter().calibration)
        low, high = bootstrap(count(trace, coin, visited(trace, coin)), 200, seed=trial)
        covered += bool(low.conditional_G[0] <= 0.6 <= high.conditional_G[0])
    assert 86 <= covered <= 100


def test_reliability_scores_the_survival_inside_the_text():
    trace = small_trace(3, requests=30, gamma=4, longest=60)
    drafter = trace.drafter()
    rounds = evidence(trace, drafter, visited(trace, drafter))
    scores = reliability(drafter, rounds, calibrated=False)
    survival = np.cumprod(1 / (1 + np.exp(-rounds.logit_MG)), axis=1)
    for j in range(4):
        inside = rounds.remaining_M > j
        hit = rounds.accepted_M[inside] > j
        assert scores.ece_G[j] == pytest.approx(ece(survival[inside, j], hit))
        assert scores.auc_G[j] == pytest.approx(auc(survival[inside, j], hit))


def test_the_summary_has_every_domain_and_their_pool():
    trace = small_trace(3, requests=30, gamma=4, longest=60)
    summary = summarise(trace, resamples=20)
    assert summary["output_tokens"] == trace.output_tokens_Q.sum()
    for drafter in summary["drafters"]:
        chat, math, pool = sorted(drafter["domains"], key=lambda d: "cma".index(d["domain"][0]))
        assert (chat["domain"], math["domain"], pool["domain"]) == ("chat", "math", "all")
        assert pool["rounds"] == chat["rounds"] + math["rounds"]
        low, high = pool["accepted_len_ci"]
        assert low <= pool["accepted_len"] <= high
        assert ("ece_raw" in pool) == (drafter["drafter"] == "dspark")


def test_a_position_that_no_round_reaches_has_no_interval_and_no_warning():
    trace = small_trace(seed=3, requests=6, gamma=3, longest=2)
    drafter = trace.drafter("dspark")
    low, high = bootstrap(count(trace, drafter, visited(trace, drafter)), 20, seed=0)
    assert np.isnan(low.conditional_G[-1])
    assert np.isnan(high.conditional_G[-1])
