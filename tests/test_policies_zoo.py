"""The zoo: rules against their formulas, what they declare against what they read, and all in the engine."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_sim.audit.worlds import episode, with_confidence
from dspark_sim.engine.simulator import simulate
from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.base import BatchView, Past
from dspark_sim.policies.registry import parse_policy, policies
from dspark_sim.policies.uniform import Positions, uniform_step_s_K
from dspark_sim.results.metrics import point
from dspark_sim.workload.trace_io import read_trace


def view_of(confidence, step_s, *, lagged=None, lag=0, past=None, captured=(), draft_s=None):
    confidence = np.array(confidence, dtype=float)
    survival = np.cumprod(confidence, axis=1)
    return BatchView(
        survival,
        confidence,
        survival if lagged is None else np.array(lagged, dtype=float),
        np.array(step_s, dtype=float),
        confidence.shape[1],
        lag,
        draft_s=draft_s or (lambda requests, tokens: 0.0),
        past=past or Past.nothing(len(confidence)),
        captured=captured,
    )


def decide(spec, view, state=None):
    return parse_policy(spec).decide(view, state)


def after(verified, accepted, step_s=1.0, previous=None):
    previous = np.arange(len(verified)) if previous is None else np.array(previous)
    return Past(previous, np.array(verified), np.array(accepted), step_s)


@pytest.mark.parametrize("info", policies(), ids=lambda info: info.name)
def test_a_rule_reads_what_it_declares(info):
    """Unless it reads current confidences, the sum of its lengths is the same whatever they are."""
    policy = parse_policy(info.example)
    if policy.synchronous:
        return
    rng = np.random.default_rng(1)
    for moment in episode(policy, rng, num_running=5, gamma=4, steps=25):
        for fill in (0.0, 0.6, 1.0):
            other = with_confidence(moment.view, np.full((5, 4), fill))
            again = policy.decide(other, moment.state)
            assert again.verify_len_R.sum() == moment.decision.verify_len_R.sum()
            assert again.padding == moment.decision.padding


@pytest.mark.parametrize("info", policies(), ids=lambda info: info.name)
def test_a_rule_that_does_not_read_them_answers_without_confidences(info):
    policy = parse_policy(info.example)
    nothing = np.full((3, 4), np.nan)
    if info.reads == "none":
        view = BatchView(nothing, nothing, nothing, np.ones(13), 4, 0, draft_s=lambda r, k: 0.1 * k)
        assert policy(view).shape == (3,)
    elif info.reads in ("current", "fixed"):
        view = view_of(np.full((3, 4), 0.7), np.linspace(1, 2, 13), lagged=nothing)
        assert policy(view).shape == (3,)


@pytest.mark.parametrize("info", [i for i in policies() if i.stateful], ids=lambda info: info.name)
def test_state_is_passed_in_and_returned(info):
    """The same view and state give the same decision again, so the old state was left alone."""
    policy = parse_policy(info.example)
    for moment in episode(policy, np.random.default_rng(2), num_running=4, gamma=5, steps=40):
        again = policy.decide(moment.view, moment.state)
        np.testing.assert_array_equal(again.verify_len_R, moment.decision.verify_len_R)
        if moment.decision.draft_R is not None:
            np.testing.assert_array_equal(again.draft_R, moment.decision.draft_R)


def test_sglang_fills_the_tier_that_is_paid_anyway():
    lagged, captured = [[0.9, 0.5], [0.8, 0.4]], (2, 4, 8)
    step_s = [1.0, 1.2, 1.2, 9.0, 9.0]
    view = view_of([[0.9, 0.6], [0.8, 0.5]], step_s, lagged=lagged, lag=2, captured=captured)
    assert decide("sglang", view).verify_len_R.tolist() == [1, 1]
    one = view_of(
        [[0.9, 0.6], [0.8, 0.5]], [1.0, 1.1, 2.0, 9.0, 9.0], lagged=lagged, lag=2, captured=captured
    )
    assert decide("sglang", one).verify_len_R.sum() == 1
    assert decide("sglang:fill=true", one).verify_len_R.sum() == 2


def test_sglang_modes_and_floor():
    lagged = [[0.9, 0.0], [0.8, 0.4]]
    view = view_of([[0.9, 0.6], [0.8, 0.5]], [1.0] * 5, lagged=lagged, lag=2)
    assert decide("sglang", view).verify_len_R.sum() == 3, "a survival of 0 is no candidate"
    assert decide("sglang:mode=static", view).verify_len_R.tolist() == [2, 2]
    capped = decide("sglang:mode=cap-accept", view)
    assert capped.padding + capped.verify_len_R.sum() == 4
    dear = view_of([[0.9, 0.6], [0.8, 0.5]], [1.0, 50.0, 100.0, 200.0, 400.0], lagged=lagged, lag=2)
    assert decide("sglang", dear).verify_len_R.tolist() == [0, 0]
    assert decide("sglang:min_len=1", dear).verify_len_R.tolist() == [1, 1]


def test_trtllm_takes_uniform_totals_and_guards_whole_blocks():
    lagged = [[0.9, 0.1], [0.9, 0.1]]
    # tau is 2, 3.8, 4.0 at t = 0, 1, 2.
    view = view_of([[0.9, 0.1]] * 2, [1.0, 1.0, 1.3, 1.3, 1.5], lagged=lagged, lag=1)
    assert decide("trtllm", view).verify_len_R.sum() == 2, "3.8 / 1.3 is 9.6% above 4 / 1.5"
    assert decide("trtllm:gain=0.1", view).verify_len_R.sum() == 4


def test_trtllm_exact_does_not_save_what_the_drain_costs():
    lagged = [[0.9, 0.1], [0.9, 0.1]]
    view = view_of([[0.9, 0.1]] * 2, [1.0, 1.0, 1.3, 1.3, 1.5], lagged=lagged, lag=1)
    # Saved .2 s; lost .2 of 4 tokens at 1.5 s a step: .075 s.
    assert decide("trtllm-exact", view).verify_len_R.sum() == 2
    assert decide("trtllm-exact:loss=3", view).verify_len_R.sum() == 4
    assert decide("trtllm-exact:least_ms=200", view).verify_len_R.sum() == 4


def test_atom_runs_algorithm_1_as_a_uniform_block():
    view = view_of([[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]], [1.0, 1.1, 1.2, 1.3, 9.0, 9.0, 9.0])
    decision = decide("atom", view)
    assert decision.verify_len_R.tolist() == [3, 0]
    assert decision.padding == 1, "5 tokens of 2 requests run as 2 x 3"
    assert decide("atom:sizes=1/4", view).padding == 3
    with pytest.raises(InputError, match="whole numbers above 0"):
        decide("atom:sizes=1/x", view)


def test_vllm_ascend_counts_survivals_and_prefers_odd_numbers():
    def total(lagged):
        return int(
            decide("vllm-ascend", view_of(np.full((2, 5), 0.9), [1.0] * 11, lagged=lagged, lag=1))[0].sum()
        )

    assert total([[0.9, 0.8, 0.1, 0.1, 0.1], [0.9, 0.2, 0.1, 0.1, 0.1]]) == 2 * 3, "mean 1.5, 2, then 3"
    assert total([[0.9, 0.1, 0.1, 0.1, 0.1]] * 2) == 2 * 1
    assert total([[0.1] * 5] * 2) == 2 * 1, "one of each request at least"


def test_vllm_adaptive_smooths_what_it_has_seen_before():
    high, low = [[0.9, 0.8]], [[0.3, 0.1]]
    steps = [1.0, 1.4, 1.8]
    first = decide("vllm-adaptive:alpha=0.5", view_of([[0.9, 0.9]], steps, lagged=high, lag=1))
    stayed = view_of([[0.9, 0.9]], steps, lagged=low, lag=1, past=after([2], [2]))
    second = decide("vllm-adaptive:alpha=0.5", stayed, first.state)
    np.testing.assert_allclose(second.state, [[0.6, 0.45]])
    fresh = stayed._replace(past=after([2], [2], previous=[-1]))
    np.testing.assert_allclose(decide("vllm-adaptive:alpha=0.5", fresh, first.state).state, low)


def test_vllm_table_inherits_across_gaps():
    def k(running):
        view = view_of(np.full((running, 4), 0.5), np.ones(4 * running + 1))
        decision = decide("vllm-table:table=1-2:3/4-6:1/8-9:0", view)
        assert decision.draft_R.tolist() == decision.verify_len_R.tolist()
        return decision.verify_len_R[0]

    assert [k(n) for n in (1, 2, 3, 4, 7, 8, 20)] == [3, 3, 3, 1, 1, 0, 0]
    with pytest.raises(InputError, match="LOW-HIGH:K"):
        decide("vllm-table:table=8-9:0/1-2:3", view_of([[0.5]], [1.0, 1.0]))


def test_uniform_costs_take_the_draft_of_whole_blocks_out():
    step_s = 1.0 + 0.1 * np.arange(7)
    view = view_of(np.full((2, 3), 0.5), step_s, draft_s=lambda requests, k: 0.05 * requests * k)
    np.testing.assert_allclose(uniform_step_s_K(view), [1.0 - 0.3, 1.2 - 0.3 + 0.1, 1.4 - 0.3 + 0.2, 1.6])


def test_positions_count_what_was_tested():
    counts = Positions.none(3).after(after([3, 2, 0], [1, 2, 0]))
    np.testing.assert_array_equal(counts.tested_G, [2, 2, 0])
    np.testing.assert_array_equal(counts.accepted_G, [2, 1, 0])


def test_smartspec_maximises_goodput_at_its_measured_acceptance():
    step_s = np.repeat(1.0 + 0.35 * np.arange(4), 1)
    sure = decide("smartspec:start=0.9", view_of([[0.5] * 3], step_s))
    assert sure.verify_len_R.tolist() == [3]
    view = view_of([[0.5] * 3], step_s, past=after([3], [0]))
    for _ in range(20):
        sure = decide("smartspec:start=0.9", view, sure.state)
    assert sure.state[0] == pytest.approx(0.9 * 0.9**20)
    assert sure.verify_len_R.tolist() == [0]


def test_sglang_adaptive_walks_its_candidates():
    steps, state, seen = np.ones(8), None, []
    past = None
    for _ in range(40):
        decision = decide("sglang-adaptive", view_of([[0.5] * 7], steps, past=past), state)
        state, past = decision.state, after(decision.verify_len_R, [0])
        seen.append(int(decision.verify_len_R[0]))
    assert seen[:10] == [7] * 10
    assert list(dict.fromkeys(seen)) == [7, 5, 3, 1], "down, one candidate at a time"
    assert decide("sglang-adaptive", view_of(np.full((64, 7), 0.5), np.ones(449))).verify_len_R.sum() == 0


def test_nightjar_settles_on_the_fastest_arm():
    state, past, played = None, None, []
    loss = [1.0, 0.5, 0.2, 0.9]  # seconds a token at k = 0..3
    for _ in range(3000):
        decision = decide("nightjar", view_of([[0.5] * 3], np.ones(4), past=past), state)
        k = int(decision.verify_len_R[0])
        state, past = decision.state, after([k], [0], step_s=loss[k])
        played.append(k)
    assert set(played) == {0, 1, 2, 3}
    assert np.mean(np.array(played[1500:]) == 2) > 0.9


def test_dsde_gives_the_steady_more_than_the_erratic():
    state, past = None, None
    for step in range(60):
        erratic = (step % 2) * 4
        past = after([4, 4], [4, erratic])
        decision = decide("dsde", view_of(np.full((2, 4), 0.5), np.ones(9), past=past), state)
        state = decision.state
    assert decision.verify_len_R[0] > decision.verify_len_R[1] >= 1


def test_adaspec_lets_the_late_verify_all():
    past = after([2, 2], [2, 2], step_s=0.09)
    view = view_of([[0.2, 0.2], [0.2, 0.2]], np.ones(5), past=past)
    assert decide("adaspec:tpot_ms=20", view).verify_len_R.tolist() == [2, 2], "30 ms a token so far"
    assert decide("adaspec:tpot_ms=40", view).verify_len_R.tolist() == [0, 0]


def test_echo_gives_what_a_gate_cuts_to_others():
    view = view_of([[0.1, 0.9, 0.9], [0.9, 0.9, 0.9]], np.ones(7))
    assert decide("echo:gate=0.3,tokens=2", view).verify_len_R.tolist() == [0, 3]
    assert decide("echo:gate=0,tokens=2", view).verify_len_R.sum() == 4


def test_draft_skip_leaves_out_who_does_not_repay():
    def draft_s(requests, k):
        return 0.5 * requests * (k > 0)

    state, past = None, None
    for _ in range(12):
        view = view_of(np.full((2, 3), 0.9), 2.0 + 0.01 * np.arange(7), lagged=np.full((2, 3), 0.5), lag=2,
                       past=past, draft_s=draft_s)  # fmt: skip
        decision = decide("draft-skip:alpha=0.5", view, state)
        state, past = decision.state, after(decision.verify_len_R, np.minimum([3, 0], decision.verify_len_R))
    assert decision.draft_R.tolist() == [3, 0]
    assert decision.verify_len_R[1] == 0


# ---- in the engine


@pytest.mark.parametrize("info", policies(), ids=lambda info: info.name)
def test_every_rule_runs(info):
    """Every shipped drafter kind and load; laws of the engine asserted after each step."""
    trace = read_trace("qwen3-4b-chat.synth.parquet")
    for name, concurrency in (("b300-tp4-dsv4-flash", 1), ("b300-tp4-dsv4-flash", 256), ("h800", 24)):
        settings = {"concurrency": concurrency, "output_tokens": 4 * concurrency + 100, "seed": 0}
        run = simulate(trace, load_profile(name), parse_policy(info.example), check=True, **settings)
        found = point(run)
        assert found["tok_per_s"] > 0
        assert found["lossless"] == parse_policy(info.example).verdict


def test_padding_and_short_drafts_are_paid_as_they_are():
    """cap-accept costs what whole blocks cost; a table's short block costs less than a static one."""
    trace, hw = read_trace("qwen3-4b-chat.synth.parquet"), load_profile("h800")
    settings = {"concurrency": 16, "output_tokens": 600, "seed": 0}

    def steps(spec):
        return simulate(trace, hw, parse_policy(spec), **settings).steps

    whole, capped = steps("full"), steps("sglang:mode=cap-accept")
    assert (capped.batch_tokens <= 16 * 8).all()
    np.testing.assert_allclose(capped.step_s.mean(), whole.step_s.mean(), rtol=0.02)
    short, static = steps("vllm-table:table=1-16:2"), steps("static:k=2")
    assert short.step_s.mean() < static.step_s.mean()
    assert steps("vllm-table:table=1-16:0").step_s.mean() == pytest.approx(
        steps("off").step_s.mean(), rel=0.02
    )
