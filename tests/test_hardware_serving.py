"""Terms of a step that serving adds: prompts, experts, logit rows, additive tables; and KV memory."""

from __future__ import annotations

import numpy as np
import pytest
from hardware_cases import small, small_profile, with_serving
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.forward import attention_pairs
from dspark_sim.hardware.memory import graph_bytes, kv_blocks
from dspark_sim.hardware.profile import load_profile
from dspark_sim.hardware.reading import ProfileError, parse_profile

COST = StepCost(with_serving(), 8, 200)


def routed(tokens: int) -> float:
    return 6.0 * (1 - 0.75**tokens)


def test_every_term_of_a_mixed_step_is_charged_once():
    # 2 requests verify 4 tokens in all, 10 prompt tokens ride along: 14 run as 16.
    step_s = COST.step_s(14, 2, 0, 0.002, False, prefill_tokens=10, prefill_pairs=50_000)
    by_hand = [9.0, routed(14), 4 * 0.005, 1.0 + 0.0, 0.7 + 2 * 0.01, 2.0 + 0.5, 1.5, 0.1]
    assert step_s == pytest.approx(sum(by_hand) * 1e-3)


def test_a_step_that_does_not_draft_pays_nothing_for_speculating():
    assert COST.step_s(4, 4, 0, 0.0, False) == pytest.approx(
        (5.25 + routed(4) + 4 * 0.005 + 1.0 + 0.8 + 0.7 + 0.04) * 1e-3
    )


@pytest.mark.parametrize(("running", "alpha"), [(1, 0.0), (2, 0.0), (3, 0.4), (4, 0.8), (8, 0.8)])
def test_the_additive_part_is_linear_and_clamped(running, alpha):
    plain = StepCost(small_profile(), 8, 16)
    added = StepCost(
        small_profile(verify__additive={"bias_ms": 1.0, "requests": [2, 4], "ms": [0, 0.8]}), 8, 16
    )
    more = added.step_s(8, running, 0, 0.0, False) - plain.step_s(8, running, 0, 0.0, False)
    assert more == pytest.approx((1.0 + alpha) * 1e-3)


def test_experts_are_hidden_behind_launches_but_not_behind_an_overhead():
    assert COST.step_s(17, 1, 0, 0.0, False) == pytest.approx((100.0 + 17 * 0.005 + 1.0 + 0.71) * 1e-3)
    kernels = StepCost(with_serving(verify__additive=None, eager__tokens=None, eager__ms=None,
                                    eager__beyond=None, eager__overhead_ms=4.0), 8, 200)  # fmt: skip
    assert kernels.step_s(17, 1, 0, 0.0, False) == pytest.approx(
        (9.0 + 0.375 + 4.0 + routed(17) + 17 * 0.005 + 0.71) * 1e-3
    )


@given(
    st.integers(1, 8), st.integers(0, 7), st.integers(0, 100), st.integers(0, 10**7),
    st.sampled_from([0.0, 0.003]), st.booleans(), st.data(),
)  # fmt: skip
def test_vector_equals_scalar_bit_for_bit_with_every_term(
    running, gamma, prompt, pairs, draft_s, synchronous, data
):
    last = running * gamma
    mixed = {"prefill_tokens": prompt, "prefill_pairs": pairs}
    step_s_M = COST.step_s_M(running, 0, last, draft_s, synchronous, **mixed)
    assert step_s_M.shape == (last + 1,)
    m = data.draw(st.integers(0, last))
    assert step_s_M[m] == COST.step_s(running + prompt + m, running, 0, draft_s, synchronous, **mixed)


@given(st.sampled_from(["h800", "b300-tp4-dsv4-flash"]), st.integers(1, 64), st.integers(0, 448))
def test_prompt_tokens_of_a_mixed_step_count_like_verify_tokens_by_default(name, running, prompt):
    cost = StepCost(load_profile(name), 64, 512)
    mixed = cost.step_s(running + prompt, running, 0, 0.0, False, prefill_tokens=prompt, prefill_pairs=9)
    assert mixed == cost.step_s(running + prompt, running, 0, 0.0, False)


# Prefill


def test_a_prefill_step_reads_the_verify_table_by_default_its_cliff_included():
    cost = StepCost(small_profile(), 4, 8)
    assert cost.prefill_s(10, 1) == pytest.approx((9.0 + 0.7 + 0.01) * 1e-3)
    assert cost.prefill_s(17, 2) == pytest.approx((100.0 + 0.7 + 0.02) * 1e-3)
    assert cost.prefill_s(0, 0) == pytest.approx(0.7e-3)


def test_a_prefill_step_with_a_table_and_pairs():
    prefill = {"tokens": [100, 200], "ms": [5.0, 9.0], "beyond": "last_two", "ms_per_million_pairs": 2.0}
    document = small() | {"prefill": prefill}
    document["sources"]["prefill"] = {"how": "measured", "source": "a test"}
    cost = StepCost(parse_profile(document, "small.yaml"), 4, 8)
    assert cost.prefill_s(150, 1) == pytest.approx((7.0 + 0.71) * 1e-3)
    assert cost.prefill_s(400, 1, 3_000_000) == pytest.approx((17.0 + 6.0 + 0.71) * 1e-3)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_chunking_a_prompt_computes_the_same_pairs(first, second, context):
    whole = attention_pairs(first + second, context)
    assert attention_pairs(first, context) + attention_pairs(second, context + first) == whole
    assert attention_pairs(1) == 1


# KV memory


def test_no_kv_section_is_unlimited():
    assert kv_blocks(small_profile(), True) is None


def test_memory_over_bytes():
    assert kv_blocks(with_serving(), True) == 2**30 // 16_000
    assert kv_blocks(with_serving(kv__draft_bytes_per_token=600), False) == 2**30 // 16_000
    assert kv_blocks(with_serving(kv__draft_bytes_per_token=600), True) == 2**30 // 25_600


def test_captured_sizes_cost_blocks():
    profile = with_serving(capture__memory_mib_per_size=100.0)
    assert graph_bytes(profile) == 4 * 100 * 2**20
    assert kv_blocks(profile, False) == (2**30 - 400 * 2**20) // 16_000
    assert kv_blocks(with_serving(capture__memory_mib_per_size=100.0, capture__limit=4), False) == (
        (2**30 - 200 * 2**20) // 16_000
    )


def test_graphs_that_leave_no_room_are_bad_input():
    with pytest.raises(InputError, match=r"no room for a KV block: kv.memory_gib 1.0 minus 1.17 GiB"):
        kv_blocks(with_serving(capture__memory_mib_per_size=300.0), False)


def test_counted_blocks_are_the_targets_and_drafting_shrinks_them():
    kv = {"block_tokens": 16, "num_blocks": 900, "bytes_per_token": 1000, "draft_bytes_per_token": 250}
    document = small() | {"kv": kv}
    document["sources"]["kv"] = {"how": "measured", "source": "a test"}
    profile = parse_profile(document, "small.yaml")
    assert kv_blocks(profile, False) == 900
    assert kv_blocks(profile, True) == 720


@pytest.mark.parametrize(
    ("section", "content", "said"),
    [
        ("kv", {"block_tokens": 16}, "kv: give either num_blocks, or memory_gib and bytes_per_token"),
        ("kv", {"block_tokens": 16, "num_blocks": 4, "memory_gib": 1.0}, "kv: give either num_blocks, or"),
        ("kv", {"block_tokens": 16, "memory_gib": 1.0}, "kv: memory_gib needs bytes_per_token"),
        ("kv", {"block_tokens": 16, "num_blocks": 4, "draft_bytes_per_token": 9}, "needs bytes_per_token"),
        ("kv", {"block_tokens": 0, "num_blocks": 4}, r"kv.block_tokens: must be at least 1, got 0"),
        ("prefill", {"tokens": [1, 2], "ms": [1.0, 2.0]}, "only tokens, ms given"),
        ("prefill", {"tokens": [1, 2], "ms": [1.0], "beyond": "hold"}, "tokens has 2 entries but ms has 1"),
        ("prefill", {"mixed": 2.0}, "prefill.mixed: unknown key: keys carry their unit; write mixed_ms"),
        ("experts", {"all_ms": 1.0, "active": 9, "total": 8}, "9 active of 8 experts"),
    ],
)
def test_what_a_user_can_get_wrong(section, content, said):
    document = small() | {section: content}
    document["sources"][section] = {"how": "assumed", "source": "a test"}
    with pytest.raises(ProfileError) as caught:
        parse_profile(document, "bad.yaml")
    assert said in str(caught.value)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("kv", {"block_tokens": 1, "num_blocks": 1}),
        ("prefill", {"mixed_ms": 1.0}),
        ("experts", {"all_ms": 1.0, "active": 1, "total": 2}),
    ],
)
def test_each_needs_a_source(section, content):
    with pytest.raises(ProfileError, match=f"sources.{section}: missing"):
        parse_profile(small() | {section: content}, "bad.yaml")


def test_an_additive_part_of_two_lengths():
    with pytest.raises(ProfileError, match=r"verify\.additive: requests has 2 entries but ms has 1"):
        small_profile(verify__additive={"bias_ms": 1.0, "requests": [2, 4], "ms": [0.0]})


def test_terms_that_are_absent_leave_every_bit_alone():
    cost = StepCost(small_profile(), 8, 16)
    kernels, host = cost._verify_s_B, 0.7 + 0.01 * np.arange(9)
    assert cost.step_s(8, 2, 0, 0.003, True) == kernels[8] + (0.0 + host[2] * 1e-3 + 0.003 + 1.7e-3)


def test_what_set_brings_in_needs_no_source():
    profile = load_profile("h800", {"prefill.mixed_ms": "2", "kv.num_blocks": "900", "kv.block_tokens": "16"})
    assert kv_blocks(profile, True) == 900
    plain = StepCost(load_profile("h800"), 4, 64)
    mixed = StepCost(profile, 4, 64)
    more = mixed.step_s(40, 4, 0, 0.0, False, prefill_tokens=32) - plain.step_s(40, 4, 0, 0.0, False)
    assert more == pytest.approx(2e-3)
