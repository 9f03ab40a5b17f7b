"""The bound is above every policy, and is what it says: the cheapest walk at a line under the cost."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from small_traces import small_trace
from worlds import make_trace

from dspark_sim.bounds import _Walks, bound, clairvoyant, share_of_gain, yardsticks
from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy, policies
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.workload.trace_io import read_trace

PROFILES = ["b300-tp4-dsv4-flash", "h800", "h100-llama-3.1-70b"]


def speed(trace, profile, spec, concurrency, output_tokens, drafter=None, requests=None):
    run = simulate(
        trace, profile, parse_policy(spec), concurrency=concurrency, output_tokens=output_tokens, seed=0,
        drafter=drafter, requests=requests,
    )  # fmt: skip
    return tok_per_s(run)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("concurrency", [1, 32, 256])
def test_the_bound_is_above_every_policy(profile, concurrency):
    trace, hw = read_trace("qwen3-4b-chat.synth.parquet"), load_profile(profile)
    limit = bound(trace, hw, concurrency=concurrency).tok_per_s
    tokens = max(1500, 25 * concurrency)
    for info in policies():
        if info.draft_kind in (None, "none"):
            assert speed(trace, hw, info.example, concurrency, tokens) < limit, info.name
    seer = clairvoyant(trace, hw, concurrency=concurrency, output_tokens=tokens, seed=0)
    assert tok_per_s(seer) < limit


def test_a_drafter_of_another_kind_has_its_own_bound():
    trace, hw = read_trace("qwen3-4b-chat.synth.parquet"), load_profile("b300-tp4-dsv4-flash")
    for concurrency in (1, 64):
        limit = bound(trace, hw, concurrency=concurrency, kind="mtp").tok_per_s
        assert speed(trace, hw, "mtp:k=1", concurrency, 1500) < limit


@pytest.mark.parametrize("seed", range(4))
def test_at_one_user_the_bound_holds_to_the_letter(seed):
    """Every text once, no window: no rule is above, whatever it does."""
    trace, hw = small_trace(seed=seed, requests=8, gamma=3, longest=30), load_profile("h800")
    limit = bound(trace, hw, concurrency=1, drafter="dspark").tok_per_s
    for spec in ("off", "static:k=1", "static:k=3", "dspark", "dspark-async:lag=0", "smartspec", "dsde"):
        assert speed(trace, hw, spec, 1, 1, drafter="dspark", requests=8) <= limit * (1 + 1e-12)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("concurrency", [1, 16, 200])
def test_the_line_lies_under_the_cost_at_every_batch_and_context(profile, concurrency):
    """Without a draft; what drafting adds is looked at per request below."""
    hw = load_profile(profile)
    trace = small_trace(seed=1, requests=6, gamma=4, longest=20)
    found = bound(trace, hw, concurrency=concurrency, drafter="dspark")
    running = min(concurrency, hw.max_num_seqs or concurrency)
    cost = StepCost(hw, running, running * 5)
    shortest, longest = trace.prompt_tokens_Q.min() + 1, (trace.prompt_tokens_Q + trace.output_tokens_Q).max()
    tokens = running + np.arange(running * 4 + 1)
    for context in (shortest, (shortest + longest) // 2, longest):
        step_s = cost.step_s_M(running, int(running * context), running * 4, 0.0, False)
        assert (found.alpha_s + found.beta_s * tokens <= step_s + 1e-12).all()


def cheapest(accepted, edge_J, context, per_token):
    """The least cost of walking one text, by plain recursion from its first anchor."""
    last = len(accepted) - 1

    @cache
    def from_anchor(i):
        if i == last:
            return 0.0
        walks = [edge_J[j] + from_anchor(min(i + j + 1, last)) for j in range(accepted[i] + 1)]
        return min(walks) + per_token * (context + i + 1)

    return from_anchor(0)


@pytest.mark.parametrize("seed", range(5))
def test_walks_are_the_cheapest(seed):
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 12, 6)
    prompt = rng.integers(0, 9, 6)
    accepted = [np.minimum(rng.integers(0, 4, n), n - 1 - np.arange(n)) for n in length]
    trace = make_trace(length, np.concatenate(accepted), gamma=3, prompt=prompt)
    edge_KJ = np.sort(rng.random((2, 4)), axis=1) + rng.random((2, 1))
    found = _Walks(trace, trace.drafter(), trace.output_tokens_Q).least_s(edge_KJ, 0.01)
    for k in range(2):
        edges = edge_KJ[k].tolist()
        expected = sum(
            cheapest(tuple(a.tolist()), edges, int(p), 0.01) for a, p in zip(accepted, prompt, strict=True)
        )
        assert found[k] == pytest.approx(expected, rel=1e-12)


def test_where_nothing_is_ever_accepted_no_speculation_reaches_the_bound():
    """On a flat cost without attention the bound is not an inequality but the answer."""
    trace = make_trace([20, 20, 20], np.zeros(60), gamma=3)
    hw = load_profile("b300-tp4-dsv4-flash")
    off = speed(trace, hw, "off", 3, 200)
    assert bound(trace, hw, concurrency=3).tok_per_s == pytest.approx(off, rel=1e-9)


def test_where_all_is_accepted_whole_blocks_reach_the_bound():
    trace = make_trace([41] * 4, np.minimum(3, np.tile(np.arange(40, -1, -1), 4)), gamma=3)
    hw = load_profile("b300-tp4-dsv4-flash")
    full = speed(trace, hw, "full", 1, 1, requests=4)
    limit = bound(trace, hw, concurrency=1).tok_per_s
    assert limit == pytest.approx(full, rel=1e-9)


def test_the_clairvoyant_wastes_nothing():
    trace, hw = small_trace(seed=2, requests=10, gamma=3, longest=30), load_profile("h800")
    run = clairvoyant(trace, hw, concurrency=4, output_tokens=300, seed=0, drafter="dspark")
    assert (run.steps.accepted_tokens == run.steps.verify_tokens).all()
    assert run.steps.verify_tokens.sum() > 0


def test_share_of_the_gain():
    assert share_of_gain(150.0, 100.0, 200.0) == 0.5
    assert share_of_gain(100.0, 100.0, 200.0) == 0.0
    assert np.isnan(share_of_gain(100.0, 100.0, 100.0))


def test_yardsticks_name_the_best_static():
    trace, hw = small_trace(seed=2, requests=10, gamma=3, longest=30), load_profile("h800")
    speeds = {"off": 50.0, "static:k=1": 80.0, "static:k=2": 70.0, "dspark": 90.0}
    row = yardsticks(trace, hw, speeds, concurrency=2, output_tokens=100, seed=0, drafter="dspark")
    assert row["best_static"] == {"policy": "static:k=1", "tok_per_s": 80.0}
    assert row["policies"]["dspark"]["share"] == share_of_gain(90.0, 50.0, row["bound"])


def test_the_command(command, toy_trace):
    arguments = ["bound", "--trace", toy_trace, "--hw", "h800", "--concurrency", "2,4", "--output-tokens", 60]
    done = command(*arguments, "--policy", "dspark-async", "--lag", 1, "--json")
    assert done.code == 0
    first, second = done.document["loads"]
    assert (first["concurrency"], second["concurrency"]) == (2, 4)
    assert "dspark-async:lag=1" in first["policies"]
    assert "static:k=7" in first["policies"]
    assert "share of the gain" in command(*arguments).out
