"""Axes change what they say and nothing else; the command draws and tells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_traces import small_trace

from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import load_profile
from dspark_sim.sensitivity import AXES, World, axis, explore, values_of


def world():
    return World(small_trace(seed=4, requests=10, gamma=5, longest=40), load_profile("h800"))


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
