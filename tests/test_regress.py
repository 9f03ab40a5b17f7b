"""`regress` is green on what it knows, and goes red when the rule, the lag or the cost is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dspark_sim.policies import registry
from dspark_sim.policies.dspark import dspark
from dspark_sim.policies.dspark_async import dspark_async
from dspark_sim.policies.selection import best_budget, expected_tokens_M, top_k
from dspark_sim.regress import compare, junit, markdown, read_baseline, read_scenarios, tasks_of

SCENARIOS = """\
format: dspark-sim/regress/1
output_tokens_per_user: 30
seeds: [0]
tolerance: 0.002
scenarios:
  - trace: qwen3-4b-chat.synth.parquet
    hw: b300-tp4-dsv4-flash.yaml
    concurrency: [1, 17]
    policies: [off, "static:k=3", dspark, dspark-async]
"""
KEPT = {
    "tok_per_s": 100.0,
    "tok_per_s_per_user": 10.0,
    "accepted_len": 2.0,
    "verify_len": 3.0,
    "step_ms": 9.0,
}


@pytest.fixture
def pinned(command, tmp_path):
    """Run `regress` on a small set whose baseline was just written."""
    (tmp_path / "set.yaml").write_text(SCENARIOS)

    def call(*more: object):
        files = ["--scenarios", "set.yaml", "--baseline", "base.json", "--jobs", 1]
        return command("regress", *files, *more)

    done = call("--update", "--reason", "first")
    assert done.code == 0, done.err
    return call


def test_what_is_as_it_was_is_green(pinned):
    done = pinned("--out", "found", "--json")
    assert done.code == 0
    assert {m["state"] for m in done.document["movements"]} == {"same"}
    suite = ElementTree.fromstring(Path("found/regress.xml").read_text())
    assert (suite.get("tests"), suite.get("failures")) == ("8", "0")
    assert "8 points" in Path("found/regress.md").read_text()


def red(done):
    assert done.code == 1
    return {m["name"].split(", ")[2]: m["state"] for m in done.document["movements"] if m["state"] != "same"}


def mutate(monkeypatch, shipped, **changes: object):
    monkeypatch.setitem(registry._INFO, shipped, replace(registry._INFO[shipped], **changes))


def test_algorithm_1s_break_moved_by_one_token(pinned, monkeypatch):
    def one_more(view):
        theta = expected_tokens_M(view.survival_RG) / view.step_s_M
        worse = theta[1:] <= theta[:-1]
        stop = int(worse.argmax()) if worse.any() else len(worse)
        return top_k(view.survival_RG, min(stop + 1, len(worse)))

    mutate(monkeypatch, dspark, rule=one_more)
    assert set(red(pinned("--json"))) == {"dspark"}


def test_lag_dropped_from_the_rule(pinned, monkeypatch):
    mutate(monkeypatch, dspark_async, default_lag=0)
    assert red(pinned("--json")) == {"dspark-async": "verdict"}


def test_lag_dropped_in_secret(pinned, monkeypatch):
    """The budget from this step's survivals, under the old name and verdict."""
    mutate(
        monkeypatch,
        dspark_async,
        rule=lambda view: top_k(view.survival_RG, best_budget(view.survival_RG, view.step_s_M)),
    )
    assert set(red(pinned("--json"))) == {"dspark-async"}


def test_capture_rounding_ignored(pinned, monkeypatch):
    monkeypatch.setattr("dspark_sim.hardware.forward.pad", lambda tokens, captured: np.asarray(tokens))
    assert "static:k=3" in red(pinned("--json"))


def test_a_gain_may_be_let_pass_and_an_update_keeps_its_reason(pinned, monkeypatch):
    monkeypatch.setattr("dspark_sim.hardware.forward.pad", lambda tokens, captured: np.asarray(tokens))
    assert pinned().code == 1
    assert pinned("--allow-gains").code == 0
    assert pinned("--update", "--reason", "stairs are gone").code == 0
    assert read_baseline(Path("base.json"))["reasons"] == ["first", "stairs are gone"]
    assert pinned().code == 0


def test_an_update_needs_a_reason(pinned):
    for words in (["--update"], ["--reason", "why"], ["--update", "--reason", " "]):
        assert "go together" in pinned(*words).error


@pytest.mark.parametrize(
    ("after", "state"),
    [
        ({}, "same"),
        ({"verify_len": 3.1}, "moved"),
        ({"tok_per_s": 99.9}, "moved"),
        ({"tok_per_s": 99.0}, "loss"),
        ({"tok_per_s": 101.0}, "gain"),
        ({"lossless": "not-lossless"}, "verdict"),
    ],
)
def test_states(after, state):
    before = {**KEPT, "lossless": "lossless"}
    [movement] = compare({"a, b": before}, {"a, b": before | after}, 0.002)
    assert movement.state == state
    assert ("<failure" in junit([movement])) == (state in ("loss", "gain", "verdict"))


def test_points_that_come_and_go_are_news():
    kept = {**KEPT, "lossless": "lossless"}
    found = compare({"old": kept}, {"new": kept}, 0.002)
    assert {m.name: m.state for m in found} == {"old": "gone", "new": "new"}
    assert "is not computed any more" in markdown(found, 0.002)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        (SCENARIOS.replace("tolerance: 0.002", "tolerance: 0"), "tolerance: must be above 0"),
        (SCENARIOS.replace("seeds: [0]", "seeds: []"), "seeds: List should have at least 1 item"),
        ("more: 1\n" + SCENARIOS, "more: Extra inputs are not permitted"),
        (SCENARIOS.replace("static:k=3", "statik"), "unknown policy 'statik'"),
    ],
)
def test_a_wrong_set_is_one_line(command, tmp_path, text, message):
    (tmp_path / "set.yaml").write_text(text)
    error = command("regress", "--scenarios", "set.yaml", "--update", "--reason", "x").error
    assert message in error


def test_a_missing_or_foreign_baseline_is_one_line(command, tmp_path):
    (tmp_path / "set.yaml").write_text(SCENARIOS)
    assert (
        "none.json: no such file"
        in command("regress", "--scenarios", "set.yaml", "--baseline", "none.json").error
    )
    (tmp_path / "base.json").write_text("{}")
    found = command("regress", "--scenarios", "set.yaml", "--baseline", "base.json").error
    assert "format: must be dspark-sim/regress/1" in found


def test_the_shipped_set_and_baseline_fit_each_other():
    """Every point of the pinned set is in the committed baseline, and no other."""
    root = Path(__file__).parents[1] / "regress"
    from dspark_sim.regress import name_of

    names = {name_of(task) for task in tasks_of(read_scenarios(root / "scenarios.yaml"))}
    assert names == set(json.loads((root / "baseline.json").read_text())["points"])
