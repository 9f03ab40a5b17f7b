"""The paper case: what is fitted comes back, what is composed adds up, what is predicted obeys its laws."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.registry import parse_policy
from dspark_sim.validation import derivation, paper_cost, paper_predict, paper_run
from dspark_sim.validation.paper_cost import Curve, MtpStep, PaperStep, figure7, figure8, fit_mtp_step
from dspark_sim.validation.paper_predict import DSPARK, predict
from dspark_sim.validation.priors import (
    DSPARK_ACCEPTED_LEN,
    FIRST_DECLARED,
    PAPER,
    TOKENS_DEVIATION,
    draw,
    modes,
)
from dspark_sim.validation.priors_vllm import EXPERTS, UNKNOWNS
from dspark_sim.validation.yields import YieldLaw

RUNNING = np.array([1.0, 2, 5, 20, 100, 200, 350])
STEP = MtpStep(constant_ms=8.0, linear_ms=0.03, bend_ms=2.0, bend_requests=20.0, rms=0.0)


def unknowns(model="V4-Flash"):
    return modes(PAPER[model])


@cache
def linear_law():
    """Every verified token is accepted with the same probability, .5: budgets are decided by cost alone."""
    verified = np.linspace(0, 5, 201)
    return YieldLaw(np.array([-1.0, 1.0]), np.array([0.5, 1.5]), verified, np.tile(verified / 2, (2, 2, 1)))


def test_the_fit_finds_a_known_step():
    step_ms = STEP.constant_ms + STEP.variable_ms(RUNNING)
    found = fit_mtp_step(Curve("made up", RUNNING, 1e3 * RUNNING / step_ms, np.ones(7)))
    np.testing.assert_allclose(found.constant_ms + found.variable_ms(RUNNING), step_ms, rtol=2e-3)
    assert found.rms < 2e-3


@pytest.mark.parametrize("model", PAPER)
@pytest.mark.parametrize("figure", [figure7, figure8])
def test_published_curves_are_fitted_within_their_reading(model, figure):
    curve = figure(model)
    fit = fit_mtp_step(curve)
    step_ms = 1e3 * curve.concurrency_P / curve.tok_per_s_P
    np.testing.assert_allclose(fit.constant_ms + fit.variable_ms(curve.concurrency_P), step_ms, rtol=0.025)
    assert fit.rms < 0.006


@settings(max_examples=50, deadline=None)
@given(
    share=st.floats(0.5, 1),
    fixed=st.floats(0, 0.3),
    by_request=st.floats(0, 1),
    curve=st.floats(0.9, 1.1),
)
def test_mtp_1_costs_what_was_fitted_whatever_the_unknowns(share, fixed, by_request, curve):
    """MTP-1 cannot say how its cost splits, so no split may change it."""
    point = unknowns() | {"token_share": share, "draft_fixed": fixed, "curve": curve}
    point["draft_per_request"] = by_request
    step = PaperStep(STEP, point, 1.79)
    parts_ms = step.verify_ms(2 * RUNNING) + step.requests_ms(RUNNING) + step.draft_ms(RUNNING, 1)
    expected_ms = curve * 1.79 * (STEP.constant_ms + STEP.variable_ms(RUNNING))
    np.testing.assert_allclose(parts_ms, expected_ms, rtol=1e-12)


def test_mtp_passes_cost_in_proportion_and_a_block_costs_more_than_one():
    step = PaperStep(STEP, unknowns(), 1.79)
    np.testing.assert_allclose(step.draft_ms(RUNNING, 3), 3 * step.draft_ms(RUNNING, 1))
    assert (step.draft_ms(RUNNING, None) > step.draft_ms(RUNNING, 1)).all()


def test_the_profile_charges_the_same_step():
    step = PaperStep(STEP, unknowns(), 1.79)
    cost = StepCost(paper_cost.profile_of(step, "V4-Flash", 350, 5), 350, 6 * 350)
    for running in (1, 20, 350):
        for tokens, kind, k, passes in ((6 * running, "dspark", 5, None), (4 * running, "mtp", 3, 3)):
            draft_s = cost.draft_s(kind, running, k)
            found_s = cost.step_s(tokens, running, 1000 * running, draft_s, synchronous=False)
            at = np.array([float(running)])
            expected_ms = step.verify_ms(np.array([float(tokens)])) + step.requests_ms(at)
            assert found_s == pytest.approx(1e-3 * float(expected_ms[0] + step.draft_ms(at, passes)[0]))


def test_dspark_beats_every_fixed_budget_of_the_same_law(monkeypatch):
    monkeypatch.setattr(paper_predict, "dspark_law", linear_law)
    point = {name: np.array([value]) for name, value in unknowns().items()}
    best = predict(STEP, point, RUNNING, DSPARK)
    step = paper_predict.step_at(STEP, point)
    for verified in (0.0, 1.0, 2.5, 5.0):
        step_ms = step.requests_ms(RUNNING) + step.draft_ms(RUNNING, None) + step.waiting_ms(RUNNING)
        step_ms = step_ms + step.verify_ms((1 + verified) * RUNNING)
        assert (best.tok_per_s_DC[0] >= 1e3 * RUNNING * (1 + verified / 2) / step_ms * (1 - 1e-12)).all()


def test_budgets_fall_with_load_and_with_a_steeper_belief(monkeypatch):
    concave = YieldLaw(
        np.array([-1.0, 1.0]),
        np.array([0.5, 1.5]),
        np.linspace(0, 5, 201),
        np.tile(2.6 * (1 - 0.5 ** np.linspace(0, 5, 201)), (2, 2, 1)),
    )
    monkeypatch.setattr(paper_predict, "dspark_law", lambda: concave)
    point = {name: np.array([value, value]) for name, value in unknowns().items()}
    point["believed_slope"] = np.array([1.0, 1.25])
    budget = predict(STEP, point, RUNNING, DSPARK).budget_DC
    assert (np.diff(budget[0]) <= 0).all()
    assert budget[0, 0] > budget[0, -1]
    assert (budget[1] <= budget[0]).all()
    assert budget[1].sum() < budget[0].sum()


@pytest.mark.parametrize("model", PAPER)
def test_priors_are_ranges_with_reasons(model):
    for prior in PAPER[model].values():
        assert prior.low <= prior.mode <= prior.high
        assert prior.low < prior.high
        assert len(prior.why) > 20


@pytest.mark.parametrize("model", PAPER)
def test_derived_priors_are_what_their_evidence_gives(model):
    for name, derived in (("token_share", derivation.token_share(model)), ("traffic", derivation.traffic())):
        stated = PAPER[model][name]
        found = (derived.mode, derived.low, derived.high)
        assert (stated.mode, stated.low, stated.high) == pytest.approx(found, abs=0.0051)
    others = PAPER[model].keys() - {"token_share", "traffic", "slowest_rank"}
    assert all(PAPER[model][name] == FIRST_DECLARED[model][name] for name in others)


def test_priors_as_first_declared_stand():
    """They entered the history before the first prediction: no later view may touch them."""
    modes_then = {
        "traffic": 0.0,
        "dspark_shift": 0.0,
        "token_share": 0.85,
        "spread": 1.0,
        "believed_slope": 1.0,
    }
    flash = modes_then | {"draft_fixed": 0.10, "draft_per_request": 0.65, "curve": 1.0}
    pro = modes_then | {"draft_fixed": 0.08, "draft_per_request": 0.42, "curve": 1.0}
    assert {model: modes(priors) for model, priors in FIRST_DECLARED.items()} == {
        "V4-Flash": flash,
        "V4-Pro": pro,
    }


def test_time_by_request_agrees_between_host_fits_and_the_two_models_slopes():
    """Refits of vLLM's sweeps, and MTP-1's curves with the measured ratio of the two models' tokens."""
    prior = derivation.per_request_us()
    ratios = derivation.work_ratios()
    found = derivation.per_request_by_sizes_us(ratios["measured"])
    assert prior.low < found < prior.high
    assert found == pytest.approx(prior.mode, rel=0.25)
    by_width, by_parameters = (
        derivation.per_request_by_sizes_us(ratios[what])
        for what in ("layers times width", "active parameters")
    )
    assert by_width < prior.mode < by_parameters


@given(theta=st.floats(0.005, 0.1), alpha=st.floats(0, 0.03), ratio=st.floats(2, 4))
def test_the_two_slopes_give_back_the_time_by_request(theta, alpha, ratio):
    slopes = {"V4-Flash": 2e3 * theta + 1e3 * alpha, "V4-Pro": 2e3 * ratio * theta + 1e3 * alpha}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivation, "mtp_slope_us", slopes.__getitem__)
        assert derivation.per_request_by_sizes_us(ratio) == pytest.approx(1e3 * alpha, abs=1e-6)


@pytest.mark.parametrize("priors", [FIRST_DECLARED, PAPER])
def test_anchors_are_read_at_the_sla_and_inside_their_intervals(priors, monkeypatch):
    monkeypatch.setattr(paper_run, "_DRAWS", 40)
    model = paper_run.Model("V4-Flash", priors["V4-Flash"], None, 0)
    served = paper_run.Served(
        "V4-Flash", DSPARK, RUNNING, RUNNING, RUNNING, np.ones((2, 7)), np.ones((2, 7)), np.ones(7)
    )
    rows = model.anchors(served)
    assert [row["sla"] for row in rows] == [80, 120]
    for row in rows:
        assert row["low"] < row["tok_per_s_per_gpu"] < row["high"]
        at_sla = np.array([row["tok_per_s_per_gpu"] / row["sla"]])
        centre = predict(fit_mtp_step(figure7("V4-Flash")), model.centre, at_sla, DSPARK)
        assert centre.tok_per_s_DC[0, 0] / at_sla[0] == pytest.approx(row["sla"], rel=0.002)


def test_waiting_for_the_slowest_rank_is_dsparks_alone():
    step = PaperStep(STEP, unknowns(), 1.79)
    first = PaperStep(STEP, modes(FIRST_DECLARED["V4-Flash"]), 1.79)
    assert not first.waiting_ms(RUNNING).any()
    np.testing.assert_allclose(step.waiting_ms(4 * RUNNING), 2 * step.waiting_ms(RUNNING))
    assert (step.waiting_ms(RUNNING) > 0).all()
    waits, alone = (
        StepCost(paper_cost.profile_of(step, "V4-Flash", 350, 5, waits=waits), 350, 6 * 350)
        for waits in (True, False)
    )
    more_s = waits.step_s(700, 200, 0, 0.0, False) - alone.step_s(700, 200, 0, 0.0, False)
    assert more_s == pytest.approx(1e-3 * step.waiting_ms(np.array([200.0]))[0])


def test_the_slowest_rank_is_the_expected_largest_of_so_many():
    """Of 32 ranks most likely, of 320 at most: the mean over draws of the largest of N normals."""
    prior = PAPER["V4-Pro"]["slowest_rank"]
    normal = np.random.default_rng(0).standard_normal((4000, 320))
    assert normal[:, :32].max(axis=1).mean() == pytest.approx(prior.mode, abs=0.03)
    assert normal.max(axis=1).mean() == pytest.approx(prior.high, abs=0.03)


def test_a_ranks_tokens_vary_in_the_engine_as_the_case_says():
    model = paper_run.Model("V4-Flash", PAPER["V4-Flash"], paper_run.paper_trace(-0.14, 0.0), 0)
    step = paper_predict.step_at(model.fit, {name: np.asarray(value) for name, value in unknowns().items()})
    running = 96
    log = simulate(
        model.trace,
        paper_cost.profile_of(step, "V4-Flash", running, 5, waits=True),
        parse_policy(DSPARK),
        concurrency=running,
        output_tokens=40_000,
        seed=0,
        drafter=DSPARK,
    )
    tokens = log.steps.batch_tokens[20:].astype(float)
    assert tokens.std() / np.sqrt(running) == pytest.approx(TOKENS_DEVIATION, abs=0.25)


def test_draws_stay_in_range_and_do_not_depend_on_each_other():
    priors = PAPER["V4-Pro"]
    drawn = draw(priors, 500, seed=3)
    for name, values in drawn.items():
        assert priors[name].low <= values.min() < values.max() <= priors[name].high
    alone = draw({"token_share": priors["token_share"]}, 500, seed=3)
    np.testing.assert_array_equal(alone["token_share"], drawn["token_share"])
    assert (draw(priors, 500, seed=4)["token_share"] != drawn["token_share"]).any()


def test_accepted_lengths_are_those_of_the_golden_curve():
    assert np.diff((1.0, *DSPARK_ACCEPTED_LEN)) == pytest.approx([0.84, 0.67, 0.5, 0.35, 0.25])


@pytest.mark.parametrize("model", UNKNOWNS)
def test_unknowns_of_the_vllm_cases_are_positive_and_argued(model):
    assert len({unknown.name for unknown in UNKNOWNS[model]}) == len(UNKNOWNS[model])
    for unknown in UNKNOWNS[model]:
        assert unknown.mode > 0
        assert 0 < unknown.spread <= 1
        assert len(unknown.why) > 20
    active, total = EXPERTS[model]
    assert 0 < active < total
