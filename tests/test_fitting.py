"""From a sweep to a system and back: arms, texts, recosting, the file, the round trip of a known system."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hardware_cases import small_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.errors import DataError, InputError
from dspark_sim.fit import Unknown
from dspark_sim.fitting.arms import Arm, parse_arms
from dspark_sim.fitting.bench import Bench, longest_text, output_lengths, serve_row, shifted
from dspark_sim.fitting.fitted_file import profile_document, read_fitted, write_fitted
from dspark_sim.fitting.intervals import draws, interval, moved, with_slope_beyond
from dspark_sim.fitting.predict import Predicted, predict
from dspark_sim.fitting.recost import CostAt, row_of
from dspark_sim.fitting.result import fitted_of, fitted_rows, json_rows
from dspark_sim.fitting.start import applicable, scaled_to, with_priors
from dspark_sim.fitting.sweep_fit import Frame, fit_sweep
from dspark_sim.fitting.sweeps import read_sweep, used_rows
from dspark_sim.fitting.system import (
    Acceptance,
    System,
    Workload,
    odds_conditional,
    profile_at,
    workload_with,
)
from dspark_sim.fitting.words import misfit
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import load_profile
from dspark_sim.hardware.reading import parse_profile
from dspark_sim.measured import Measured

SMALL = Workload(
    requests=40,
    requests_at_one=8,
    max_output_tokens=60,
    prompt_tokens=4.0,
    output_tokens=40.0,
    turnaround_ms=0.0,
    prefill="mixed:budget=64",
)
ARMS = parse_arms(["nospec", "k2", "k4", "adaptive"], {})
TRUTH = {"host_constant_ms": 2.0, "first_odds": 2.0, "deeper_odds": 0.8}
UNKNOWNS = [
    Unknown("host_constant_ms", 1.0, 2.0, "guess"),
    Unknown("first_odds", 3.0, 2.0, "guess"),
    Unknown("deeper_odds", 0.8, 0.1, "guess"),
]


def frame():
    return Frame(small_profile(), SMALL, 4)


def true_system():
    bench = Bench(SMALL, 4, SMALL.max_output_tokens)
    modes = {u.name: u.mode for u in UNKNOWNS}
    mode_G = odds_conditional(modes, 4)
    base_G = shifted(bench.base(mode_G), mode_G, odds_conditional(TRUTH, 4))
    acceptance = Acceptance(tuple(base_G.tolist()), (0.5,) * 4)
    return System(frame().profile(TRUTH), SMALL, acceptance)


@pytest.fixture(scope="module")
def sweep():
    """Every row of a small sweep, measured on a system that is known."""
    blank = [Measured(name, load, 1.0, 1.0) for name in ARMS for load in (1, 2, 4)]
    served = predict(true_system(), ARMS, blank)
    return [
        Measured(p.measured.arm, p.measured.concurrency, p.tok_per_s, p.tok_per_s_per_user) for p in served
    ]


@pytest.fixture(scope="module")
def found(sweep):
    return fit_sweep(frame(), UNKNOWNS, ARMS, used_rows(sweep, ["nospec", "k4"]))


@pytest.fixture
def file(found, tmp_path):
    csv = tmp_path / "sweep.csv"
    csv.write_text("arm,concurrency,output_tok_per_s,tok_per_s_per_user\n")
    path = tmp_path / "fitted.yaml"
    write_fitted(path, fitted_of(found, ARMS, csv))
    return path


# Arms


@pytest.mark.parametrize(
    ("name", "policy", "block"),
    [
        ("nospec", "off", 0),
        ("k3", "static:k=3", 3),
        ("mtp1", "mtp:k=1", 1),
        ("adaptive", "vllm-adaptive", 5),
        ("dspark-async:lag=3", "dspark-async:lag=3", 5),
        ("mine", "threshold:on=survival,at=0.5", 5),
    ],
)
def test_names_of_arms_say_what_they_run(name, policy, block):
    given = {"mine": "threshold:on=survival,at=0.5"} if name == "mine" else {}
    assert parse_arms(["k5", name], given)[name] == Arm(name, policy, block)


@pytest.mark.parametrize(
    ("names", "given", "longest", "message"),
    [
        (["ours"], {}, None, "arm 'ours'.*--arm ours=SPEC"),
        (["k3"], {"k4": "full"}, None, "--arm k4: the sweep has no such arm"),
        (["k9"], {}, 7, "drafts 9 tokens"),
    ],
)
def test_an_arm_that_says_nothing_is_named(names, given, longest, message):
    with pytest.raises(InputError, match=message):
        parse_arms(names, given, longest)


# Texts


@given(st.floats(10, 900), st.floats(0.6, 5), st.integers(20, 2000))
def test_lengths_follow_their_law(mean, shape, cut):
    workload = replace(SMALL, output_tokens=mean, output_shape=shape, max_output_tokens=cut)
    quantiles = (np.arange(4000) + 0.5) / 4000
    length = output_lengths(workload, quantiles)
    assert (np.diff(length) >= 0).all()
    assert 2 <= length[0] <= length[-1] <= cut
    assert longest_text(workload) <= cut
    uncut = output_lengths(replace(workload, max_output_tokens=10**6), quantiles)
    assert uncut.mean() == pytest.approx(mean, rel=0.05, abs=1)


def test_without_confidences_the_same_tokens_are_accepted():
    bench = Bench(SMALL, 4, SMALL.max_output_tokens)
    base_G = np.array([1.0, 0.5, 0.2, 0.0])
    plain = bench.trace(SMALL, base_G, {2}, confidences=False)
    full = bench.trace(SMALL, base_G, {2}, confidences=True)
    for block in ("2", "4"):
        np.testing.assert_array_equal(plain.drafters[block].accepted_N, full.drafters[block].accepted_N)
    assert full.drafters["2"].accepted_N.max() == 2
    assert (full.drafters["4"].accepted_N <= full.remaining_N).all()


# Recosting


@settings(deadline=None, max_examples=8)
@given(
    st.sampled_from(["nospec", "k2", "k4"]),
    st.sampled_from([1, 2, 4]),
    st.floats(0.1, 5),
    st.floats(0, 0.2),
    st.floats(0.5, 2),
)
def test_recosting_is_simulating_again(arm, load, constant_ms, per_row_ms, eager):
    system = true_system()
    values = {
        "host_constant_ms": constant_ms,
        "per_logit_row_ms": per_row_ms,
        "eager_scale": eager,
        "mixed_ms": 1.0,
    }
    changed = replace(system, profile=profile_at(system.profile, values))
    bench = Bench(SMALL, 4, SMALL.max_output_tokens)
    trace = bench.trace(SMALL, np.array(system.acceptance.base_logits), {2}, confidences=False)
    block = ARMS[arm].block
    before, after = (
        row_of(serve_row(trace, s, ARMS[arm], load), block, SMALL.asked(load), 0.0) for s in (system, changed)
    )
    costs = [CostAt.of(s.profile, 4, 400).steps_s(before, 1.0) for s in (system, changed)]
    still = np.zeros(len(after.step_s_S))
    assert before.rates(*costs, 0.0) == pytest.approx(after.rates(still, still, 0.0), rel=1e-9)


# The fit


def test_a_known_system_is_found_again(found):
    assert found.fit.values["host_constant_ms"] == pytest.approx(TRUTH["host_constant_ms"], rel=0.06)
    assert np.abs(found.fit.residuals).max() < 0.06  # 8 texts at one user: coins are coarse
    lengths = [1 + np.cumprod(odds_conditional(v, 4)).sum() for v in (TRUTH, found.fit.values)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.03)


def test_rows_that_were_not_fitted_are_predicted(found, sweep):
    predicted = predict(found.system, ARMS, sweep)
    assert max(abs(p.error) for p in predicted) < 0.06
    assert max(abs(p.user_error) for p in predicted) < 0.06


def test_rows_of_a_fit_need_no_simulation(found):
    again = predict(found.system, ARMS, list(found.used))
    for p, q in zip(fitted_rows(found), again, strict=True):
        assert p.tok_per_s == pytest.approx(q.tok_per_s, rel=0.01)


def test_unknowns_that_no_row_depends_on_are_left_out():
    names = [*TRUTH, "eager_scale", "experts_ms", "speculating_ms", "mixed_ms"]
    priors = [Unknown(name, 1.0, 0.3, "") for name in names]
    plain = {"nospec": ARMS["nospec"]}
    kept = {u.name for u in applicable(priors, frame(), plain)}
    assert kept == {"host_constant_ms", "eager_scale", "mixed_ms"}
    with_draft = {u.name for u in applicable(priors, frame(), ARMS)}
    assert {"first_odds", "speculating_ms"} <= with_draft


def test_a_borrowed_curve_is_scaled_to_the_least_loaded_row():
    priors = [Unknown("host_constant_ms", 1.0, 0.3, ""), Unknown("verify_scale", 1.9, 0.1, "")]
    rows = [Measured("nospec", 4, 1.0, 10.0), Measured("nospec", 1, 1.0, 50.0)]
    scale = {u.name: u for u in scaled_to(priors, small_profile(), rows, ARMS)}["verify_scale"]
    assert scale.mode == pytest.approx((20.0 - 1.0) / 5.5)


def test_priors_from_the_command_line():
    found = {u.name: u for u in with_priors(UNKNOWNS, ["first_odds=2:0.1", "mixed_ms=3:0"])}
    assert (found["first_odds"].mode, found["first_odds"].spread) == (2.0, 0.1)
    assert found["mixed_ms"].spread < 1e-3


@pytest.mark.parametrize(
    "word", ["first_odds", "first_odds=2", "first_odds=-1:1", "first_odd=2:1", "mixed_ms=x:1"]
)
def test_a_bad_prior_is_named(word):
    with pytest.raises(InputError, match="--unknown"):
        with_priors(UNKNOWNS, [word])


def test_an_unknown_that_nothing_depends_on_is_refused(sweep):
    with pytest.raises(InputError, match=r"no such unknown.*first_odds"):
        fit_sweep(frame(), [Unknown("first_odd", 1, 1, "")], ARMS, sweep)


# Profiles


def test_unknowns_move_what_they_name():
    base = load_profile("b300-tp4-dsv4-flash")
    values = {
        "verify_fixed_ms": 1.0,
        "verify_scale": 2.0,
        "eager_scale": 1.5,
        "eager_far": 2.0,
        "experts_ms": 6.0,
        "per_request_ms": 0.1,
        "mixed_ms": 3.0,
    }
    profile = profile_at(base, values, experts=(6, 256), draft_share=0.5)
    assert profile.verify.ms[0] == pytest.approx(1 + 2 * base.verify.ms[0])
    assert profile.eager.ms[1] == pytest.approx(1.5 * base.eager.ms[1])
    assert profile.eager.ms[2] == pytest.approx(3.0 * base.eager.ms[2])
    assert profile.draft.dspark.pass_ms == base.draft.dspark.pass_ms
    assert (profile.experts.all_ms, profile.prefill.mixed_ms) == (6.0, 3.0)
    assert profile.host.per_request_ms == 0.1


def test_experts_need_their_share():
    with pytest.raises(InputError, match="experts_ms"):
        profile_at(small_profile(), {"experts_ms": 1.0})


@pytest.mark.parametrize(
    ("scale", "fixed", "eager", "odds"), [(0.3, 4.0, 1.5, 2.0), (3.0, 0.1, 0.4, 0.6), (1.3, 0.5, 0.9, 2.0)]
)
def test_moving_a_fitted_system_is_fitting_it_elsewhere(scale, fixed, eager, odds):
    at = {**TRUTH, "verify_scale": 1.3, "verify_fixed_ms": 0.5, "eager_scale": 0.9}
    to = {
        **TRUTH,
        "verify_scale": scale,
        "verify_fixed_ms": fixed,
        "eager_scale": eager,
        "first_odds": odds,
    }
    system = replace(true_system(), profile=frame().profile(at))
    there = moved(system, at, to)
    wanted = frame().profile(to)
    np.testing.assert_allclose(there.profile.verify.ms, wanted.verify.ms)
    np.testing.assert_allclose(there.profile.eager.ms, wanted.eager.ms)
    np.testing.assert_allclose(there.profile.draft.dspark.pass_ms, wanted.draft.dspark.pass_ms)
    shift = np.array(there.acceptance.base_logits) - np.array(system.acceptance.base_logits)
    np.testing.assert_allclose(shift, np.log(odds / TRUTH["first_odds"]))


def test_a_slope_times_one_is_the_same_curve():
    profile = small_profile(capture={"limit": 64, "sizes": [2, 4, 8, 16, 32, 64]})
    same, steeper = (StepCost(with_slope_beyond(profile, x), 4, 60) for x in (1.0, 2.0))
    cost = StepCost(profile, 4, 60)
    for tokens in (8, 16, 17, 40, 60):
        assert same.step_s(tokens, 1, 0, 0.0, synchronous=False) == pytest.approx(
            cost.step_s(tokens, 1, 0, 0.0, synchronous=False)
        )
    rise = [
        c.step_s(40, 1, 0, 0.0, synchronous=False) - c.step_s(16, 1, 0, 0.0, synchronous=False)
        for c in (cost, steeper)
    ]
    assert rise[1] == pytest.approx(2 * rise[0])


# The file


def test_a_file_is_read_as_it_was_written(found, file):
    read = read_fitted(file)
    assert read.provenance.arms == ("nospec", "k4")
    assert read.values == pytest.approx(found.fit.values, rel=1e-5)
    assert read.system.workload == found.system.workload
    np.testing.assert_allclose(
        read.system.profile.host.constant_ms, found.system.profile.host.constant_ms, rtol=1e-6
    )
    assert read.arms == {name: arm.policy for name, arm in ARMS.items()}
    assert load_profile(file).host.constant_ms == read.system.profile.host.constant_ms
    assert load_profile(file).sources["host.constant_ms"].how == "fitted"


def test_one_thing_of_a_fitted_system_is_changed(file):
    changed = read_fitted(file, {"capture.limit": "8", "workload.max_output_tokens": "90"})
    assert changed.system.profile.capture_limit == 8
    assert (changed.system.workload.max_output_tokens, changed.seen_tokens) == (90, 60)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("workload.requests", "x", "whole number"),
        ("workload.request", "9", "did you mean 'requests'"),
        ("workload.requests", "0", "at least 1"),
        ("workload.prefill", "mixt", "prefill"),
        ("capture.limits", "9", "no such field"),
    ],
)
def test_a_bad_change_is_named(file, path, value, message):
    with pytest.raises(InputError, match=message):
        read_fitted(file, {path: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "format"),
        (lambda d: d.update(more=1), "more"),
        (lambda d: d["acceptance"].pop("base_logits"), "base_logits"),
        (lambda d: d["fit"]["covariance"].pop(), "covariance"),
        (lambda d: d["profile"].pop("verify"), "verify"),
    ],
)
def test_a_broken_file_is_named(file, change, message):
    document = yaml.safe_load(file.read_text())
    change(document)
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(DataError, match=message):
        read_fitted(file)


def test_every_shipped_profile_survives_the_file():
    for name in ("h800", "b300-tp4-dsv4-flash", "h100-llama-3.1-8b"):
        profile = load_profile(name)
        assert parse_profile(profile_document(profile), name) == profile


def test_workload_values_have_their_types():
    assert workload_with(SMALL, {"output_shape": "1.5", "prefill": "none"}).output_shape == 1.5


# Sweeps and intervals


def write_sweep(path, rows):
    path.write_text("arm,concurrency,output_tok_per_s,tok_per_s_per_user\n" + rows)
    return path


def test_an_axis_that_was_cut_measures_nothing(tmp_path):
    path = write_sweep(tmp_path / "s.csv", "k5,256,5295,25.0\nk7,256,4792,25.0\nk7,128,4239,36.9")
    rows, notes = read_sweep(path)
    assert [math.isnan(row.tok_per_s_per_user) for row in rows] == [True, True, False]
    assert len(notes) == 2
    assert not any(math.isnan(row.tok_per_s_per_user) for row in read_sweep(path, cut=0)[0])
    assert all(math.isnan(row.tok_per_s_per_user) for row in read_sweep(path, cut=40)[0])


def test_a_row_that_is_there_twice_is_named(tmp_path):
    with pytest.raises(InputError, match="arm k5 at concurrency 2 is there twice"):
        read_sweep(write_sweep(tmp_path / "s.csv", "k5,2,100,50\nk5,2,101,50"))


def test_an_arm_that_the_sweep_lacks_is_named(sweep):
    with pytest.raises(InputError, match=r"no such arm.*it has: nospec"):
        used_rows(sweep, ["nospek"])


def test_draws_spread_around_the_fit(file):
    fitted = read_fitted(file)
    drawn = [system.profile.host.constant_ms for system in draws(fitted, 200, seed=1)]
    [unknown] = [u for u in fitted.provenance.unknowns if u.name == "host_constant_ms"]
    inside = np.mean([unknown.low < ms < unknown.high for ms in drawn])
    assert 0.88 < inside <= 1
    assert np.exp(np.mean(np.log(drawn))) == pytest.approx(unknown.value, rel=0.03)


def test_an_interval_holds_draws_and_what_the_fit_leaves():
    low, high = interval(np.array([100.0]), np.array([[90.0], [110.0]]), left_over=0.0)
    assert low[0] == pytest.approx(100 * math.exp(-1.96 * 0.1), rel=0.01)
    wider = interval(np.array([100.0]), np.array([[90.0], [110.0]]), left_over=0.1)
    assert wider[0][0] < low[0] < high[0] < wider[1][0]


def test_rows_for_json_have_the_keys_of_the_contract(found):
    rows = json_rows(fitted_rows(found), [("nospec", 1)])
    assert set(rows[0]) == {
        "arm",
        "concurrency",
        "used",
        "measured_tok_per_s",
        "predicted_tok_per_s",
        "measured_tok_per_s_per_user",
        "predicted_tok_per_s_per_user",
    }
    assert [row["used"] for row in rows][:2] == [True, False]


@pytest.mark.parametrize(("simulated", "said"), [(105.0, 0), (120.0, 1)])
def test_a_fit_that_misses_its_own_rows_says_so(simulated, said):
    rows = [
        Predicted(Measured("nospec", 4, 100.0, 25.0), simulated, 25.0),
        Predicted(Measured("k7", 4, 100.0, 25.0), 200.0, 25.0),
    ]
    assert len(misfit(rows, {("nospec", 4)})) == said
    assert misfit(rows, set()) == []
