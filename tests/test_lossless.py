"""Statistical proofs: what speculative decoding emits is the target's, and the recorder knows what happened.

Laws are written out cell by cell, draws are compared by chi-square (chi_square.py). With 40,000 draws
over 625 texts a law that differs by w = .095 or more (a total variation of about .04) is refused with
probability .99; the mutants below are refused at z > 30.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from chi_square import ALPHA, detectable_w, fit
from live_law import live_law, pair_of, staircase
from table_pair import GAMMA, START, TablePair, V, cells, forward_law, full, make_pair

from dspark_sim.model import verify as rules
from dspark_sim.model.sampling import draw
from dspark_sim.model.verify import Coupled, Verified, draft_blocks, residual, verify
from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import parse_policy

DRAWS = 40_000
LENGTH = 4


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def causal(confidence_NG, drafted_NG):
    """Verify the prefix before the first confidence below .5: position j is decided by tokens before it."""
    return (confidence_NG >= 0.5).long().cumprod(1).sum(1)


def anticipating(confidence_NG, drafted_NG):
    """Verify one token less if the last one drawn is a certain token: it looks at what it decides about."""
    return torch.where(drafted_NG[:, 1] == 1, 1, GAMMA)


def no_residual(p_RTV, q_RGW, drafted_RG, verify_len_R, *, draft_ids_W, uniform_RU) -> Verified:
    """The mutant: after a rejection it draws from p instead of from what q left of it."""
    done = verify(p_RTV, q_RGW, drafted_RG, verify_len_R, draft_ids_W=draft_ids_W, uniform_RU=uniform_RU)
    rows = torch.arange(len(p_RTV))
    return Verified(done.accepted_R, draw(p_RTV[rows, done.accepted_R], uniform_RU[:, -1]))


def emitted(pair: TablePair, rule=full, verifier=verify) -> tuple[float, float, int]:
    y = pair.decode(DRAWS, LENGTH, rule, generator(), verifier)
    return fit(cells(y[:, 1:]), pair.text_law(LENGTH))


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("rule", [full, causal])
def test_speculative_decoding_emits_the_targets_law(temperature, rule):
    p_value, z, dof = emitted(make_pair(7, temperature), rule)
    assert p_value > ALPHA, z
    assert detectable_w(DRAWS, dof) < 0.1, "the test must be able to see a small error"


@pytest.mark.parametrize(("rule", "verifier"), [(full, no_residual), (anticipating, verify)])
def test_a_broken_residual_or_an_anticipating_rule_is_caught(rule, verifier):
    p_value, z, _ = emitted(make_pair(7, 1.0), rule, verifier)
    assert p_value < ALPHA
    assert z > 30


def test_at_temperature_zero_the_text_is_the_greedy_one():
    pair = make_pair(7, 0.0)
    greedy = pair.text(1, LENGTH, generator())
    for rule in (full, causal, anticipating):
        assert torch.equal(pair.decode(50, LENGTH, rule, generator(), verify), greedy.expand(50, -1))


def recorded_cells(pair: TablePair, length: int) -> np.ndarray:
    """(block, accepted, text) of blocks drawn backwards from texts that the target wrote alone."""
    y = pair.text(DRAWS, length, generator(2))
    anchor = y[:, 0]

    def step(j: int, previous: torch.Tensor) -> torch.Tensor:
        return pair.q_GVVW[j, START, previous]

    uniform = torch.rand(DRAWS, GAMMA, 3, generator=generator(3))
    blocks = draft_blocks(step, anchor, pair.ahead(y, 0), pair.draft_ids_W, uniform)
    return joint(pair.index_V[blocks.coupled_NG], blocks.accepted_N, y[:, 1:])


def joint(x_NG, accepted_N, y_NL) -> np.ndarray:
    return cells(torch.cat([x_NG, accepted_N[:, None], y_NL], 1))


def joint_law(pair: TablePair, length: int) -> np.ndarray:
    law = np.zeros(V ** (GAMMA + 1 + length))
    for x, accepted, y, mass in forward_law(pair, length):
        law[joint(torch.tensor([x]), torch.tensor([accepted]), torch.tensor([y]))] += mass
    return law


@pytest.mark.parametrize(("length", "temperature"), [(1, 1.0), (2, 0.6), (3, 1.0)])
def test_replay_has_the_joint_law_of_live_decoding(length, temperature):
    """(draft block, and so its confidences; accepted run; text), ends of texts included (length < gamma)."""
    pair = make_pair(11, temperature)
    law = joint_law(pair, length)
    assert law.sum() == pytest.approx(1, abs=1e-5)
    p_value, z, dof = fit(recorded_cells(pair, length), law)
    assert p_value > ALPHA, z
    assert detectable_w(DRAWS, dof) < 0.15


def forward_rule(q_NW, p_NW, text_N, p_of_text_N, uniform_N2) -> Coupled:
    """The mutant: min(1, p / q) on the text's token, where the posterior is min(1, q / p)."""
    known = text_N < q_NW.shape[1]
    q_of_text = q_NW.gather(-1, text_N.where(known, 0)[:, None])[:, 0]
    accepted = known & (uniform_N2[:, 0] * q_of_text < p_of_text_N)
    return Coupled(accepted, torch.where(accepted, text_N, draw(residual(q_NW, p_NW), uniform_N2[:, 1])))


def test_a_recorder_with_the_forward_rule_is_caught(monkeypatch):
    pair = make_pair(11, 1.0)
    monkeypatch.setattr(rules, "posterior_step", forward_rule)
    p_value, z, _ = fit(recorded_cells(pair, 2), joint_law(pair, 2))
    assert p_value < ALPHA
    assert z > 30


# ---- the same of a neural pair, decoded with its caches, in a batch, under the lab's policies


@pytest.fixture(scope="module")
def profile():
    return staircase()


@pytest.mark.parametrize("head", ["none", "vanilla", "gated", "rnn", "serial"])
@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_every_drafter_is_lossless_live(head, temperature, profile):
    (p_value, z, dof), _ = live_law(pair_of(head), "full", profile, temperature=temperature)
    assert p_value > ALPHA, z
    assert detectable_w(6000, dof) < 0.27, "6,000 texts must show an error of some .1 in total variation"


def test_a_drafter_of_the_whole_vocabulary_is_lossless_live(profile):
    (p_value, z, _), _ = live_law(pair_of("vanilla", draft_vocab=None), "full", profile, temperature=1.0)
    assert p_value > ALPHA, z


def test_top_p_is_lossless_live(profile):
    """The law is the nucleus of the target: tokens outside it never appear."""
    (p_value, z, dof), _ = live_law(pair_of("vanilla"), "full", profile, temperature=1.0, top_p=0.8)
    assert p_value > ALPHA, z
    assert dof > 10


@pytest.mark.parametrize(
    "policy",
    ["static:k=2", "dspark", "dspark-async:lag=1", "dspark-async:lag=2", "threshold:on=confidence,at=0.4"],
)
def test_lossless_policies_whose_lengths_vary_are_lossless_live(policy, profile):
    assert parse_policy(policy).verdict != "not-lossless"
    (p_value, z, _), verify_len = live_law(pair_of("vanilla"), policy, profile, temperature=1.0)
    assert p_value > ALPHA, z
    assert policy.startswith("static") or len(np.unique(verify_len)) > 1, "lengths must vary"


def test_a_broken_residual_is_caught_live(profile, monkeypatch):
    monkeypatch.setattr("dspark_sim.model.live.verify", no_residual)
    (p_value, z, _), _ = live_law(pair_of("vanilla"), "full", profile, temperature=1.0)
    assert p_value < ALPHA
    assert z > 30


# ---- appendix A of the paper, with the lab's own rules and the real verification


def first_token(policy: str) -> np.ndarray:
    """First output token of one request, gamma 2: target (.7, .3), draft (.5, .5), SPS 1, .5, .45."""
    random = generator(4)
    drafted = torch.randint(2, (DRAWS, 2), generator=random)
    rule, length = parse_policy(policy), {}
    for first, second_confidence in ((0, 0.9), (1, 0.0)):
        survival = np.array([[0.8, 0.8 * second_confidence]])
        view = BatchView(survival, survival, survival, 1 / np.array([1.0, 0.5, 0.45]), gamma=2, lag=0)
        length[first] = int(rule(view)[0])
    p, q = torch.tensor([0.7, 0.3]).expand(DRAWS, 3, 2), torch.full((DRAWS, 2, 2), 0.5)
    lengths = torch.where(drafted[:, 0] == 0, length[0], length[1])
    uniform = torch.rand(DRAWS, 3, generator=random)
    done = verify(p, q, drafted, lengths, draft_ids_W=torch.arange(2), uniform_RU=uniform)
    return torch.where(done.accepted_R > 0, drafted[:, 0], done.next_R).numpy()


def test_appendix_a_the_rule_without_its_break_changes_the_law_and_the_rule_with_it_does_not():
    without_break = first_token("dspark-async:lag=0")
    assert fit(without_break, np.array([0.7, 0.3]))[1] > 30
    assert fit(without_break, np.array([0.85, 0.15]))[0] > ALPHA
    assert fit(first_token("dspark"), np.array([0.7, 0.3]))[0] > ALPHA
