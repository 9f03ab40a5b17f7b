"""Laws of the engine (the numbers are those of docs/concepts.md), and closed forms."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import constant_cost, make_trace, random_profile, random_trace

from dspark_sim.engine.batching import RequestStream
from dspark_sim.engine.simulator import simulate
from dspark_sim.engine.sources import mid_text
from dspark_sim.policies.base import BatchView, Policy
from dspark_sim.policies.registry import parse_policy, policies
from dspark_sim.workload.visits import visited

EXAMPLES = [info.example for info in policies()] + ["dspark-async:lag=0", "static:k=0"]


@st.composite
def worlds(draw):
    seed = draw(st.integers(0, 10**6))
    return {
        "trace": random_trace(seed, ties=draw(st.booleans()), longest=draw(st.integers(2, 20))),
        "profile": random_profile(seed, draw(st.none() | st.integers(1, 4))),
        "policy": parse_policy(draw(st.sampled_from(EXAMPLES))),
        "concurrency": draw(st.integers(1, 9)),
        "output_tokens": draw(st.integers(1, 120)),
        "seed": seed,
    }


def arrays_of(run) -> dict[str, np.ndarray]:
    logs = {f"{log}.{f.name}": getattr(getattr(run, log), f.name)
            for log in ("steps", "requests") for f in fields(getattr(run, log))}  # fmt: skip
    return logs | {name: getattr(run, name) for name in
                   ("verify_len_counts", "position_verified", "position_accepted")}  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(world=worlds(), requests=st.integers(1, 15))
def test_laws_1_to_3_and_6_requests_tokens_and_kv_are_conserved(world, requests):
    """A drained stream: every request that was sent is done once, and got all of its tokens;
    ``check`` asserts places and KV after every step."""
    run = simulate(**world, requests=requests, check=True)
    length = world["trace"].output_tokens_Q
    sent = RequestStream(len(length), world["seed"], requests).take(requests)
    assert sorted(run.requests.request.tolist()) == sorted(sent.tolist())
    assert run.completed == requests
    np.testing.assert_array_equal(run.requests.output_tokens, length[run.requests.request])
    assert run.steps.committed_tokens.sum() == (length[sent] - 1).sum()
    assert run.requests.rounds.sum() == run.rounds == run.steps.num_running.sum()


@settings(max_examples=80, deadline=None)
@given(world=worlds())
def test_laws_4_and_5_steps_add_up(world):
    """B = R + verified; accepted <= verified; a round commits 1..accepted + 1; the work is never idle."""
    run = simulate(**world, check=True)
    steps, gamma = run.steps, len(run.position_verified)
    np.testing.assert_array_equal(steps.batch_tokens, steps.num_running + steps.verify_tokens)
    assert (steps.accepted_tokens <= steps.verify_tokens).all()
    assert (steps.committed_tokens <= steps.accepted_tokens + steps.num_running).all()
    assert (steps.committed_tokens >= steps.num_running).all()
    assert (steps.verify_tokens <= steps.num_running * gamma).all()
    slots = min(world["concurrency"], world["profile"].max_num_seqs or world["concurrency"])
    assert (steps.num_running == slots).all()
    lengths = np.arange(gamma + 1)
    assert run.verify_len_counts.sum() == run.rounds == steps.num_running.sum()
    assert (run.verify_len_counts * lengths).sum() == steps.verify_tokens.sum() == run.position_verified.sum()
    assert run.position_accepted.sum() == steps.accepted_tokens.sum()
    assert (run.position_accepted <= run.position_verified).all()


@settings(max_examples=60, deadline=None)
@given(world=worlds(), requests=st.none() | st.integers(1, 15))
def test_law_7_the_clock(world, requests):
    """Each step starts where the last one ends; requests start and end at steps, in that order."""
    run = simulate(**world, requests=requests)
    start_s, end_s = run.steps.start_s, run.steps.start_s + run.steps.step_s
    assert (run.steps.step_s > 0).all()
    np.testing.assert_array_equal(start_s[1:], end_s[:-1])
    done = run.requests
    assert (np.diff(done.end_s) >= 0).all()
    assert (done.end_s >= done.start_s).all()
    decoded = done.rounds > 0
    assert np.isin(done.end_s[decoded], end_s).all()
    if requests is not None:
        assert np.isin(done.start_s[decoded], start_s).all()
        steps_between = np.searchsorted(end_s, done.end_s) - np.searchsorted(start_s, done.start_s) + 1
        np.testing.assert_array_equal(steps_between[decoded], done.rounds[decoded])


@settings(max_examples=25, deadline=None)
@given(world=worlds())
def test_law_8_same_seed_same_bytes(world):
    one, two = (arrays_of(simulate(**world)) for _ in range(2))
    for name, array in one.items():
        assert array.tobytes() == two[name].tobytes()
        assert array.dtype == two[name].dtype


@settings(max_examples=25, deadline=None)
@given(world=worlds(), requests=st.integers(2, 15))
def test_law_9_policies_share_their_randomness(world, requests):
    """Two policies meet the same requests, whatever they do with them."""
    runs = [simulate(**world | {"policy": parse_policy(s)}, requests=requests) for s in ("off", "full")]
    assert sorted(runs[0].requests.request.tolist()) == sorted(runs[1].requests.request.tolist())


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_law_10_a_policy_does_not_see_what_will_be_accepted(lag):
    """Two worlds that differ only in what verification accepts show the rule the same first step; and a
    rule that verifies nothing sees the same ever after, older blocks included."""
    trace = random_trace(4, num_requests=8, longest=15)
    drafter = trace.drafter()
    blind = replace(
        trace, drafters={"dspark": replace(drafter, accepted_N=np.zeros_like(drafter.accepted_N))}
    )
    seen: list[list[BatchView]] = []
    for world in (trace, blind):
        views: list[BatchView] = []
        seen.append(views)
        shipped = parse_policy(f"dspark-async:lag={lag}")

        def nosy(view, views=views):
            views.append(view)
            return np.zeros(view.num_running, dtype=np.int64)

        policy = Policy(replace(shipped.info, rule=nosy), "nosy", {}, lag)
        simulate(world, random_profile(4), policy, concurrency=3, output_tokens=1, seed=0, requests=8)
    assert len(seen[0]) == len(seen[1]) > 10
    for one, two in zip(*seen, strict=True):
        assert (one.lag, one.gamma, one.num_running) == (lag, 3, two.num_running)
        for name in ("survival_RG", "confidence_RG", "lagged_RG", "step_s_M"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("lag", [1, 2])
def test_law_10_an_older_block_is_coupled_only_as_far_as_it_was_verified(lag):
    """Overwriting coupled confidences past verify_len + 1 of every anchor leaves the lagged view alone."""
    trace = random_trace(6, num_requests=8, longest=15, gamma=5)
    drafter = trace.drafter()
    logits = drafter.confidence_logit_NG.copy()
    logits[:, 3:] = -9.0
    changed = replace(trace, drafters={"dspark": replace(drafter, confidence_logit_NG=logits)})
    lagged: list[list[np.ndarray]] = []
    for world in (trace, changed):
        views: list[np.ndarray] = []
        lagged.append(views)
        shipped = parse_policy(f"dspark-async:lag={lag}")

        def two_each(view, views=views):
            views.append(view.lagged_RG)
            return np.full(view.num_running, 2)

        policy = Policy(replace(shipped.info, rule=two_each), "two", {}, lag)
        simulate(world, random_profile(6), policy, concurrency=3, output_tokens=40, seed=0)
    for one, two in zip(*lagged, strict=True):
        np.testing.assert_array_equal(one, two)
    assert (lagged[0][0] == 1).all()
    assert any((view < 1).any() for view in lagged[0][lag:])


def test_starts_in_mid_text_follow_the_stationary_law():
    """A look at a random round of a loop: each anchor that a full-block replay drafts from is as likely."""
    trace = make_trace([1, 3, 11], [0, 1, 1, 0, 3, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0], gamma=4)
    anchors = visited(trace, trace.drafter())
    assert anchors.tolist() == [1, 4, 8, 10]
    row = mid_text(anchors, np.ones(4, dtype=bool), 60_000, seed=0)
    counts = np.bincount(row, minlength=15)
    assert counts.sum() == counts[anchors].sum() == 60_000
    assert ((counts[anchors] - 15_000) ** 2 / 15_000).sum() < 16.3  # chi-square, 3 df, p = .001


def test_the_window_is_stationary_whatever_its_length():
    """Half of the texts go fast, half slowly. In a loop that has run for long, a text is met by its
    rounds, not by its tokens: tau is tokens over rounds of the whole trace. A short window agrees."""
    length, gamma, texts = 60, 3, 40
    accepted = np.concatenate(
        [np.minimum(fast * gamma, np.arange(length)[::-1]) for fast in [0, 1] * (texts // 2)]
    )
    trace = make_trace([length] * texts, accepted, gamma=gamma)
    tau = 2 * (length - 1) / ((length - 1) + np.ceil((length - 1) / (gamma + 1)))
    world = {"policy": parse_policy("full"), "concurrency": 200, "output_tokens": 2_000}
    runs = [simulate(trace, constant_cost(), **world, seed=seed) for seed in range(10)]
    measured = [run.steps.committed_tokens.sum() / run.rounds for run in runs]
    assert abs(np.mean(measured) - tau) < 4 * np.std(measured) / np.sqrt(len(runs))
    cold = [simulate(trace, constant_cost(), **world, seed=s, warmup_fraction=0) for s in range(10)]
    measured = [run.steps.committed_tokens.sum() / run.rounds for run in cold]
    assert abs(np.mean(measured) - tau) < 4 * np.std(measured) / np.sqrt(len(cold)), "the start alone does it"


def test_a_stream_is_shuffled_passes():
    stream = RequestStream(5, seed=1, limit=None)
    drawn = np.concatenate([stream.take(3), stream.take(0), stream.take(7), stream.take(5)])
    for begin in range(0, 15, 5):
        assert sorted(drawn[begin : begin + 5].tolist()) == [0, 1, 2, 3, 4]
    finite = RequestStream(5, seed=1, limit=7)
    np.testing.assert_array_equal(np.concatenate([finite.take(4), finite.take(9), finite.take(1)]), drawn[:7])


@pytest.mark.parametrize("spec", ["full", "static:k=3", "off"])
@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_constant_acceptance_gives_the_closed_form(spec, alpha):
    """Accepted length is (1 - alpha^(k+1)) / (1 - alpha), and tokens a second follow at constant cost."""
    gamma, length = 7, 40_000
    k = {"full": gamma, "static:k=3": 3, "off": 0}[spec]
    coins = np.random.default_rng(7).random((length, gamma)) < alpha
    accepted = np.minimum(np.logical_and.accumulate(coins, axis=1).sum(axis=1), np.arange(length)[::-1])
    logits = np.full((length, gamma), np.log(alpha / (1 - alpha)))
    run = simulate(
        make_trace([length], accepted, logits, logits, gamma=gamma),
        constant_cost(ms=10.0),
        parse_policy(spec),
        concurrency=1,
        output_tokens=1,
        seed=0,
        requests=1,
    )
    tau = run.steps.committed_tokens.sum() / run.rounds
    law = (1 - alpha ** (k + 1)) / (1 - alpha)
    spread = run.steps.committed_tokens.std() / np.sqrt(run.rounds)
    assert abs(tau - law) <= 4 * spread + 1e-3
    assert run.steps.committed_tokens.sum() / run.steps.step_s.sum() == pytest.approx(tau / 0.010)
    for j in range(k):
        rate = run.position_accepted[j] / run.position_verified[j]
        assert rate == pytest.approx(alpha ** (j + 1), abs=4 * np.sqrt(0.25 / run.rounds))


def test_calibrated_confidences_predict_what_is_accepted():
    """Where acceptance follows the confidences, expected tokens of the scheduler are the tokens it gets."""
    rng = np.random.default_rng(3)
    length, gamma = 20_000, 4
    logits = rng.normal(0.5, 1.5, (length, gamma)).astype(np.float16)
    coins = rng.random((length, gamma)) < 1 / (1 + np.exp(-logits.astype(float)))
    accepted = np.minimum(np.logical_and.accumulate(coins, axis=1).sum(axis=1), np.arange(length)[::-1])
    trace = make_trace([length], accepted, logits, logits, gamma=gamma)
    expected: list[float] = []
    shipped = parse_policy("dspark")

    def counting(view):
        lengths = shipped(view)
        expected.append(1 + view.survival_RG[0, : lengths[0]].sum())
        return lengths

    policy = Policy(replace(shipped.info, rule=counting), "counting", {}, 0)
    world = {"concurrency": 1, "output_tokens": 1, "seed": 0, "requests": 1}
    run = simulate(trace, random_profile(8), policy, **world)
    got = run.steps.committed_tokens
    assert abs(np.mean(expected) - got.mean()) < 4 * (got - expected).std() / np.sqrt(len(got)) + 1e-3
