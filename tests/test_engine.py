"""The engine against the brute-force reference, and what a step is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference
from worlds import make_profile, make_trace, random_profile, random_trace

from dspark_sim.engine.simulator import simulate
from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.registry import parse_policy

SPECS = [
    "off",
    "static:k=0",
    "static:k=2",
    "mtp:k=1",
    "full",
    "threshold:on=survival,at=0.4",
    "threshold:on=confidence,at=0.5",
    "dspark",
    "dspark-async:lag=0",
    "dspark-async:lag=1",
    "dspark-async:lag=2",
    "dspark-async:lag=5",
]


def assert_equal(run, records):
    """Token for token, and 1e-9 s; counts of every kind."""
    steps = np.array(records.steps, dtype=float).reshape(-1, 7)
    log = run.steps
    ints = [log.num_running, log.batch_tokens, log.verify_tokens, log.accepted_tokens, log.committed_tokens]
    np.testing.assert_array_equal(np.column_stack(ints), steps[:, 2:])
    np.testing.assert_allclose(np.column_stack([log.start_s, log.step_s]), steps[:, :2], rtol=0, atol=1e-9)
    requests = np.array(records.requests, dtype=float).reshape(-1, 5)
    done = run.requests
    ours = np.column_stack([done.request, done.start_s, done.end_s, done.output_tokens, done.rounds])
    np.testing.assert_allclose(ours, requests, rtol=0, atol=1e-9)
    assert run.completed == records.completed
    assert run.rounds == len(records.rounds)
    gamma = len(run.position_verified)
    for length in range(gamma + 1):
        assert run.verify_len_counts[length] == sum(verified == length for verified, _ in records.rounds)
    for j in range(1, gamma + 1):
        assert run.position_verified[j - 1] == sum(verified >= j for verified, _ in records.rounds)
        assert run.position_accepted[j - 1] == sum(hit >= j for _, hit in records.rounds)


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    concurrency=st.integers(1, 7),
    gamma=st.sampled_from([2, 3, 7]),
    ties=st.booleans(),
    requests=st.none() | st.integers(1, 12),
    max_num_seqs=st.none() | st.integers(1, 5),
    max_output_tokens=st.none() | st.integers(2, 6),
    other_belief=st.booleans(),
    warmup_fraction=st.sampled_from([None, 0.0, 0.3]),
)
def test_engine_equals_reference(
    spec, seed, concurrency, gamma, ties, requests, max_num_seqs, max_output_tokens, other_belief,
    warmup_fraction,
):  # fmt: skip
    world = {
        "trace": random_trace(seed, gamma=gamma, ties=ties),
        "profile": random_profile(seed, max_num_seqs),
        "policy": parse_policy(spec),
        "concurrency": concurrency,
        "output_tokens": 60,
        "seed": seed,
        "believed": random_profile(seed + 1) if other_belief else None,
        "requests": requests,
        "max_output_tokens": max_output_tokens,
        "warmup_fraction": warmup_fraction,
    }
    assert_equal(simulate(**world, check=True), Reference(**world).run())


def test_chunks_do_not_show(monkeypatch):
    """The records are the same whether they are flushed every step or once."""
    world = {"output_tokens": 200, "seed": 3, "concurrency": 4, "policy": parse_policy("dspark")}
    whole = simulate(random_trace(1), random_profile(1), **world)
    monkeypatch.setattr("dspark_sim.engine.recorder._CHUNK_ROUNDS", 7)
    pieces = simulate(random_trace(1), random_profile(1), **world)
    for name in whole.steps.__slots__:
        np.testing.assert_array_equal(getattr(whole.steps, name), getattr(pieces.steps, name))
    np.testing.assert_array_equal(whole.position_accepted, pieces.position_accepted)
    np.testing.assert_array_equal(whole.verify_len_counts, pieces.verify_len_counts)


def one_text(length=9, accepted=3, gamma=3):
    left = np.arange(length)[::-1]
    logits = np.zeros((length, gamma))
    return make_trace([length], np.minimum(left, accepted), logits, logits, gamma=gamma, prompt=[10])


def test_a_round_commits_the_bonus_and_stops_at_the_end():
    """Nine tokens: token 0 from prefill, then 3 + 1 twice."""
    run = simulate(
        one_text(), make_profile(), parse_policy("full"), concurrency=1, output_tokens=1, seed=0, requests=1
    )
    assert run.steps.committed_tokens.tolist() == [4, 4]
    assert run.steps.batch_tokens.tolist() == [4, 4]
    assert run.requests.rounds.tolist() == [2]
    assert run.requests.output_tokens.tolist() == [9]


def test_the_last_round_is_cut():
    trace, policy = one_text(length=7), parse_policy("full")
    run = simulate(trace, make_profile(), policy, concurrency=1, output_tokens=1, seed=0, requests=1)
    assert run.steps.committed_tokens.tolist() == [4, 2]
    assert run.steps.accepted_tokens.tolist() == [3, 2]


@pytest.mark.parametrize("spec", ["off", "static:k=2", "mtp:k=2", "dspark-async:lag=0", "dspark-async:lag=1"])
def test_a_step_costs_what_the_profile_says(spec):
    """KV counts the prompt and the output up to the anchor; mtp pays k passes, off none, lag 0 the bubble."""
    profile, policy = random_profile(5), parse_policy(spec)
    run = simulate(one_text(), profile, policy, concurrency=1, output_tokens=1, seed=0, requests=1)
    cost = StepCost(profile, 1, 4)
    kind, k = {"off": ("none", 0), "mtp": ("mtp", 2)}.get(policy.info.name, ("dspark", 3))
    draft_s = cost.draft_s(kind, 1, k)
    first = cost.step_s(int(run.steps.batch_tokens[0]), 1, 10 + 1, draft_s, spec == "dspark-async:lag=0")
    assert run.steps.step_s[0] == first


def test_an_autoregressive_drafter_runs_no_more_passes_than_are_verified():
    trace, profile = random_trace(1, gamma=3, kind="eagle"), make_profile()
    world = {"concurrency": 1, "output_tokens": 1, "seed": 0, "requests": 1}
    short, long = (simulate(trace, profile, parse_policy(s), **world) for s in ("static:k=1", "full"))
    cost = StepCost(profile, 1, 4)
    assert long.steps.step_s[0] - short.steps.step_s[0] == pytest.approx(
        cost.draft_s("eagle", 1, 3)
        - cost.draft_s("eagle", 1, 1)
        + cost.step_s(4, 1, 0, 0.0, False)
        - cost.step_s(2, 1, 0, 0.0, False)
    )


def test_max_num_seqs_bounds_the_batch_and_belief_does_not_move_the_clock():
    world = {"concurrency": 6, "output_tokens": 100, "seed": 0}
    run = simulate(random_trace(2), random_profile(2, max_num_seqs=4), parse_policy("full"), **world)
    assert set(run.steps.num_running.tolist()) == {4}
    other = simulate(
        random_trace(2), random_profile(2, 4), parse_policy("full"), believed=random_profile(9), **world
    )
    np.testing.assert_array_equal(run.steps.start_s, other.steps.start_s)


def test_the_window_ends_at_the_first_step_that_has_enough_and_warm_up_comes_before():
    world = {"concurrency": 3, "output_tokens": 50, "seed": 1}
    run = simulate(random_trace(3), random_profile(3), parse_policy("full"), warmup_fraction=0.5, **world)
    tokens = run.steps.committed_tokens
    assert tokens.sum() >= 50 > tokens[:-1].sum()
    whole = simulate(random_trace(3), random_profile(3), parse_policy("full"), warmup_fraction=0, **world)
    skipped = run.meta["warmup_steps"]
    assert (
        whole.steps.committed_tokens[:skipped].sum() >= 25 > whole.steps.committed_tokens[: skipped - 1].sum()
    )
    assert run.steps.start_s[0] == whole.steps.start_s[skipped]


def test_the_verdict_is_that_of_the_rule_and_at_temperature_0_every_rule_is_lossless():
    world = {"policy": parse_policy("dspark-async:lag=0"), "concurrency": 1, "output_tokens": 5, "seed": 0}
    trace = random_trace(0)
    assert simulate(trace, make_profile(), **world).lossless == "not-lossless"
    greedy = replace(trace, meta=trace.meta | {"temperature": 0.0})
    assert simulate(greedy, make_profile(), **world).lossless == "lossless"


BAD = [
    ({"concurrency": 0}, "concurrency is 0; it must be at least 1"),
    ({"output_tokens": 0}, "output_tokens is 0"),
    ({"seed": -1}, "seed is -1"),
    ({"requests": 0}, "requests is 0"),
    ({"max_output_tokens": 1}, "max_output_tokens is 1; it must be at least 2"),
    ({"warmup_fraction": float("nan")}, "warmup_fraction is nan"),
    ({"drafter": "dsprak"}, "did you mean 'dspark'"),
    ({"policy": parse_policy("static:k=4")}, "k is 4, but drafter 'dspark' .* 0 to 3"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[next(iter(change)) for change, _ in BAD])
def test_bad_arguments_are_refused(change, message):
    world = {"policy": parse_policy("full"), "concurrency": 1, "output_tokens": 10, "seed": 0}
    with pytest.raises(InputError, match=message):
        simulate(random_trace(0), make_profile(), **(world | change))


@pytest.mark.parametrize("spec", ["threshold:on=survival,at=0.5", "dspark", "dspark-async"])
def test_a_drafter_without_a_head_is_refused_by_name(spec):
    trace = make_trace([3], [0, 0, 0], gamma=2)
    with pytest.raises(InputError, match=f"policy {spec} needs confidences, and drafter 'dspark'"):
        simulate(trace, make_profile(), parse_policy(spec), concurrency=1, output_tokens=5, seed=0)
    assert simulate(
        trace, make_profile(), parse_policy("full"), concurrency=1, output_tokens=5, seed=0
    ).completed


def test_lag_needs_the_free_block():
    trace = make_trace([3], [0, 0, 0], np.zeros((3, 2)), gamma=2)
    world = {"concurrency": 1, "output_tokens": 5, "seed": 0}
    simulate(trace, make_profile(), parse_policy("dspark-async:lag=0"), **world)
    with pytest.raises(InputError, match=r"dspark\.confidence_logit_free"):
        simulate(trace, make_profile(), parse_policy("dspark-async"), **world)


def test_texts_of_one_token_run_no_round():
    """They are done when they are admitted; a trace of nothing else has no work and is refused."""
    trace, policy = make_trace([1, 3], [0, 0, 0, 0], gamma=2), parse_policy("full")
    world = {"concurrency": 2, "output_tokens": 5, "seed": 0}
    run = simulate(trace, make_profile(), policy, **world, requests=6)
    rounds = dict(zip(run.requests.output_tokens.tolist(), run.requests.rounds.tolist(), strict=True))
    assert rounds == {1: 0, 3: 2}
    assert run.completed == 6
    with pytest.raises(InputError, match="no text is longer"):
        simulate(make_trace([1], [0], gamma=2), make_profile(), policy, **world)


@pytest.mark.parametrize("returned", ["[4, 0]", "[-1, 0]", "[0.5, 0]", "[0]", "[[0, 0]]"])
def test_a_users_rule_that_returns_no_lengths_is_refused(tmp_path, returned):
    file = tmp_path / "mine.py"
    file.write_text(f"def rule(view):\n    return {returned}\n")
    world = {"concurrency": 2, "output_tokens": 10, "seed": 0}
    with pytest.raises(InputError, match=r"mine\.py:rule returned"):
        simulate(random_trace(0), make_profile(), parse_policy(f"{file}:rule"), **world)


def test_a_users_rule_may_return_a_list(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def rule(view):\n    return [1] * view.num_running\n")
    world = {"concurrency": 2, "output_tokens": 50, "seed": 0}
    mine = simulate(random_trace(0), make_profile(), parse_policy(f"{file}:rule"), **world)
    shipped = simulate(random_trace(0), make_profile(), parse_policy("static:k=1"), **world)
    np.testing.assert_array_equal(mine.steps.committed_tokens, shipped.steps.committed_tokens)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 / 0", r"raised ZeroDivisionError: division by zero \(.*boom\.py, line 2\)"),
        ("'x'", "returned x; a rule"),
    ],
)
def test_an_own_rule_that_fails_is_one_line_that_says_where(body, message, toy_trace, command, tmp_path):
    (tmp_path / "boom.py").write_text(f"def rule(view):\n    return {body}\n")
    ran = command("run", "--trace", toy_trace, "--hw", "h800", "--policy", f"{tmp_path}/boom.py:rule")
    assert ran.code == 2
    assert re.search(message, ran.err)
    assert "Traceback" not in ran.err
