"""The case of compact verification on H200: published gains, tiers, and what is fitted to whole blocks."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_sim.hardware.cost import StepCost
from dspark_sim.validation import sglang_h200
from dspark_sim.validation.sglang_h200 import MIXTURE, TIERS, Load, Model, loads
from dspark_sim.validation.yields import best_accepted, law_trace
from dspark_sim.workload.synthetic import SynthDrafter


def model(name):
    return Model(name, [load for load in loads() if load.model == name])


def test_the_gains_are_those_of_the_pull_request():
    gains = {(x.model, x.concurrency): round(x.gain_pct, 1) for x in loads()}
    assert gains["Qwen3-14B", 64] == 24.0
    assert gains[MIXTURE, 48] == -6.3
    assert sum(abs(gain) > 5 for gain in gains.values()) == 6


def test_there_are_as_many_tiers_as_the_engine_built():
    assert len(TIERS) == 35
    assert TIERS[-1] == 128
    assert list(TIERS) == sorted(set(TIERS))


@pytest.mark.parametrize("name", ["Qwen3-14B", "Qwen3-8B", MIXTURE])
def test_a_whole_block_costs_what_was_measured_and_never_less_than_its_kernels(name):
    found = model(name)
    for load, measured_ms in zip(found.loads, found.measured_ms, strict=True):
        running, tokens = load.concurrency, load.concurrency * (1 + found.gamma)
        cost = StepCost(found.true, running, tokens)
        draft_s = cost.draft_s("dspark", running, found.gamma)
        step_ms = 1e3 * cost.step_s(tokens, running, running * 512, draft_s, False)
        assert step_ms == pytest.approx(measured_ms, rel=0.02)
        assert step_ms > found.whole_block_ms(running)


def test_the_planner_believes_in_kernels_only():
    found = model("Qwen3-8B")
    assert found.true.host.constant_ms > 0
    assert (found.believed.host.constant_ms, found.believed.host.per_logit_row_ms) == (0, 0)
    kernels = StepCost(found.kernels, 48, 384)
    drafted_s = kernels.draft_s("dspark", 48, found.gamma)
    rows_s = 384e-3 * sglang_h200.ROW_MS
    expected_s = kernels.step_s(384, 48, 48 * 512, drafted_s, False) - rows_s
    believed_s = StepCost(found.believed, 48, 384).step_s(384, 48, 48 * 512, 0.0, False)
    assert believed_s == pytest.approx(expected_s, rel=1e-6)


def test_the_planner_reads_lines_where_the_engine_pads_to_a_tier():
    found = model("Qwen3-8B")
    believed = StepCost(found.believed, 48, 384)
    at = [believed.step_s(tokens, 48, 48 * 512, 0.0, False) for tokens in (320, 336, 352)]
    assert at[1] == pytest.approx((at[0] + at[2]) / 2)
    true = StepCost(found.true, 48, 384)
    forward = [true.step_s(tokens, 48, 48 * 512, 0.0, False) for tokens in (337, 352)]
    rows_s = (352 - 337) * 1e-3 * sglang_h200.ROW_MS
    assert forward[0] + rows_s == pytest.approx(forward[1])


def test_the_captured_table_is_what_the_pull_request_quotes_for_14b():
    """Verify 8.71, 8.77 and 42.34 ms at 8, 16 and 1,024 tokens; draft 1.74, 1.78 and 7.37 at 1, 2 and 128."""
    verify = model("Qwen3-14B").believed.verify
    theta = dict(zip(verify.tokens, verify.ms, strict=True))
    assert [theta[8], theta[16], theta[1024]] == pytest.approx([8.71, 8.77, 42.34], rel=0.025)
    alpha = dict(zip(verify.additive.requests, verify.additive.ms, strict=True))
    assert [alpha[1], alpha[2], alpha[128]] == pytest.approx([1.74, 1.78, 7.37], rel=0.085)
    assert (verify.lookup, verify.additive.bias_ms) == ("linear", 0.0)


def test_a_step_of_one_token_stays_and_growth_is_scaled_by_arithmetic():
    low, high = sglang_h200._on_h200((5.0, 11.0))
    assert low == pytest.approx(5.0)
    assert high - low == pytest.approx(6.0 * 4.5 / 1.98)


def test_a_budget_gives_the_accepted_length_that_was_asked_for(monkeypatch):
    trace = law_trace([SynthDrafter("dspark", "dspark", (0.7,) * 7)], "toy")
    found = model("Qwen3-4B")
    monkeypatch.setitem(found.__dict__, "trace", trace)
    drafter = trace.drafter("dspark")
    anchors = sglang_h200.visited(trace, drafter)
    whole = anchors[trace.remaining_N[anchors] >= 7]
    for wanted in (1.5, 2.0, 2.5):
        budget = found.budget(wanted)
        assert 1 + best_accepted(drafter.survival_NG()[whole], np.array([budget]))[0] == pytest.approx(
            wanted, abs=0.01
        )


@pytest.mark.parametrize(("simulated", "wrong"), [((3.0, -3.0, 9.0), 0), ((-1.0, -3.0, 9.0), 1)])
def test_only_gaps_above_5_percent_count(simulated, wrong):
    published = ((100, 110), (100, 92), (100, 98))
    served = [
        sglang_h200._Served(
            Load("m", 1, fixed, scheduled, 3.0, 2.5), {"tok_per_s": 1.0}, {"tok_per_s": 1 + gain / 100}, {}
        )
        for (fixed, scheduled), gain in zip(published, simulated, strict=True)
    ]
    assert sglang_h200._wrong(served, "trimmed") == wrong
