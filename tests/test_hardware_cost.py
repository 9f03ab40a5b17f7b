"""Step cost: every look-up convention at, below and above each edge, and the laws of the sum."""

from __future__ import annotations

import numpy as np
import pytest
from hardware_cases import small_profile, with_attention
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost, verify_ms
from dspark_sim.hardware.profile import load_profile
from dspark_sim.hardware.tables import Table, capture_sizes, pad, vllm_capture_sizes


def ms(profile, tokens: int) -> float:
    """Verify cost alone, ms."""
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    return float(verify_ms(profile, tokens, captured)[tokens])


# Padding


@pytest.mark.parametrize(
    ("tokens", "runs"),
    [(0, 0), (1, 2), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (16, 16), (17, 17), (40, 40)],
)
def test_padded_rounds_up_to_a_captured_size_and_runs_as_is_past_the_limit(tokens, runs):
    cost = StepCost(small_profile(), 4, 64)
    assert cost.padded(tokens) == runs
    assert pad(np.array([float(tokens)]), cost.captured)[0] == runs


def test_limit_drops_the_larger_sizes():
    profile = small_profile(capture__limit=7)
    assert capture_sizes(profile.capture, profile.verify.tokens) == [2, 4]
    assert StepCost(profile, 4, 64).padded(5) == 5


def test_limit_zero_captures_nothing_and_every_step_is_eager():
    profile = small_profile(capture__limit=0)
    assert StepCost(profile, 4, 64).padded(3) == 3
    assert ms(profile, 1) == 100.0


def test_sizes_from_the_table():
    profile = small_profile(capture__sizes="table")
    assert capture_sizes(profile.capture, profile.verify.tokens) == [1, 2, 4, 8, 16]


def test_vllm_sizes():
    assert vllm_capture_sizes(24) == [1, 2, 4, 8, 16, 24]
    assert vllm_capture_sizes(3) == [1, 2]
    assert vllm_capture_sizes(0) == []
    sizes = vllm_capture_sizes(512)
    assert sizes[-19:-15] == [240, 248, 256, 272]
    assert sizes[-2:] == [496, 512]
    assert len(sizes) == 51


# Verify, inside the captured region


@pytest.mark.parametrize(
    ("tokens", "expected"),
    # 1 token runs as 2; 3 as 4 (cheaper than 2: a measured fall stays); 9 as 16.
    [(1, 5.5), (2, 5.5), (3, 5.25), (4, 5.25), (5, 6.0), (8, 6.0), (9, 9.0), (15, 9.0), (16, 9.0)],
)
def test_ceil_to_capture(tokens, expected):
    assert ms(small_profile(), tokens) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(1, 5.0), (2, 5.5), (3, 5.5), (4, 5.25), (7, 5.25), (8, 6.0), (15, 6.0), (16, 9.0)],
)
def test_floor(tokens, expected):
    assert ms(small_profile(verify__lookup="floor"), tokens) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(1, 5.0), (2, 5.5), (3, 5.375), (4, 5.25), (6, 5.625), (8, 6.0), (12, 7.5), (16, 9.0)],
)
def test_linear(tokens, expected):
    assert ms(small_profile(verify__lookup="linear"), tokens) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("lookup", ["ceil_to_capture", "floor", "linear"])
def test_below_the_first_size_its_value_holds(lookup):
    profile = small_profile(
        verify__lookup=lookup, verify__tokens=[4, 8, 16, 17, 18], capture__sizes=[1, 2, 4, 8, 16]
    )
    assert ms(profile, 1) == ms(profile, 2) == ms(profile, 4) == 5.0


def test_captured_size_between_measured_ones_is_interpolated():
    assert ms(small_profile(capture__sizes=[12, 16]), 10) == pytest.approx(7.5)


def test_monotone_takes_the_running_maximum_of_the_table_and_of_the_tail():
    profile = small_profile(verify__monotone=True, capture__sizes="table")
    assert [ms(profile, b) for b in (1, 2, 4, 8, 16)] == [5.0, 5.5, 5.5, 6.0, 9.0]
    assert ms(profile, 64) == 100.0
    low = small_profile(verify__monotone=True, eager__ms=[3.0, 4.0])
    assert ms(low, 17) == ms(low, 64) == 9.0


# Past the captured region


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(16, 9.0), (17, 100.0), (31, 100.0), (32, 100.0), (48, 95.0), (64, 90.0), (99, 90.0)],
)
def test_eager_tail_is_a_cliff(tokens, expected):
    assert ms(small_profile(), tokens) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(16, 9.0), (17, 9.0 + 91 / 16), (24, 54.5), (32, 100.0), (33, 99.6875), (48, 95.0)],
)
def test_eager_tail_as_a_ramp(tokens, expected):
    assert ms(small_profile(eager__below="ramp"), tokens) == pytest.approx(expected)


def test_raising_the_limit_moves_the_cliff():
    profile = small_profile(capture__limit=64, capture__sizes=[2, 4, 8, 16, 32, 48])
    # Past 16 the captured table goes on with the slope of its last octave, (9 - 6) / 8 per token.
    assert ms(profile, 32) == pytest.approx(9.0 + 16 * 0.375)
    assert ms(profile, 33) == pytest.approx(9.0 + 32 * 0.375)
    assert ms(profile, 49) == pytest.approx(100.0 - 10.0 * 17 / 32)


def test_eager_overhead_adds_to_the_unpadded_table():
    profile = small_profile(eager={"overhead_ms": 4.0}, capture__limit=8)
    assert ms(profile, 8) == 6.0
    assert ms(profile, 12) == pytest.approx(7.5 + 4.0)
    assert ms(profile, 16) == 13.0
    assert ms(profile, 24) == pytest.approx(9.0 + 8 * 0.375 + 4.0)


def test_eager_tail_may_go_on():
    profile = small_profile(eager__ms=[90.0, 100.0], eager__beyond="last_two")
    assert ms(profile, 128) == pytest.approx(120.0)


# Tables


def test_last_octave_is_not_fooled_by_a_tile_step_at_the_end():
    sizes, values = [256, 512, 1024, 1025], [5.0, 10.0, 20.0, 21.0]
    assert Table(sizes, values, "last_two").slope == pytest.approx(1.0)
    assert Table(sizes, values, "last_octave").slope == pytest.approx(11.0 / 513)
    assert Table(sizes, values, "hold").slope == 0.0


@pytest.mark.parametrize("beyond", ["last_two", "last_octave"])
def test_a_falling_end_is_not_extended_downwards(beyond):
    table = Table([1, 2, 4], [9.0, 8.0, 1.0], beyond)
    assert table.read(np.array([1e6]))[0] == 1.0


def test_table_without_a_size_in_its_last_octave_uses_the_first():
    assert Table([10, 12], [1.0, 2.0], "last_octave").slope == pytest.approx(0.5)


sizes_and_values = st.lists(st.integers(1, 5000), min_size=2, max_size=30, unique=True).flatmap(
    lambda sizes: st.tuples(
        st.just(sorted(sizes)), st.lists(st.floats(0.001, 1e4), min_size=len(sizes), max_size=len(sizes))
    )
)


@given(sizes_and_values, st.sampled_from(["last_octave", "last_two", "hold"]), st.booleans())
def test_table_is_exact_at_its_sizes_and_within_its_range_between(table, beyond, floor):
    sizes, values = table
    read = Table(sizes, values, beyond, floor).read(np.arange(sizes[-1] + 1, dtype=float))
    assert read[sizes].tolist() == values
    assert read.min() >= min(values)
    assert read.max() <= max(values)


# Drafting


def test_parallel_draft_is_one_pass_and_a_serial_loop():
    cost = StepCost(small_profile(), 8, 16)
    # 3 requests run as 4 (captured); the loop runs 4 positions of the 3 requests there are.
    assert cost.draft_s("dspark", 3, 4) == pytest.approx((1.6 + 4 * (0.1 + 0.03)) * 1e-3)
    assert cost.draft_s("dspark", 4, 4) == pytest.approx((1.6 + 4 * (0.1 + 0.04)) * 1e-3)


def test_a_shorter_block_runs_fewer_positions():
    cost = StepCost(small_profile(), 8, 16)
    # Half the block: the pass at 8 requests costs what the full block costs at 4.
    assert cost.draft_s("dspark", 8, 2) == pytest.approx((1.6 + 2 * (0.1 + 0.08)) * 1e-3)


def test_draft_past_the_table():
    cost = StepCost(small_profile(capture__limit=0), 16, 16)
    assert cost.draft_s("dspark", 16, 4) == pytest.approx((2.0 + 8 * 0.1 + 4 * (0.1 + 0.16)) * 1e-3)


@pytest.mark.parametrize(("running", "expected"), [(1, 0.5), (3, 0.7), (5, 0.9), (7, 1.1)])
def test_serial_draft_is_k_passes(running, expected):
    cost = StepCost(small_profile(), 8, 16)
    for k in (1, 2, 5):
        assert cost.draft_s("mtp", running, k) == pytest.approx(k * expected * 1e-3)


def test_nothing_drafted_costs_nothing():
    cost = StepCost(small_profile(), 8, 16)
    assert cost.draft_s("none", 5, 4) == 0.0
    assert cost.draft_s("mtp", 5, 0) == 0.0
    assert cost.draft_s("dspark", 5, 0) == 0.0
    assert cost.draft_s("dspark", 0, 4) == 0.0


def test_a_drafter_the_profile_does_not_know():
    with pytest.raises(
        InputError, match=r"profile small: no draft cost for a 'eagle' drafter \(it has: dspark, mtp\)"
    ):
        StepCost(small_profile(), 8, 16).draft_s("eagle", 1, 4)


# Attention


def test_attention_is_exact_at_its_grid_and_bilinear_between():
    cost = StepCost(with_attention(), 8, 16)
    assert cost.attention_s(2, 2 * 200) == pytest.approx(3.0e-3)
    assert cost.attention_s(2, 2 * 300) == pytest.approx(5.0e-3)
    # Three requests: half way between two and four at every context.
    assert cost.attention_s(3, 3 * 100) == pytest.approx(3.0e-3)
    assert cost.attention_s(3, 3 * 150) == pytest.approx((3.0 + 6.0) / 2 * 1e-3)


def test_attention_outside_its_grid():
    cost = StepCost(with_attention(), 8, 16)
    assert cost.attention_s(1, 50) == pytest.approx(1.0e-3)  # below: the first value holds
    assert cost.attention_s(1, 800) == pytest.approx(8.0e-3)  # last octave, (4 - 2) / 200 per token
    assert cost.attention_s(8, 8 * 100) == pytest.approx(8.0e-3)  # (4 - 2) / 2 per request
    assert cost.attention_s(0, 0) == 0.0


def test_attention_within_the_verify_table_is_not_charged_again():
    assert StepCost(small_profile(), 8, 16).attention_s(4, 4000) == 0.0


# The sum


def test_a_step_is_the_sum_of_its_terms():
    cost = StepCost(with_attention(), 8, 40)
    quiet = cost.step_s(8, 2, 400, 0.002, synchronous=False)
    assert quiet == pytest.approx((6.0 + 3.0 + 0.7 + 2 * 0.01 + 2.0) * 1e-3)
    assert cost.step_s(8, 2, 400, 0.002, synchronous=True) == pytest.approx(quiet + 1.7e-3)


PROFILES = [load_profile("h800"), load_profile("b300-tp4-dsv4-flash"), small_profile(), with_attention()]
COSTS = [StepCost(profile, 256, 256 * 9) for profile in PROFILES]


@settings(max_examples=300)
@given(
    st.sampled_from(COSTS),
    st.integers(1, 256),
    st.integers(0, 8),
    st.integers(0, 40_000),
    st.floats(0, 0.1),
    st.booleans(),
    st.data(),
)
def test_vector_equals_scalar_bit_for_bit(cost, running, gamma, context, draft_s, synchronous, data):
    last = running * gamma
    step_s_M = cost.step_s_M(running, running * context, last, draft_s, synchronous)
    assert step_s_M.shape == (last + 1,)
    assert step_s_M.dtype == np.float64
    m = data.draw(st.integers(0, last))
    assert step_s_M[m] == cost.step_s(running + m, running, running * context, draft_s, synchronous)
    assert step_s_M.min() > 0


@given(st.sampled_from(COSTS), st.integers(1, 256), st.integers(1, 2000))
def test_tokens_that_run_as_the_same_size_cost_the_same(cost, running, tokens):
    runs = cost.padded(tokens)
    assert runs >= tokens
    assert cost.padded(runs) == runs
    assert cost.step_s(tokens, running, 0, 0.0, False) == cost.step_s(runs, running, 0, 0.0, False)


def test_asking_for_more_tokens_than_announced_is_an_error_not_a_short_answer():
    cost = StepCost(small_profile(), 4, 20)
    with pytest.raises(AssertionError):
        cost.step_s_M(4, 0, 17, 0.0, False)


@given(st.integers(0, 10**6))
def test_many_steps_cost_what_each_of_them_does(seed):
    rng = np.random.default_rng(seed)
    host = {"constant_ms": 0.7, "bubble_ms": 1.0, "per_request_ms": 0.01, "per_logit_row_ms": 0.02}
    source = {"sources__prefill": {"how": "assumed", "source": "a test"}}
    profile = small_profile(host={**host, "speculating_ms": 0.5}, prefill={"mixed_ms": 2.0}, **source)
    cost = StepCost(profile, 6, 64)
    running = rng.integers(1, 7, 20)
    prompts = rng.integers(0, 9, 20) * rng.integers(0, 2, 20)
    batch = running * rng.integers(1, 6, 20) + prompts
    draft_s = np.array([cost.drafting_s("dspark", r, 4) for r in range(7)])
    each = [
        cost.step_s(b, r, 0, cost.draft_s("dspark", r, 4), synchronous=False, prefill_tokens=p)
        for b, r, p in zip(batch.tolist(), running.tolist(), prompts.tolist(), strict=True)
    ]
    np.testing.assert_allclose(cost.steps_s(batch, running, prompts, draft_s), each, rtol=1e-12)


@pytest.mark.parametrize(
    ("tokens", "expected"), [(16, 9.0), (17, 100.0), (32, 100.0), (33, 90.0), (64, 90.0), (65, 90.0)]
)
def test_eager_tail_as_stairs(tokens, expected):
    assert ms(small_profile(eager__lookup="ceil"), tokens) == expected
