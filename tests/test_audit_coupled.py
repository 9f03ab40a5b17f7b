"""The coupled bonus reveals one token more, kept tails are a block verified in two instalments."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from audit_mutants import MUTANTS, policy_of, prefix

from dspark_sim.audit.exact import GAMMA, Request, draw_request, output_law, search
from dspark_sim.audit.overwrite import Revealed
from dspark_sim.audit.verdict import audit
from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import parse_policy, policies

COUPLED = Revealed(coupled=True)


def one_more_if_the_next_is_likely(view):
    """Stop each prefix below .5, then look one value past the stop: one more if that one is high."""
    lengths = prefix(view.confidence_RG >= 0.5)
    rows, place = np.arange(view.num_running), np.minimum(lengths + 1, view.gamma - 1)
    likely = (lengths + 1 < view.gamma) & (view.confidence_RG[rows, place] >= 0.8)
    return np.where(likely, lengths + 2, lengths)


def two_more_if_likely_later(view):
    """The same with a look two values past the stop."""
    lengths = np.zeros(view.num_running, dtype=np.int64)
    return np.where(view.confidence_RG[:, min(2, view.gamma - 1)] >= 0.5, view.gamma, lengths)


@pytest.mark.parametrize(
    ("rule", "fresh", "coupled"),
    [
        (one_more_if_the_next_is_likely, "not-lossless", "lossless"),
        (two_more_if_likely_later, "not-lossless", "not-lossless"),
    ],
)
def test_a_coupled_bonus_allows_a_look_one_token_further_and_no_more(rule, fresh, coupled):
    policy = policy_of(rule)
    assert audit(policy, effort=0.4).verdict == fresh
    assert audit(policy, revealed=COUPLED, effort=0.4).verdict == coupled
    for is_coupled, verdict in ((False, fresh), (True, coupled)):
        law, _ = search(policy, coupled=is_coupled, worlds=2, tries=30)
        assert (law.distance == 0) == (verdict == "lossless")


@pytest.mark.parametrize("info", policies(), ids=lambda info: info.name)
def test_what_is_lossless_stays_so(info):
    policy = parse_policy(info.example)
    if policy.verdict != "not-lossless":
        assert audit(policy, revealed=COUPLED, effort=0.1).verdict == policy.verdict


@pytest.mark.parametrize("name", ["without_break", "last_decides", "expected_number", "mean_threshold"])
def test_rules_that_look_further_are_caught_all_the_same(name):
    [mutant] = [m for m in MUTANTS if m.label == name]
    assert audit(mutant, revealed=COUPLED).verdict == "not-lossless"


def appendix_a():
    """Target (.7, .3), draft (.5, .5), c_1 = .8, c_2 = .9 after A and 0 after B, SPS 1, .5, .45."""
    prefixes = list(draw_request(np.random.default_rng(0)).p_of_a)
    half = {f: Fraction(1, 2) for f in prefixes}
    target = {f: Fraction(7, 10) for f in prefixes}
    confidence = {f: {(): 0.8, (0,): 0.9}.get(f, 0.0) for f in prefixes}
    step_s = np.array([1.0, 2.0, 1 / 0.45, 1e3])

    def alone(view):
        one = view._replace(
            survival_RG=view.survival_RG[:1], confidence_RG=view.confidence_RG[:1],
            lagged_RG=view.survival_RG[:1], step_s_M=step_s,
        )  # fmt: skip
        return np.array([int(parse_policy("dspark-async:lag=0")(one)[0]), 0])

    nothing = np.zeros((2, GAMMA))
    view = BatchView(nothing, nothing, nothing, np.ones(2 * GAMMA + 1), GAMMA, 0)
    requests = [Request(target, half, confidence), Request(target, half, dict.fromkeys(prefixes, 0.0))]
    return policy_of(alone), requests, view


@pytest.mark.parametrize(("coupled", "share_of_a"), [(False, Fraction(85, 100)), (True, Fraction(7, 10))])
def test_appendix_a_without_the_break(coupled, share_of_a):
    law = output_law(*appendix_a(), coupled=coupled)
    assert sum(p[0] for text, p in law.single[0].items() if text[0] == "A") == share_of_a
    assert (law.distance == 0) == coupled


# Kept tails: round one verifies nothing and tests x_1 as its bonus; where that is the text, x_2, x_3 are a
# draft for round two. Verified in two instalments the block is verified, in all, up to 1 or 3 tokens.


def keeps_by_its_first_confidence(view):
    """c_2 reads x_1, which the bonus has revealed."""
    return np.where(view.confidence_RG[:, min(1, view.gamma - 1)] >= 0.5, view.gamma, 1)


def keeps_by_what_is_inside(view):
    """c_3 reads x_2, which is in the tail."""
    return np.where(view.confidence_RG[:, min(2, view.gamma - 1)] >= 0.5, view.gamma, 1)


def budget_reads_kept_tails(view):
    """Both keep their tails; how far they are verified is decided by what both hold inside."""
    inside = view.confidence_RG[:, min(2, view.gamma - 1)]
    return np.full(view.num_running, view.gamma if inside.mean() >= 0.5 else 1)


@pytest.mark.parametrize(
    ("rule", "lossless"),
    [
        (keeps_by_its_first_confidence, True),
        (keeps_by_what_is_inside, False),
        (budget_reads_kept_tails, False),
    ],
)
def test_what_a_decision_about_a_kept_tail_may_read(rule, lossless):
    policy = policy_of(rule)
    assert (audit(policy, effort=0.4).verdict == "lossless") == lossless
    law, _ = search(policy, worlds=2, tries=30)
    assert (law.distance == 0) == lossless


def test_the_command(command):
    done = command("audit", "dspark", "--bonus", "coupled", "--effort", 0.1)
    assert "coupled bonus: lossless" in done.out
    assert command("audit", "dspark", "--bonus", "coupled", "--live").code == 2
