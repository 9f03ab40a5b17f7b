"""Scores against their definitions; fits against known truths."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import small_trace

from dspark_sim.errors import InputError
from dspark_sim.workload.calibration import (
    TEMPERATURES,
    Calibration,
    Evidence,
    auc,
    brier,
    ece,
    fit_bias,
    fit_sts,
    log_loss,
    sigmoid,
)
from dspark_sim.workload.fitting import calibrate, read_temperatures, split_prompts, write_temperatures
from dspark_sim.workload.visits import evidence, reliability, visited

SCORED = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=1)


@given(SCORED)
def test_auc_is_the_share_of_pairs_ranked_right(data: list[tuple[float, bool]]):
    score, hit = map(np.array, zip(*data, strict=True))
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in score[hit] for b in score[~hit]]
    np.testing.assert_allclose(auc(score, hit), np.mean(pairs) if pairs else np.nan)


@given(SCORED)
def test_ece_is_the_weighted_gap_over_twenty_bins(data: list[tuple[float, bool]]):
    probability, hit = map(np.array, zip(*data, strict=True))
    gap = 0.0
    for b in range(20):
        inside = (probability >= b / 20) & ((probability < (b + 1) / 20) | (b == 19))
        if inside.any():
            gap += inside.mean() * abs(hit[inside].mean() - probability[inside].mean())
    assert ece(probability, hit) == pytest.approx(gap, abs=1e-12)
    assert brier(probability, hit) == pytest.approx(np.mean((probability - hit) ** 2))


def test_scores_of_nothing_are_nan():
    nothing = np.zeros(0), np.zeros(0, dtype=bool)
    assert all(np.isnan(score(*nothing)) for score in (ece, auc, brier, log_loss))


def rounds(size: int, temperatures: list[float], biases: list[float], seed: int = 0) -> Evidence:
    """Rounds whose acceptance really is sigmoid(logit / t + b), with texts that end here and there."""
    random = np.random.default_rng(seed)
    logit = random.normal(1.0, 2.0, (size, len(temperatures)))
    truth = sigmoid(logit / np.array(temperatures) + np.array(biases))
    run = np.logical_and.accumulate(random.random(truth.shape) < truth, axis=1).sum(axis=1)
    remaining = random.integers(1, 12, size)
    return Evidence(logit, np.minimum(run, remaining), remaining)


def test_sts_finds_the_temperatures_and_the_errors_fall():
    truth = [1.6, 1.4, 2.0]
    data = rounds(40_000, truth, [0.0] * 3)
    fitted = fit_sts(data)
    assert fitted.method == "sts"
    assert set(fitted.biases) == {0.0}
    np.testing.assert_allclose(np.log(fitted.temperatures), np.log(truth), atol=0.15)
    raw, mended = np.ones(40_000), np.ones(40_000)
    for j in range(3):
        inside, hit = data.outcome(j)
        raw = raw * sigmoid(data.logit_MG[:, j])
        mended = mended * sigmoid(data.logit_MG[:, j] / fitted.temperatures[j])
        assert ece(mended[inside], hit) < 0.012 < 0.03 < ece(raw[inside], hit)
        assert log_loss(mended[inside], hit) < log_loss(raw[inside], hit)


def test_sts_takes_the_best_of_the_grid_given_the_earlier_ones():
    data = rounds(3_000, [1.3, 0.8], [0.2, -0.4])
    first, second = fit_sts(data).temperatures
    inside, hit = data.outcome(1)
    logit = data.logit_MG[inside]
    before = sigmoid(logit[:, 0] / first)
    errors = [ece(before * sigmoid(logit[:, 1] / t), hit) for t in TEMPERATURES]
    assert second == TEMPERATURES[int(np.argmin(errors))]


def test_a_head_that_is_right_keeps_its_logits_nearly():
    fitted = fit_sts(rounds(40_000, [1.0] * 3, [0.0] * 3, seed=1))
    np.testing.assert_allclose(np.log(fitted.temperatures), 0.0, atol=0.12)


def test_a_bias_mends_what_temperatures_cannot():
    temperatures, biases = [1.5, 0.8, 1.2], [-0.8, 0.5, -0.3]
    data = rounds(40_000, temperatures, biases)
    fitted = fit_bias(data)
    np.testing.assert_allclose(np.log(fitted.temperatures), np.log(temperatures), atol=0.12)
    np.testing.assert_allclose(fitted.biases, biases, atol=0.12)
    sts = fit_sts(data).apply(data.logit_MG)
    inside, hit = data.outcome(0)
    assert ece(fitted.apply(data.logit_MG)[inside, 0], hit) < 0.5 * ece(sts[inside, 0], hit)


def test_positions_past_every_text_keep_their_logits():
    data = Evidence(np.ones((50, 3)), np.zeros(50, dtype=int), np.ones(50, dtype=int))
    assert fit_sts(data).temperatures[1:] == (1.0, 1.0)


@settings(deadline=None)
@given(st.integers(0, 100), st.integers(2, 20))
def test_samples_of_a_prompt_stay_on_one_side(seed: int, requests: int):
    trace = small_trace(0, requests=max(requests, 3))
    fit_rows, unseen_rows = split_prompts(trace, seed)
    assert sorted([*fit_rows, *unseen_rows]) == list(range(len(trace.request_id)))
    sides = [{trace.prompt_key[q] for q in rows} for rows in (fit_rows, unseen_rows)]
    assert not sides[0] & sides[1]
    assert all(sides)


def test_calibrating_leaves_the_logits_alone_and_scores_unseen_prompts():
    trace = small_trace(5, requests=40, longest=60)
    fitted = calibrate(trace, "dspark", seed=3)
    raw, kept = (t.drafter("dspark").logits_NG() for t in (trace, fitted.trace))
    np.testing.assert_array_equal(raw, kept)
    assert fitted.trace.meta["drafters"]["dspark"]["calibration"] == fitted.calibration.to_json()
    unseen = fitted.trace.take(split_prompts(trace, 3)[1])
    drafter = unseen.drafter("dspark")
    data = evidence(unseen, drafter, visited(unseen, drafter))
    for calibrated, kept in ((False, fitted.calibration.ece_before), (True, fitted.calibration.ece_after)):
        np.testing.assert_array_equal(reliability(drafter, data, calibrated).ece_G, kept)
    assert fitted.calibration.fitted_on.startswith("10 prompts")


def test_what_cannot_be_calibrated_says_why():
    trace = small_trace(5, requests=6)
    with pytest.raises(InputError, match="unknown calibration method 'platt'; there are: sts, bias"):
        calibrate(trace, "dspark", "platt")
    with pytest.raises(InputError, match=r"drafter 'eagle' has no column 'eagle.confidence_logit'"):
        calibrate(trace, "eagle")
    with pytest.raises(InputError, match="has one prompt"):
        calibrate(trace.take([0, 1]), "dspark")


def test_temperatures_as_json_go_out_and_come_back(tmp_path: Path):
    fitted = Calibration((1.5, 0.7), (0.1, -0.2), "bias", "some prompts", (0.1, 0.2), (0.0, 0.1))
    write_temperatures(tmp_path / "sts.json", fitted)
    assert json.loads((tmp_path / "sts.json").read_text())["sts_temperatures"] == [1.5, 0.7]
    back = read_temperatures(tmp_path / "sts.json", 2)
    assert (back.temperatures, back.biases, back.method) == ((1.5, 0.7), (0.1, -0.2), "bias")
    (tmp_path / "engine.json").write_text('{"temperatures": [1, 2]}')
    assert read_temperatures(tmp_path / "engine.json", 2).temperatures == (1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be JSON"),
        ("[]", r"key 'sts_temperatures': must be a list of 2 finite numbers above 0"),
        ('{"sts_temperatures": [1.0]}', "list of 2"),
        ('{"sts_temperatures": [1.0, 0.0]}', "above 0"),
        ('{"sts_temperatures": [1.0, NaN]}', "finite"),
        ('{"sts_temperatures": [1.0, true]}', "finite numbers"),
        ('{"sts_temperatures": [1.0, 2.0], "biases": [1]}', "key 'biases'"),
    ],
)
def test_bad_temperature_files(tmp_path: Path, text: str, message: str):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_temperatures(path, 2)
    with pytest.raises(InputError, match="No such file"):
        read_temperatures(tmp_path / "absent.json", 2)
