"""Which drafter a policy drafts with where none is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dspark_sim.arms import own_arms, own_drafter
from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import Trace


def with_mtp(gamma: int) -> Trace:
    """A shipped trace with an autoregressive drafter of that block beside its own."""
    trace = read_trace("qwen3-4b-chat.synth.parquet")
    block = trace.drafter()
    serial = replace(
        block, name="serial", kind="mtp", gamma=gamma, accepted_N=block.accepted_N.clip(max=gamma),
        confidence_logit_NG=None, confidence_logit_free_NG=None, accept_rate_NG=None,
    )  # fmt: skip
    return replace(trace, drafters={block.name: block, "serial": serial})


@pytest.mark.parametrize(
    ("policy", "gamma", "name"),
    [
        ("mtp:k=1", 3, "serial"),
        ("mtp:k=3", 3, "serial"),
        ("mtp:k=4", 3, "dspark"),
        ("mtp:k=9", 3, "serial"),
        ("off", 3, "dspark"),
        ("static:k=3", 3, "dspark"),
        ("dspark-async", 3, "dspark"),
    ],
)
def test_mtp_drafts_with_the_trace_s_mtp_drafter_if_it_drafts_enough(policy, gamma, name):
    assert own_drafter(parse_policy(policy), with_mtp(gamma)).name == name


def test_without_an_mtp_drafter_mtp_takes_the_default():
    trace = read_trace("qwen3-4b-chat.synth.parquet")
    assert own_drafter(parse_policy("mtp:k=1"), trace) is trace.drafter()


def test_each_policy_is_an_arm_with_its_own_drafter():
    rules = [parse_policy(spec) for spec in ("off", "mtp:k=1", "dspark", "off")]
    wanted = [("dspark", "off"), ("serial", "mtp:k=1"), ("dspark", "dspark")]
    assert own_arms(rules, with_mtp(3)) == wanted


def test_what_a_profile_cannot_cost_is_left_out_and_said():
    profile, said = load_profile("h800-qwen3-4b", None), []
    bare = replace(profile, draft=replace(profile.draft, mtp=None))
    rules = [parse_policy("mtp:k=1"), parse_policy("static:k=3")]
    assert own_arms(rules, with_mtp(3), bare, said.append) == [("dspark", "static:k=3")]
    assert said == [f"mtp:k=1 left out: {profile.name} has no cost of drafter kind mtp"]
    with pytest.raises(InputError, match="no policy is left"):
        own_arms(rules[:1], with_mtp(3), bare)
