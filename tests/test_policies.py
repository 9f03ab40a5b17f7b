"""The contract of every policy, and the paper's rules against their literal forms."""

from __future__ import annotations

import copy
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reference import algorithm_1, asynchronous, by_survival, lengths_of, prefix_above

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.dspark import dspark
from dspark_sim.policies.dspark_async import dspark_async
from dspark_sim.policies.registry import parse_policy, policies
from dspark_sim.policies.selection import expected_tokens_M, top_k
from dspark_sim.workload.traces import quantise

EXAMPLES = [info.example for info in policies()]
CLAIM = [info for info in policies() if info.verdict(info.default_lag) != "not-lossless"]
ARRAYS = ("survival_RG", "confidence_RG", "lagged_RG", "step_s_M")
TIES = [0.0, 0.25, 0.5, 0.75, 1.0]


@st.composite
def views(draw, ties=None, lag=2):
    """A batch of any size; confidences from a few values (ties, zeros, ones) or any; jagged costs."""
    running, gamma = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    few = draw(st.booleans()) if ties is None else ties
    values = st.sampled_from(TIES) if few else st.floats(0, 1, allow_subnormal=False)
    confidence, older = (draw(arrays(float, (running, gamma), elements=values)) for _ in range(2))
    costs = st.sampled_from([1.0, 1.0, 2.0, 3.0]) if few else st.floats(0.5, 4.0)
    return BatchView(
        survival_RG=quantise(np.cumprod(confidence, axis=1)),
        confidence_RG=confidence,
        lagged_RG=quantise(np.cumprod(older, axis=1)),
        step_s_M=draw(arrays(float, running * gamma + 1, elements=costs)),
        gamma=gamma,
        lag=lag,
    )


@pytest.mark.parametrize("spec", EXAMPLES)
@settings(max_examples=30, deadline=None)
@given(view=views())
def test_contract(spec, view):
    """One int64 length in 0..gamma a request; same view, same answer; the view is left alone."""
    policy = parse_policy(spec)
    if policy.options.get("k", 0) > view.gamma:
        policy = parse_policy(f"{policy.info.name}:k={view.gamma}")
    before = copy.deepcopy(view._asdict())
    lengths = policy(view)
    assert lengths.shape == (view.num_running,)
    assert lengths.dtype == np.int64
    assert (lengths >= 0).all()
    assert (lengths <= view.gamma).all()
    np.testing.assert_array_equal(policy(view), lengths)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(view, name), before[name])


@pytest.mark.parametrize("spec", [info.example for info in policies() if info.reads == "none"])
def test_a_rule_that_reads_none_answers_without_confidences(spec):
    nothing = np.full((3, 4), np.nan)
    view = BatchView(nothing, nothing, nothing, np.ones(13), gamma=4, lag=0)
    assert len(set(parse_policy(spec)(view).tolist())) == 1


@settings(max_examples=400, deadline=None)
@given(view=views())
def test_dspark_is_the_literal_algorithm_1(view):
    expected = algorithm_1(view.survival_RG.tolist(), view.step_s_M.tolist().__getitem__)
    assert dspark(view).tolist() == expected


@settings(max_examples=400, deadline=None)
@given(view=views())
def test_dspark_async_is_the_literal_rule(view):
    lagged, step_s = view.lagged_RG.tolist(), view.step_s_M.tolist()
    expected = asynchronous(view.survival_RG.tolist(), lagged, step_s.__getitem__)
    assert dspark_async(view).tolist() == expected


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("running", [16, 256])
def test_rules_equal_their_literal_forms_on_large_batches(running, ties):
    rng = np.random.default_rng(running)
    for _ in range(12):
        shape = (running, 7)
        confidence, older = (
            rng.choice([0.0, 0.5, 0.9, 1.0], shape, p=[0.05, 0.25, 0.3, 0.4])
            if ties
            else rng.beta(5, 1, shape)
            for _ in range(2)
        )
        survival, lagged = quantise(np.cumprod(confidence, axis=1)), quantise(np.cumprod(older, axis=1))
        step_s = 1 + np.arange(running * 7 + 1) / running * rng.uniform(0.5, 2) + rng.uniform(0, 0.01)
        view = BatchView(survival, confidence, lagged, step_s, gamma=7, lag=2)
        cost = step_s.tolist().__getitem__
        assert dspark(view).tolist() == algorithm_1(survival.tolist(), cost)
        assert dspark_async(view).tolist() == asynchronous(survival.tolist(), lagged.tolist(), cost)


@settings(max_examples=300, deadline=None)
@given(view=views(), share=st.floats(0, 1), on_grid=st.booleans())
def test_top_k_takes_the_best_in_the_stated_order(view, share, on_grid):
    """Off the grid too: a rule that recalibrates need not round."""
    survival = view.survival_RG if on_grid else np.cumprod(view.confidence_RG, axis=1)
    budget = round(share * survival.size)
    expected = lengths_of(by_survival(survival.tolist())[:budget], view.num_running)
    assert top_k(survival, budget).tolist() == expected


def test_large_batches_off_the_grid_are_not_rounded():
    """Values closer than float32 can tell apart keep their order."""
    survival = 0.5 + np.random.default_rng(0).permutation(2048).reshape(2048, 1) * 1e-12
    lengths = top_k(survival, 1000)
    assert set(np.flatnonzero(lengths).tolist()) == set(np.argsort(-survival[:, 0])[:1000].tolist())


@settings(max_examples=100, deadline=None)
@given(view=views())
def test_expected_tokens_are_sums_of_the_largest(view):
    expected = expected_tokens_M(view.survival_RG)
    values = sorted(view.survival_RG.ravel().tolist(), reverse=True)
    for m in range(len(values) + 1):
        assert expected[m] == view.num_running + sum(values[:m])


@settings(max_examples=100, deadline=None)
@given(
    view=views(), at=st.sampled_from([0.0, 0.25, 0.3, 1.0]), on=st.sampled_from(["survival", "confidence"])
)
def test_threshold_stops_before_the_first_value_below_it(view, at, on):
    values = view.survival_RG if on == "survival" else view.confidence_RG
    lengths = parse_policy(f"threshold:on={on},at={at}")(view)
    assert lengths.tolist() == [prefix_above(row, at) for row in values.tolist()]


# Causality: what a lossless rule may look at (every confidence up to l_r + 1, of all requests together).


def overwritten(view, lengths, fill):
    """The view after every c_{r,j}, j >= l_r + 2, of all requests at once became ``fill``."""
    hidden = np.arange(view.gamma) >= lengths[:, None] + 1
    confidence = np.where(hidden, fill, view.confidence_RG)
    survival = quantise(np.cumprod(confidence, axis=1))
    lagged = survival if view.lag == 0 else view.lagged_RG
    return BatchView(survival, confidence, lagged, view.step_s_M, view.gamma, view.lag)


def at_lag(view, lag):
    return view._replace(lag=lag, lagged_RG=view.survival_RG if lag == 0 else view.lagged_RG)


@pytest.mark.parametrize("info", CLAIM, ids=lambda info: info.name)
@settings(max_examples=60, deadline=None)
@given(view=views(), fill=st.sampled_from([0.0, 0.5, 1.0]))
def test_rules_called_lossless_do_not_look_past_what_they_verify(info, view, fill):
    policy = parse_policy(info.example)
    view = at_lag(view, info.default_lag)
    if policy.options.get("k", 0) <= view.gamma:
        lengths = policy(view)
        np.testing.assert_array_equal(policy(overwritten(view, lengths, fill)), lengths)


def test_the_asynchronous_rule_without_lag_looks_ahead():
    """Its verdict is not-lossless, and here is why: a value behind a verified length decides it."""
    confidence = np.array([[0.8, 0.9]])
    survival = quantise(np.cumprod(confidence, axis=1))
    step_s = np.array([1.0, 2.0, 1 / 0.45])
    view = BatchView(survival, confidence, survival, step_s, gamma=2, lag=0)
    short = overwritten(view, np.array([0]), 0.0)
    assert dspark_async(view).tolist() == [2]
    assert dspark_async(short).tolist() == [0]
    assert dspark_async(overwritten(short, np.array([0]), 0.9)).tolist() == [2]
    assert parse_policy("dspark-async:lag=0").verdict == "not-lossless"
    assert parse_policy("dspark-async:lag=1").verdict == "lossless-under-lag"


# Appendix A of arXiv 2607.05147: one request, gamma 2, two letters, exact.

TARGET = {"A": Fraction(7, 10), "B": Fraction(3, 10)}
DRAFT = {"A": Fraction(1, 2), "B": Fraction(1, 2)}
SPS = (1.0, 0.5, 0.45)


def verified_law(block, length):
    """Law of the first committed token when ``length`` tokens of ``block`` are verified."""
    if length == 0:
        return TARGET
    first = block[0]
    accept = min(Fraction(1), TARGET[first] / DRAFT[first])
    residual = {v: max(TARGET[v] - DRAFT[v], Fraction(0)) for v in TARGET}
    total = sum(residual.values())
    return {v: accept * (v == first) + (1 - accept) * residual[v] / total for v in TARGET}


def output_law(rule):
    """Law of the first output token when ``rule`` decides on every block, over all four blocks."""
    law = dict.fromkeys(TARGET, Fraction(0))
    for block in product("AB", repeat=2):
        confidence = np.array([[0.8, 0.9 if block[0] == "A" else 0.0]])
        survival = quantise(np.cumprod(confidence, axis=1))
        view = BatchView(survival, confidence, survival, 1 / np.array(SPS), gamma=2, lag=0)
        weight = DRAFT[block[0]] * DRAFT[block[1]]
        for token, share in verified_law(block, int(rule(view)[0])).items():
            law[token] += weight * share
    return law


def test_appendix_a():
    """Looking past the stair bends the law of the output; Algorithm 1's early stop keeps it."""
    assert output_law(dspark_async) == {"A": Fraction(85, 100), "B": Fraction(15, 100)}
    assert output_law(dspark) == TARGET
    for length in (1, 2):
        assert output_law(lambda view, k=length: np.array([k])) == TARGET
