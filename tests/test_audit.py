"""The audit gives the right verdict, finds every rule that looks ahead, and writes out exact laws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from audit_mutants import MUTANTS, last_above, other_drew_a, policy_of, prefix

from dspark_sim.audit.exact import LETTERS, Request, draw_request, output_law, search
from dspark_sim.audit.overwrite import Revealed, find_counterexample, state_reads_tails
from dspark_sim.audit.verdict import audit
from dspark_sim.audit.worlds import draw_view, with_confidence
from dspark_sim.errors import InputError
from dspark_sim.policies.base import BatchView, Decision, Past
from dspark_sim.policies.registry import parse_policy, policies

VERDICTS = {
    "dspark": "lossless",
    "dspark-async:lag=0": "not-lossless",
    "dspark-async:lag=2": "lossless-under-lag",
    "budget:tokens=1.5": "lossless",
    "threshold:on=survival,at=0.4": "lossless",
    "threshold:on=confidence,at=0.4": "lossless",
}


@pytest.mark.parametrize("spec", VERDICTS)
def test_verdicts(spec):
    found = audit(parse_policy(spec), effort=0.5)
    assert found.verdict == found.claimed == VERDICTS[spec]
    assert (found.counterexample is None) == (found.verdict != "not-lossless")


@pytest.mark.parametrize("info", policies(), ids=lambda info: info.name)
def test_every_shipped_rule_claims_what_is_found(info):
    found = audit(parse_policy(info.example), effort=0.15, seed=3)
    assert found.verdict == found.claimed
    assert not found.state_reads_tails
    if info.reads == "lagged":
        assert audit(parse_policy(info.example, lag=0), effort=0.5).verdict == "not-lossless"


@pytest.mark.parametrize("policy", MUTANTS, ids=lambda policy: policy.label)
def test_every_rule_that_looks_ahead_is_caught(policy):
    found = audit(policy, effort=0.5)
    assert found.verdict == "not-lossless"
    assert not found.honest


def test_there_are_at_least_twenty_mutants():
    assert len({policy.label for policy in MUTANTS}) >= 20


def test_a_prefix_is_lossless_and_the_last_above_is_not():
    """Of confidences; survivals fall, so their last above is the same prefix."""

    def first_below(view):
        return prefix(view.confidence_RG >= 0.4)

    def last(view):
        return last_above(view.confidence_RG >= 0.4)

    def last_survival(view):
        return last_above(view.survival_RG >= 0.4)

    found = [audit(policy_of(rule), effort=0.3).verdict for rule in (first_below, last_survival, last)]
    assert found == ["lossless", "lossless", "not-lossless"]


def test_a_counterexample_agrees_on_what_the_decision_reveals_and_is_small():
    found = find_counterexample(parse_policy("dspark-async:lag=0"))
    assert found is not None
    view, lengths = found.view, found.verify_len_R
    revealed = np.arange(view.gamma) <= lengths[:, None]
    np.testing.assert_array_equal(view.confidence_RG[revealed], found.other_RG[revealed])
    rule = parse_policy("dspark-async:lag=0")
    np.testing.assert_array_equal(rule(view), lengths)
    np.testing.assert_array_equal(rule(with_confidence(view, found.other_RG)), found.other_len_R)
    assert not np.array_equal(lengths, found.other_len_R)
    for r, j in np.argwhere(view.confidence_RG != found.other_RG):
        fewer = found.other_RG.copy()
        fewer[r, j] = view.confidence_RG[r, j]
        np.testing.assert_array_equal(rule(with_confidence(view, fewer)), lengths)


def test_at_temperature_zero_every_rule_is_lossless():
    assert audit(parse_policy("dspark-async:lag=0"), temperature=0, effort=0.2).verdict == "lossless"


def test_confidences_that_read_their_own_token_reveal_one_less():
    """Algorithm 1 looks at the value that stops it; that value may not have read the token it is about."""
    of_token = Revealed(of_token=True)
    assert audit(parse_policy("dspark"), revealed=of_token, effort=0.5).verdict == "not-lossless"
    assert audit(parse_policy("static:k=2"), revealed=of_token, effort=0.2).verdict == "lossless"


def test_a_state_that_remembers_unverified_tails_is_pointed_out():
    def keeps_current(view, state):
        return Decision(np.ones(view.num_running, dtype=np.int64), float(view.survival_RG.mean()))

    def keeps_lagged(view, state):
        return Decision(np.ones(view.num_running, dtype=np.int64), float(view.lagged_RG.mean()))

    assert state_reads_tails(policy_of(keeps_current, stateful=True))
    assert not state_reads_tails(policy_of(keeps_lagged, stateful=True, lag=1))


# ---- exact laws


@pytest.mark.parametrize(
    "spec", ["dspark", "dspark-async", "budget:tokens=1", "threshold:on=survival,at=0.5"]
)
def test_the_law_of_a_lossless_rule_is_the_targets_to_the_last_digit(spec):
    law, written = search(parse_policy(spec), worlds=2, tries=12)
    assert written == 2
    assert law.distance == law.single_distance == 0
    assert all(rule == target for rule, target in law.joint.values())
    assert sum(rule for rule, _ in law.joint.values()) == 1


@pytest.mark.parametrize("spec", ["dspark-async:lag=0", "dcut"])
def test_the_law_of_a_rule_that_looks_ahead_is_another(spec):
    law, _ = search(parse_policy(spec), worlds=1)
    assert law.distance >= law.single_distance > 0
    assert sum(rule for rule, _ in law.joint.values()) == 1


def test_each_verifies_iff_the_other_drew_a_has_right_marginals_and_a_wrong_joint_law():
    policy = policy_of(other_drew_a)
    assert audit(policy).verdict == "not-lossless"
    law, _ = search(policy)
    assert law.single_distance == 0
    assert law.distance > 0


def test_appendix_a_by_enumeration():
    """Target (.7, .3), draft (.5, .5), c_1 = .8, c_2 = .9 after A and 0 after B, SPS 1, .5, .45."""
    prefixes = list(draw_request(np.random.default_rng(0)).p_of_a)
    first = {f: Fraction(7, 10) for f in prefixes}
    half = {f: Fraction(1, 2) for f in prefixes}
    confidence = {f: {(): 0.8, (0,): 0.9}.get(f, 0.0) for f in prefixes}
    quiet = Request(first, half, dict.fromkeys(prefixes, 0.0))
    nothing = np.zeros((2, 3))
    step_s = np.array([1.0, 2.0, 1 / 0.45, *[1e3] * 4])
    view = BatchView(nothing, nothing, nothing, step_s, 3, 0)

    def alone(rule):
        """Decide on request 0 as if it ran alone, at the paper's costs."""

        def decided(view):
            one = view._replace(
                survival_RG=view.survival_RG[:1], confidence_RG=view.confidence_RG[:1],
                lagged_RG=view.survival_RG[:1], step_s_M=step_s[:4],
            )  # fmt: skip
            return np.array([int(rule(one)[0]), 0])

        return policy_of(decided)

    requests = [Request(first, half, confidence), quiet]
    bent = output_law(alone(parse_policy("dspark-async:lag=0")), requests, view)
    assert sum(p[0] for text, p in bent.single[0].items() if text[0] == LETTERS[0]) == Fraction(85, 100)
    assert output_law(alone(parse_policy("dspark")), requests, view).distance == 0


def test_the_exact_mode_refuses_longer_blocks():
    with pytest.raises(InputError, match="blocks of 3 tokens"):
        search(parse_policy("static:k=4"))


def test_a_rule_that_returns_no_lengths_is_refused():
    with pytest.raises(InputError, match=r"one whole number in 0\.\.2 for each of the 1 requests"):
        audit(policy_of(lambda view: np.array([0.5])))


def test_views_are_what_an_engine_shows():
    rng = np.random.default_rng(0)
    view = draw_view(parse_policy("dspark-async"), rng, Past.nothing(4), 5)
    assert (np.diff(view.survival_RG, axis=1) <= 0).all()
    assert view.step_s_M.shape == (21,)
    assert (with_confidence(view, view.confidence_RG * 0).lagged_RG == view.lagged_RG).all()


# ---- live


@pytest.mark.parametrize(("spec", "lossless"), [("dspark", True), ("/other_drew_a", False)])
def test_live_texts_one_by_one_and_two_by_two(spec, lossless):
    pytest.importorskip("torch", reason="the live pair needs torch")
    from dspark_sim.audit.live import live_audit

    policy = policy_of(other_drew_a) if spec.startswith("/") else parse_policy(spec)
    found = live_audit(policy, pairs=5000)
    assert len(found.lengths) > 1
    assert found.agrees == lossless, found
    if not lossless:
        assert min(fit.p_value for fit in found.single) > 1e-3, "its marginals are right"


# ---- the command


def test_the_command_answers_in_json(command):
    done = command("audit", "dspark-async", "--lag", 0, "--exact", "--json")
    assert done.code == 1
    assert (done.document["policy"], done.document["lag"]) == ("dspark-async:lag=0", 0)
    assert done.document["verdict"] == "not-lossless"
    found = done.document["counterexample"]
    assert found["decision"] != found["decision_then"]
    assert Fraction(done.document["exact"]["joint_distance"]) > 0


def test_the_command_passes_what_is_lossless(command):
    done = command("audit", "dspark", "--effort", 0.2, "--json")
    assert done.code == 0
    assert set(done.document) == {"policy", "lag", "verdict", "counterexample"}
    assert (done.document["verdict"], done.document["counterexample"]) == ("lossless", None)
    assert "dspark at lag 0, temperature 1: lossless" in command("audit", "dspark", "--effort", 0.1).out


def test_the_command_shows_the_counterexample(command):
    done = command("audit", "dcut")
    assert done.code == 1
    assert "decision then" in done.out
    assert command("audit", "dsprak").error.startswith("unknown policy 'dsprak'")
