"""Every rule of the lab that claims to be lossless drives verification live, and the law stays the target's.

2,000 texts of three tokens (216 cells, the rare ones merged). Power: a law that differs by w = .33 or more
(a total variation of some .13) is refused with probability .99 at the level of chi_square.py; the mutant,
driven in the same world, is refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from chi_square import ALPHA, detectable_w
from live_law import decoded, live_law, pair_of, staircase
from test_lossless import no_residual
from tiny_pair import tiny_prompts, tiny_texts

from dspark_sim.model.corpus import CorpusInfo
from dspark_sim.model.features import text_features
from dspark_sim.model.refit import collect, fit_head
from dspark_sim.policies.registry import parse_policy, policies

TEXTS, LENGTH = 2_000, 3
SPECS = sorted(
    {info.example for info in policies()} | {"threshold:on=confidence,at=0.4", "dspark-async:lag=1"}
)
LOSSLESS = [spec for spec in SPECS if parse_policy(spec).verdict != "not-lossless"]
HEADS = ["none", "vanilla", "gated", "rnn", "serial"]


@pytest.fixture(scope="module")
def profile():
    return staircase()


@pytest.fixture(scope="module")
def pair():
    return pair_of("vanilla")


def law(pair, policy: str, profile):
    return live_law(pair, policy, profile, temperature=1.0, requests=TEXTS, length=LENGTH)


@pytest.mark.parametrize("policy", LOSSLESS)
def test_every_lossless_rule_is_lossless_live(policy, pair, profile):
    (p_value, z, dof), _ = law(pair, policy, profile)
    assert p_value > ALPHA, z
    assert detectable_w(TEXTS, dof) < 0.35


@pytest.mark.parametrize("policy", ["dspark", "threshold:on=confidence,at=0.4"])
def test_a_head_that_reads_the_draft_distribution_is_lossless(policy, pair, profile):
    """Statistics of q_j are known before x_j is drawn: lengths that follow them may not move the law."""
    target, drafter = pair
    texts = tiny_texts(target, tiny_prompts(20, vocab=6), 1, 12, 1.0)
    info = CorpusInfo("tiny", 1.0, 0, 12, taps=drafter.config.target_layer_ids, normalize_taps=False)
    seen = [replace(t, features=f) for t, f in zip(texts, text_features(target, info, texts), strict=True)]
    fresh = fit_head(drafter, collect(drafter, seen, 1.0))
    (p_value, z, _), lengths = law((target, fresh), policy, profile)
    assert p_value > ALPHA, z
    assert len(np.unique(lengths)) > 1


def test_a_mutant_is_seen_at_this_size(pair, profile, monkeypatch):
    monkeypatch.setattr("dspark_sim.model.live.verify", no_residual)
    (p_value, _, _), _ = law(pair, "full", profile)
    assert p_value < ALPHA


def greedy(target, ids: tuple[int, ...], length: int) -> list[int]:
    """The target's own text at temperature 0, one pass over everything per token."""
    text = list(ids)
    for _ in range(length):
        positions, row = torch.arange(len(text))[None], torch.tensor([0])
        out = target(torch.tensor([text]), positions, target.new_cache(1, len(text)), row)
        text.append(int(target.logits(out.hidden_RTd[0, -1]).argmax()))
    return text[len(ids) :]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("policy", ["full", "dspark", "threshold:on=confidence,at=0.4", "dspark-async:lag=0"])
def test_at_temperature_zero_every_rule_and_drafter_emits_the_greedy_text(head, policy, profile):
    """Exactly, and also under a rule that is not lossless above temperature 0."""
    pair = pair_of(head)
    prompts = tiny_prompts(12, vocab=6, seed=1)
    requests = [(prompt, 0) for prompt in prompts]
    texts, _ = decoded(pair, policy, profile, {"temperature": 0.0}, requests=requests, length=4)
    for prompt, text in zip(prompts, texts, strict=True):
        assert list(text) == greedy(pair[0], prompt.ids, 4)
