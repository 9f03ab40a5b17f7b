"""Drafters compared: sums of the exact replay, paired resampling, and what the slope says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra [model]")

from tiny_pair import end_on, tiny_prompts, tiny_texts  # noqa: E402

from dspark_sim.errors import InputError  # noqa: E402
from dspark_sim.model.comparison import PromptScores, compare, score_texts  # noqa: E402
from dspark_sim.model.corpus import CorpusInfo  # noqa: E402
from dspark_sim.model.record import Recorder  # noqa: E402
from dspark_sim.model.tiny import tiny_pair  # noqa: E402

INFO = CorpusInfo("tiny", 1.0, 0, 24)


def rates(conditional, prompts: int, seed: int = 0) -> PromptScores:
    """Prompts of 100 rounds whose positions are accepted at given rates, with noise between prompts."""
    noise = 1 + np.random.default_rng(seed).uniform(-0.1, 0.1, (prompts, 1))
    rate = np.array(conditional) * noise
    reached = 100 * np.cumprod(np.hstack([np.ones((prompts, 1)), rate[:, :-1]]), axis=1)
    accepted = reached * rate
    rounds = np.full(prompts, 100.0)
    return PromptScores(rounds, rounds + accepted.sum(1), reached, accepted)


def test_equal_drafters_differ_by_nothing_and_a_falling_one_is_seen():
    flat, falling = [0.4, 0.4, 0.4], [0.4, 0.3, 0.2]
    scores = {
        "a": {"chat": rates(flat, 30), "math": rates(flat, 20)},
        "same": {"chat": rates(flat, 30), "math": rates(flat, 20)},
        "falls": {"chat": rates(falling, 30), "math": rates(falling, 20)},
    }
    found = compare(scores, resamples=300)
    assert found["against_first"]["same"] == {"value": 0, "low": 0, "high": 0}
    assert found["against_first"]["falls"]["low"] > 0
    assert found["drafters"]["a"]["slope"]["value"] == pytest.approx(0, abs=0.01)
    assert found["drafters"]["falls"]["slope"]["high"] < -0.05
    assert found["drafters"]["falls"]["slope"]["value"] == pytest.approx(-0.1, abs=0.01)
    mean = found["drafters"]["a"]["mean"]
    assert mean["low"] < mean["value"] < mean["high"]
    assert mean["value"] == pytest.approx(1 + 0.4 + 0.16 + 0.064, rel=0.02)


def test_the_interval_covers_the_spread_between_prompts():
    """Width of the interval against the textbook standard error of a mean over prompts."""
    part = rates([0.5], 200)
    mean = compare({"a": {"chat": part}}, resamples=2000)["drafters"]["a"]["mean"]
    error = (part.tokens_P / part.rounds_P).std(ddof=1) / np.sqrt(200)
    assert (mean["high"] - mean["low"]) / (2 * 1.96 * error) == pytest.approx(1, abs=0.1)


def test_expected_replay_equals_what_is_recorded():
    """Accepted length from probabilities against recorded full-block replay of the same texts."""
    target, drafter = tiny_pair(3, vocab=13, gamma=4, draft_vocab=10)
    end_on(target, 5)
    texts = tiny_texts(target, tiny_prompts(30, 13), samples=6, max_new=24, temperature=1.0)
    found = compare(score_texts(target, {"dspark": drafter}, INFO, texts), resamples=200)
    recorder = Recorder(target, {"dspark": drafter}, temperature=1.0, seed=2)
    tokens = rounds = 0
    for text in (t for t in texts if t.response_len >= 2):
        accepted, at = recorder.record(text)["dspark"].accepted_N, 0
        while at < text.response_len - 1:
            rounds, at = rounds + 1, at + int(accepted[at]) + 1
        tokens += text.response_len - 1
    domains = found["drafters"]["dspark"]["domains"]
    assert len(domains) == 1
    (one,) = domains.values()
    assert one["accepted_len"]["value"] == pytest.approx(tokens / rounds, rel=0.03)


def test_texts_that_cannot_be_judged_are_refused():
    target, drafter = tiny_pair(3, vocab=13)
    with pytest.raises(InputError, match="temperature 0"):
        score_texts(target, {"a": drafter}, replace(INFO, temperature=0.0), [])
    with pytest.raises(InputError, match="no text"):
        score_texts(target, {"a": drafter}, INFO, [])
