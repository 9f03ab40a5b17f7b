"""Axes change what they say and nothing else; the command draws and tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_traces import small_trace

from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.misread import at_context, shifted, stale, truncated
from dspark_sim.hardware.profile import load_profile
from dspark_sim.sensitivity import AXES, World, axis, explore, values_of
from dspark_sim.workload.blur import blurred
from dspark_sim.workload.calibration import auc
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.visits import visited


def world():
    trace, other = (small_trace(seed=s, requests=10, gamma=5, longest=40) for s in (4, 5))
    return World(trace, load_profile("h800"), other=other)


def changed(name, value):
    before = world()
    after = axis(name).change(before, value)
    return before.trace.drafter(), after.trace.drafter(), after


@pytest.mark.parametrize("name", AXES)
def test_the_neutral_value_changes_nothing(name):
    before = world()
    neutral = 5 if name == "gamma" else AXES[name].neutral
    settings = {"concurrency": 4, "output_tokens": 60, "seed": 0}
    for row in explore(name, before, [neutral], ["dspark-async"], **settings):
        assert row["change"] == 0.0
        assert row["point"]["tok_per_s"] > 0
    drafter = axis(name).change(before, neutral).trace.drafter()
    np.testing.assert_array_equal(drafter.survival_NG(), before.trace.drafter().survival_NG())


def logit(p):
    return np.log(p / (1 - p))


@pytest.mark.parametrize(("name", "value"), [("temperature", 2.0), ("bias", 0.7)])
def test_calibration_errors_act_on_the_calibrated_logits(name, value):
    before, after, _ = changed(name, value)
    told = logit(before.confidence_NG())
    expected = told / value if name == "temperature" else told + value
    np.testing.assert_allclose(logit(after.confidence_NG()), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(after.accepted_N, before.accepted_N)


def test_noise_is_drawn_once_and_leaves_the_truth_alone():
    before, after, _ = changed("noise", 1.0)
    _, again, _ = changed("noise", 1.0)
    spread = (after.logits_NG().astype(float) - before.logits_NG().astype(float)).std()
    assert spread == pytest.approx(1.0, rel=0.15)
    np.testing.assert_array_equal(after.logits_NG(), again.logits_NG())
    np.testing.assert_array_equal(after.accepted_N, before.accepted_N)


def test_a_shorter_block_is_the_beginning_of_the_longer_one():
    before, after, _ = changed("gamma", 2)
    assert after.gamma == 2
    np.testing.assert_array_equal(after.accepted_N, np.minimum(before.accepted_N, 2))
    np.testing.assert_array_equal(after.survival_NG(), before.survival_NG()[:, :2])
    with pytest.raises(InputError, match="drafts 1 to 5 tokens"):
        changed("gamma", 6)


def costs(profile, running=8, most=200):
    cost = StepCost(profile, running, running + most)
    return cost.step_s_M(running, running * 500, most, 0.0, False)


@pytest.mark.parametrize("name", ["h800", "b300-tp4-dsv4-flash"])
def test_wrong_tables_are_wrong_in_one_way(name):
    true = load_profile(name)
    truth = costs(true, most=400)
    np.testing.assert_allclose(costs(shifted(true, 0)), costs(true), rtol=1e-12)
    np.testing.assert_allclose(costs(shifted(true, 16)), truth[16:217], rtol=1e-12)
    np.testing.assert_allclose(costs(shifted(true, -4))[4:], truth[:197], rtol=1e-12)
    np.testing.assert_allclose(np.diff(costs(stale(true, 2.0))), 2 * np.diff(costs(true)), atol=1e-12)
    cut = costs(truncated(true, 64))
    np.testing.assert_allclose(cut[:57], truth[:57], rtol=1e-12)
    assert (cut[56:] == cut[56]).all(), "held past its end: 64 tokens are 8 requests and 56 draft tokens"


def test_a_frozen_context_does_not_see_what_is_held():
    frozen = at_context(load_profile("h800"), 8192)
    at = [StepCost(frozen, 8, 80).attention_s(8, 8 * context) for context in (100, 8192, 30_000)]
    assert at == pytest.approx([StepCost(load_profile("h800"), 8, 80).attention_s(8, 8 * 8192)] * 3)
    whole = load_profile("b300-tp4-dsv4-flash")
    assert at_context(whole, 128) is whole, "its table holds one context already"


def test_a_blurred_head_ranks_worse_and_stays_calibrated():
    trace = read_trace("qwen3-4b-chat.synth.parquet").take(np.arange(120))
    head = trace.drafter("dspark")
    rows = visited(trace, head)
    hit = head.accepted_N[rows] > 0
    lift = auc(head.confidence_NG()[rows, 0], hit) - 0.5
    worse = blurred(trace, "dspark", 0.5).drafter("dspark").confidence_NG()[rows, 0]
    assert auc(worse, hit) - 0.5 == pytest.approx(0.5 * lift, abs=0.01)
    for low, high in ((0.0, 0.6), (0.6, 0.8), (0.8, 1.0)):
        told = (low <= worse) & (worse < high)
        if told.sum() > 500:
            assert worse[told].mean() == pytest.approx(hit[told].mean(), abs=0.03)
    assert blurred(trace, "dspark", 1.0) is trace


def test_mixtures_hold_the_share_they_say():
    asked = world()
    for share in (0.0, 0.2, 1.0):
        mixed = axis("mixture").change(asked, share).trace
        assert sum(name.startswith("1:") for name in mixed.request_id) == share * 10
        assert len(mixed.request_id) == 10
    with pytest.raises(InputError, match="Name the second one"):
        axis("mixture").change(replace(asked, other=None), 0.5)


def test_domains_and_beliefs():
    _, _, math = changed("domain", "math")
    assert set(math.trace.domain) == {"math"}
    assert changed("believed", "flat")[2].believed is not None
    assert values_of("domain", world().trace) == ["all", "chat", "math"]
    assert values_of("gamma", world().trace) == [1, 2, 3, 4, 5]
    with pytest.raises(InputError, match="no request of it"):
        changed("domain", "poetry")


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("lag", "1,x", "lag takes numbers"),
        ("lag", "1.5", "lag takes whole numbers"),
        ("temperature", "0", "a temperature above 0"),
        ("auc", "1.5", "auc takes numbers in 0..1"),
        ("truncated", "64.5", "truncated takes whole numbers"),
        ("nois", None, "unknown axis 'nois' .did you mean 'noise'"),
    ],
)
def test_wrong_values_are_one_line(name, words, message):
    with pytest.raises(InputError, match=message):
        values_of(name, world().trace, words)


def test_the_command(command, toy_trace):
    arguments = ["sensitivity", "noise", "--trace", toy_trace, "--hw", "h800", "--values", "0,3"]
    arguments += ["--concurrency", 3, "--output-tokens", 60, "--policy", "dspark-async"]
    done = command(*arguments, "--json")
    assert [row["value"] for row in done.document["rows"]] == [0.0, 3.0]
    assert json.dumps(command(*arguments, "--json").document) == json.dumps(done.document)
    shown = command(*arguments, "--out", "pictures")
    assert "noise on the logits" in shown.out
    assert {path.name for path in Path("pictures").iterdir()} == {
        "sensitivity-to-noise.png",
        "sensitivity-to-noise.svg",
    }
