"""``draft-length``: a length that pays, a look when nothing was seen for long, and no trap in between."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.base import BatchView
from dspark_sim.policies.draft_length import _LOOK, _POOL, Memory, _tokens_M
from dspark_sim.policies.registry import parse_policy
from dspark_sim.policies.selection import expected_tokens_M
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.workload.trace_io import read_trace

STEPS = 2.0 + 0.05 * np.arange(7)
ROW = [0.9, 0.1, 0.05]
SEEN = Memory.of(np.array([ROW] * _LOOK), lag=2)


def view_of(lagged=(ROW, ROW), per_token_s=0.0):
    """Two requests, blocks of three; drafting k tokens of all costs ``per_token_s`` k."""
    survival = np.full((len(lagged), 3), 0.8)
    step_s = STEPS + 3 * per_token_s
    draft_s = lambda requests, k: per_token_s * k * (requests > 0)  # noqa: E731
    return BatchView(survival, survival, np.array(lagged), step_s, 3, 2, draft_s=draft_s)


def decide(view, state, spec="draft-length"):
    decision = parse_policy(spec).decide(view, state)
    return decision, decision.draft_R.tolist(), decision.verify_len_R.tolist()


@pytest.mark.parametrize(("per_token_s", "length"), [(0.0, 2), (0.3, 1), (9.0, 0)])
def test_it_drafts_what_pays_and_verifies_that(per_token_s, length):
    _, drafted, verified = decide(view_of(per_token_s=per_token_s), SEEN)
    assert (drafted, verified) == ([length] * 2, [length] * 2)


def test_the_budget_is_that_of_lagged_survivals_where_there_are_any():
    """A batch that does worse than its past verifies less of the same length."""
    bad = view_of(lagged=[[0.02, 0.01, 0.0]] * 2, per_token_s=0.001)
    _, drafted, verified = decide(bad, SEEN)
    assert (drafted, verified) == ([2, 2], [0, 0])
    undrafted = SEEN._replace(drafted=(0, 0))
    assert decide(bad, undrafted)[2] == [2, 2]


def test_new_requests_are_expected_to_do_as_the_last_whole_blocks():
    fresh = decide(view_of(lagged=[[1.0] * 3] * 2), SEEN)[2]
    assert fresh == decide(view_of(), SEEN)[2]


@pytest.mark.parametrize(("spec", "running"), [("probe=5", 2), ("probe=5,cut=false", 2), ("probe=5", 64)])
def test_after_steps_of_short_drafts_it_looks_at_whole_ones(spec, running):
    view = view_of(lagged=[ROW] * running, per_token_s=9.0)
    view = view._replace(step_s_M=27.0 + 2.0 + 0.05 * np.arange(3 * running + 1))
    state, drafted = SEEN, []
    for _ in range(5 + _LOOK // running + 1):
        decision, lengths, _ = decide(view, state, f"draft-length:{spec}")
        state = decision.state
        drafted.append(lengths[0])
    assert drafted == [*[0] * 5, *[3] * (_LOOK // running), 0]


def test_it_begins_by_looking_and_remembers_so_many_blocks():
    view, state, drafted = view_of(lagged=[ROW] * 4, per_token_s=9.0), None, []
    view = view._replace(step_s_M=27.0 + 2.0 + 0.05 * np.arange(13))
    for _ in range(_LOOK // 4 + 2):
        decision, lengths, _ = decide(view, state)
        state = decision.state
        drafted.append(lengths[0])
    assert drafted[: _LOOK // 4 - 1] == [3] * (_LOOK // 4 - 1)
    assert drafted[-1] == 0
    many = Memory.of(np.array([ROW] * _POOL), lag=2)._replace(keep=(True, True))
    assert len(decide(view, many)[0].state.pool_NG) == _POOL


def test_a_batch_like_its_sample_expects_what_the_sample_does():
    rng = np.random.default_rng(0)
    batch = np.sort(rng.random((4, 3)), axis=1)[:, ::-1]
    view = view_of(lagged=batch)._replace(survival_RG=batch)
    exact = expected_tokens_M(batch)
    for sample in (batch, np.repeat(batch, 8, axis=0)):
        np.testing.assert_allclose(_tokens_M(view, Memory.of(sample, lag=2), 3), exact, rtol=1e-12)


def test_it_is_not_caught_at_short_drafts_of_a_strong_pair():
    """Positions that are not drafted are not seen: a rule that forgets them stays short (-12% here)."""
    trace, hw = read_trace("qwen3-4b-math.synth.parquet").take(np.arange(150)), load_profile("h100-qwen3-4b")
    settings = {"concurrency": 256, "output_tokens": 256 * 60, "seed": 0}
    dspark, ours = (
        tok_per_s(simulate(trace, hw, parse_policy(spec), **settings))
        for spec in ("dspark-async", "draft-length")
    )
    assert ours > 0.99 * dspark
