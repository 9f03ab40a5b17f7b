"""How good confidences are: laws of the AUC's ceiling, of reliability diagrams, and of confidence records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_traces import small_trace

from dspark_sim.errors import DataError
from dspark_sim.workload.calibration import Calibration, Evidence, ece, sigmoid
from dspark_sim.workload.confidence import confidence_report, diagram
from dspark_sim.workload.discrimination import discrimination, pooled_discrimination, share_interval
from dspark_sim.workload.fitting import calibrate_records, read_temperatures, split_prompts
from dspark_sim.workload.importers.confidence import read_confidence_records
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import visited


def trace_of_known_rates(logit_of=np.array, seed: int = 5) -> Trace:
    """A trace whose acceptance has known rates; confidences are ``logit_of(logit of the rate)``."""
    trace = small_trace(seed=seed, requests=300, gamma=3, longest=60)
    drafter, random = trace.drafter("dspark"), np.random.default_rng(seed)
    rate = random.uniform(0.02, 0.98, (len(drafter.accepted_N), 3))
    run = (random.random(rate.shape) < rate).cumprod(axis=1).sum(axis=1)
    logit = np.log(rate / (1 - rate))
    told = replace(
        drafter,
        accepted_N=np.minimum(run, trace.remaining_N).astype(np.uint8),
        confidence_logit_NG=logit_of(logit).astype(np.float16),
        accept_rate_NG=rate.astype(np.float16),
        calibration=Calibration.identity(3),
    )
    return replace(trace, drafters={"dspark": told})


def told_of(trace: Trace):
    drafter = trace.drafter("dspark")
    return discrimination(trace, drafter, visited(trace, drafter))


def test_a_head_that_knows_the_rate_reaches_the_ceiling_and_a_constant_one_tells_nothing():
    perfect = told_of(trace_of_known_rates())
    np.testing.assert_allclose(perfect.share_G, 1.0, atol=0.01)
    assert np.all(perfect.ceiling_G > 0.75)
    np.testing.assert_allclose(told_of(trace_of_known_rates(np.zeros_like)).share_G, 0.0)
    reversed_ = told_of(trace_of_known_rates(np.negative)).share_G
    np.testing.assert_allclose(reversed_, -1.0, atol=0.01)


def test_a_shift_or_scale_of_logits_moves_no_auc_and_noise_lowers_it():
    clean, moved = told_of(trace_of_known_rates()), told_of(trace_of_known_rates(lambda x: 0.5 * x - 2))
    np.testing.assert_allclose(clean.auc_G, moved.auc_G, atol=2e-3)
    random = np.random.default_rng(0)
    noisy = told_of(trace_of_known_rates(lambda x: x + random.normal(0, 3, x.shape)))
    assert np.all(noisy.share_G < 0.8)


def test_events_are_the_rounds_that_decided_a_position():
    trace = trace_of_known_rates()
    drafter = trace.drafter("dspark")
    anchors = visited(trace, drafter)
    accepted, remaining = drafter.accepted_N[anchors], trace.remaining_N[anchors]
    events = [int(((remaining > j) & (accepted >= j)).sum()) for j in range(3)]
    assert told_of(trace).events_G.tolist() == events


def test_a_trace_without_acceptance_rates_has_no_ceiling():
    trace = trace_of_known_rates()
    bare = replace(trace.drafter("dspark"), accept_rate_NG=None)
    told = told_of(replace(trace, drafters={"dspark": bare}))
    assert np.isnan(told.ceiling_G).all()
    assert not np.isnan(told.auc_G).any()


def test_traces_together_are_ranked_in_one_list():
    """A trace twice tells what it tells once; a shift between traces costs AUC but moves no ceiling."""
    trace, moved = trace_of_known_rates(), trace_of_known_rates(lambda x: x + 3.0)
    parts = [(t, t.drafter("dspark"), visited(t, t.drafter("dspark"))) for t in (trace, moved)]
    once, twice, both = told_of(trace), *(pooled_discrimination(p) for p in ([parts[0]] * 2, parts))
    np.testing.assert_array_equal(twice.events_G, 2 * once.events_G)
    np.testing.assert_allclose([twice.auc_G, twice.ceiling_G], [once.auc_G, once.ceiling_G])
    assert np.all(both.auc_G < once.auc_G - 0.02)
    np.testing.assert_allclose(both.ceiling_G, once.ceiling_G)


def test_the_interval_of_a_share_comes_from_resampled_prompts_and_covers_it():
    random = np.random.default_rng(0)
    trace = trace_of_known_rates(lambda x: x + random.normal(0, 1.5, x.shape))
    parts = [(trace, trace.drafter("dspark"), visited(trace, trace.drafter("dspark")))]
    low, high = share_interval(parts)
    share = pooled_discrimination(parts).share_G
    assert np.all((low < share) & (share < high))
    assert np.all(high - low < 0.2)
    assert np.all(np.diff(high - low) > 0), "later positions are decided by fewer rounds"
    again = share_interval(parts)
    np.testing.assert_array_equal(again, (low, high))
    one = trace.take([0])
    alone = share_interval([(one, one.drafter("dspark"), visited(one, one.drafter("dspark")))])
    assert np.isnan(alone).all()


def test_a_diagram_holds_every_round_once_and_gives_the_ece():
    random = np.random.default_rng(1)
    rounds = Evidence(random.normal(0, 2, (4000, 2)), random.integers(0, 3, 4000), np.full(4000, 9))
    calibration = Calibration((0.7, 1.3), (0.4, -0.2), "bias")
    seen = diagram(calibration, rounds)
    assert seen.rounds_GB.sum(axis=1).tolist() == [4000, 4000]
    survival = np.cumprod(calibration.apply(rounds.logit_MG), axis=1)
    for j in range(2):
        gap = np.abs(seen.observed_GB[j] - seen.predicted_GB[j]) * seen.rounds_GB[j]
        expected = ece(survival[:, j], rounds.outcome(j)[1])
        assert np.nansum(gap) / 4000 == pytest.approx(expected)


def test_the_report_scores_on_prompts_that_the_fit_did_not_see():
    trace = trace_of_known_rates(lambda x: x + 1.5)
    report = confidence_report(trace, "dspark", seed=3)
    fits, unseen = split_prompts(trace, 3)
    assert not set(np.array(trace.prompt_key)[fits]) & set(np.array(trace.prompt_key)[unseen])
    part = trace.take(unseen)
    assert report.rounds == len(visited(part, part.drafter("dspark")))
    errors = {name: scored.mean_ece for name, scored in report.methods.items()}
    assert errors["bias"] < 0.03 < errors["sts"] < errors["raw"]


# ---- confidence records


def written(path: Path, records: list[dict]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return path


def rounds_of(count: int, shift: float) -> list[dict]:
    """Rounds of 40 requests whose head says logit + ``shift``."""
    random = np.random.default_rng(2)
    logit = random.normal(0, 1.5, (count, 3))
    hit = random.random(logit.shape) < sigmoid(logit)
    said = sigmoid(logit + shift)
    return [
        {"request_id": n % 40, "confidence": c.tolist(), "accepted": h.tolist()}
        for n, (c, h) in enumerate(zip(said, hit, strict=True))
    ]


def test_a_line_a_round_and_a_line_a_position_read_alike(tmp_path: Path):
    rounds = rounds_of(50, 0.0)
    lines = [
        {"request_id": r["request_id"], "position": j, "confidence": r["confidence"][j], "accepted": flag}
        for r in rounds
        for j, flag in enumerate(r["accepted"])
    ]
    counts = [r | {"accepted": ([*r["accepted"], False]).index(False)} for r in rounds]
    logits = [
        {"request_id": r["request_id"], "confidence_logits": np.log(np.divide(c, np.subtract(1, c))).tolist()}
        | {"num_accepted": ([*r["accepted"], False]).index(False)}
        for r, c in ((r, r["confidence"]) for r in rounds)
    ]
    whole = read_confidence_records(written(tmp_path / "a.jsonl", rounds))
    for name, records in (("b", lines), ("c", counts), ("d", logits)):
        other = read_confidence_records(written(tmp_path / f"{name}.jsonl", records))
        np.testing.assert_allclose(other.rounds.logit_MG, whole.rounds.logit_MG, atol=1e-9)
        assert np.array_equal(other.rounds.accepted_M, whole.rounds.accepted_M)
        assert np.array_equal(other.rounds.remaining_M, whole.rounds.remaining_M)
        assert np.array_equal(other.group_M, whole.group_M)


def test_records_are_calibrated_by_halves_of_requests(tmp_path: Path):
    records = read_confidence_records(written(tmp_path / "r.jsonl", rounds_of(6000, 1.0)))
    fitted = calibrate_records(records, "r.jsonl", "bias")
    np.testing.assert_allclose(fitted.calibration.biases, -1.0, atol=0.35)
    assert np.all(fitted.after.ece_G < 0.04)
    assert fitted.before.ece_G[0] > 0.1
    assert "20 of 40 requests" in fitted.calibration.fitted_on


def test_the_command_writes_temperatures_that_read_back(command, tmp_path: Path):
    file = written(tmp_path / "confidence_records.jsonl", rounds_of(2000, 1.0))
    done = command("calibrate", file, "--method", "sts", "--json")
    assert done.code == 0
    [row] = done.document["drafters"]
    back = read_temperatures(tmp_path / row["json"], 3)
    assert list(back.temperatures) == row["temperatures"]
    assert json.loads((tmp_path / row["json"]).read_text())["sts_temperatures"] == row["temperatures"]


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        ({"accepted": [1]}, "must be an object with one of confidence"),
        ({"confidence": [0.5, 1.5], "accepted": [1, 1]}, "1.5: must be a probability between 0 and 1"),
        ({"confidence": [0.5, 0.5], "accepted": [1]}, "1 flags for 2 confidences"),
        ({"confidence": [0.5], "accepted": 2}, "a count of at most 1"),
        ({"confidence": [0.5], "accepted": ["yes"]}, "'yes': must be true or false"),
        ({"confidence": [0.5]}, "must have one of the keys accepted"),
        ({"confidence": [], "accepted": []}, "at least one confidence"),
        ({"confidence": 0.5, "accepted": 1}, "must have one of the keys position"),
    ],
)
def test_a_record_that_contradicts_itself_is_named_by_line(tmp_path: Path, record: dict, rule: str):
    file = written(tmp_path / "r.jsonl", [*rounds_of(1, 0.0), record])
    with pytest.raises(DataError, match="line 2") as caught:
        read_confidence_records(file)
    assert rule in str(caught.value)
