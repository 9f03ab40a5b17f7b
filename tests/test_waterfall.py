"""The ladder from a policy to the bound adds up, and every rung mends what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.bounds import bound
from dspark_sim.hardware.believed import Block, believe
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.waterfall import Case, count, lower_hull, smooth, waterfall
from dspark_sim.workload.trace_io import read_trace


def case(believed=None, concurrency=32):
    trace, profile = read_trace("qwen3-4b-chat.synth.parquet"), load_profile("b300-tp4-dsv4-flash")
    drafter = trace.drafter()
    table = believe(believed, profile, Block(drafter.kind, drafter.gamma)) if believed else None
    return Case(trace, profile, concurrency, 2500, 0, table)


def test_rungs_go_from_the_policy_to_the_bound():
    asked = case("flat")
    rule, told = parse_policy("dspark-async"), []
    rungs = {rung.name: rung.tok_per_s for rung in waterfall(asked, rule, lambda: told.append(0))}
    assert len(rungs) == len(told) == count(asked, rule)
    names, speeds = list(rungs), list(rungs.values())
    assert names[0] == "dspark-async"
    assert speeds[-1] == bound(asked.trace, asked.profile, concurrency=32).tok_per_s == max(speeds)
    assert sum(np.diff(speeds)) == pytest.approx(speeds[-1] - speeds[0], rel=1e-12)
    assert rungs["believed cost: the true one"] > speeds[0], "a flat table verifies everything"
    assert rungs["ranking: acceptance known"] > rungs["calibration: fitted to this trace"]


def test_the_rung_of_draft_cost_is_what_a_frugal_drafter_gains():
    asked = replace(case(concurrency=128), profile=load_profile("h100-qwen3-8b"))
    rungs = {rung.name: rung.tok_per_s for rung in waterfall(asked, parse_policy("dspark-async"))}
    assert rungs["draft cost: as many positions as pay"] > 1.03 * rungs["lag: none"]
    frugal = [rung.name for rung in waterfall(asked, parse_policy("draft-length"))]
    assert frugal[:4] == [
        "draft-length", "pipeline bubble: none", "lag: none", "calibration: fitted to this trace"
    ]  # fmt: skip


def test_a_rule_without_lag_pays_the_bubble_and_its_own_objective():
    names = [rung.name for rung in waterfall(case(), parse_policy("dspark"))]
    assert "rule: the best budget of every step" in names
    assert not any(name.startswith(("lag", "believed")) for name in names)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 10), min_size=2, max_size=30))
def test_the_hull_is_convex_and_below(values):
    array = np.array(values)
    corners = lower_hull(array)
    assert (corners[0], corners[-1]) == (0, len(values) - 1)
    line = np.interp(np.arange(len(values)), corners, array[corners])
    assert (line <= array + 1e-9).all()
    slopes = np.diff(array[corners]) / np.diff(corners)
    assert (np.diff(slopes) >= -1e-9).all()


def test_the_smooth_cost_is_below_the_true_one_and_touches_it():
    asked = case()
    true, below = (
        StepCost(p, 32, 32 * 8).step_s_M(32, 0, 32 * 7, 0.0, False) for p in (asked.profile, smooth(asked))
    )
    assert (below <= true + 1e-12).all()
    assert below[0] == pytest.approx(true[0], rel=1e-12)


def test_the_command(command, toy_trace):
    arguments = ["waterfall", "--trace", toy_trace, "--hw", "h800", "--concurrency", 3, "--output-tokens", 60]
    rungs = command(*arguments, "--lag", 1, "--json").document["rungs"]
    assert rungs[0]["name"] == "dspark-async:lag=1"
    assert sum(rung["gain"] for rung in rungs) == pytest.approx(
        rungs[-1]["tok_per_s"] - rungs[0]["tok_per_s"]
    )
    done = command(*arguments, "--believed", "flat", "--out", "pictures")
    assert done.code == 0
    assert "believed cost: the true one" in done.out
