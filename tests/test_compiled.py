"""The compiled step says what numpy says, bit for bit: ties, preemption, prompts, replicas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import SPECS
from test_full_loop import assert_same_bytes
from test_serving import services
from worlds import random_profile, random_trace

from dspark_sim.engine import fast
from dspark_sim.engine.prefill import parse_prefill
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve, simulate
from dspark_sim.errors import InputError
from dspark_sim.policies.registry import parse_policy

compiles = pytest.mark.skipif(not fast.is_installed(), reason="numba (extra: fast) is not installed")


@pytest.fixture
def machine():
    """The compiled side, which only tests that need it start."""
    from dspark_sim.engine.compiled import machine

    return machine


@compiles
@settings(max_examples=120, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    seed=st.integers(0, 10**6),
    gamma=st.sampled_from([2, 3, 7, 9]),
    ties=st.booleans(),
    concurrency=st.integers(1, 40),
    requests=st.none() | st.integers(1, 50),
    max_num_seqs=st.none() | st.integers(1, 5),
    other_belief=st.booleans(),
    prefill=st.sampled_from(["none", "mixed:budget=16", "separate:budget=9"]),
    replicas=st.integers(1, 2),
)
def test_a_closed_loop_is_the_same(
    spec, seed, gamma, ties, concurrency, requests, max_num_seqs, other_belief, prefill, replicas
):
    world = {
        "trace": random_trace(seed, gamma=gamma, ties=ties),
        "profile": random_profile(seed, max_num_seqs or 8),
        "policy": parse_policy(spec),
        "concurrency": concurrency,
        "output_tokens": 150,
        "seed": seed,
        "requests": requests,
        "believed": random_profile(seed + 1) if other_belief else None,
        "serving": Serving(prefill, replicas=replicas),
    }
    assert_same_bytes(simulate(**world, fast=True), simulate(**world))


@compiles
@settings(max_examples=150, deadline=None)
@given(world=services())
def test_a_service_is_the_same(world):
    """Arrivals, seams, KV blocks, preemption, routers, lockstep."""
    assert_same_bytes(serve(**world, fast=True), serve(**world))


@compiles
@pytest.mark.parametrize("size", [1, 3, 16, 32, 33, 64, 200])
@pytest.mark.parametrize("gamma", [3, 7])
def test_ties_do_not_mislead_selection(machine, size, gamma):
    """Batches of few distinct values: the sorted values, and the lengths of every budget."""
    from dspark_sim.engine.compiled import selection
    from dspark_sim.policies.selection import top_k

    rng = np.random.default_rng(size)
    survival_RG = np.sort(rng.choice([0.0, 0.25, 0.5, 0.5, 1.0], (size, gamma)), axis=1)[:, ::-1]
    rows = 1 << max(0, size - 1).bit_length()
    stage = np.full((rows, 8), -1, dtype=np.float32)
    keys, other = np.empty(rows * 8, np.int32), np.empty(rows * 8, np.int32)
    table = np.full((size, 8), -1, dtype=np.float32)
    table[:, :gamma] = survival_RG
    length_R, bins = np.empty(size, np.int64), np.zeros(selection.SCRATCH_BINS, np.int64)

    def gather():
        words, flat = stage.view(np.uint64), stage.reshape(-1)
        selection.gather(table.view(np.uint64), np.arange(size), size, words, flat, keys)

    gather()
    falling = selection.sort_down(keys, other, bins, size, 8)[: size * gamma]
    np.testing.assert_array_equal(falling / selection.ONE, np.sort(survival_RG, axis=None)[::-1])
    gather()
    for budget in {1, size, size * gamma // 2, size * gamma - 1} - {0, size * gamma}:
        selection.lengths_of_best(keys, size, 8, gamma, budget, length_R)
        np.testing.assert_array_equal(length_R, top_k(survival_RG, budget))


def test_what_is_not_compiled_is_said():
    mixed, pool = parse_prefill("mixed"), parse_prefill("disaggregated")
    assert fast.hindrance(parse_policy("dspark-async"), mixed) is None
    assert "only off, static" in fast.hindrance(parse_policy("smartspec"), mixed)
    assert "pool" in fast.hindrance(parse_policy("off"), pool)


def test_without_the_compiler_it_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(fast, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"dspark-sim\[fast\]"):
        simulate(
            random_trace(0), random_profile(0), parse_policy("full"),
            concurrency=1, output_tokens=5, seed=0, fast=True,
        )  # fmt: skip


@compiles
def test_a_command_prints_the_same_and_says_what_is_not_compiled(toy_trace, command):
    words = ("run", "--trace", toy_trace, "--hw", "h800", "--policy", "dspark", "--policy", "smartspec",
             "--concurrency", "1,40", "--output-tokens", "300", "--json")  # fmt: skip
    quick, plain = command(*words, "--fast"), command(*words, "--no-fast")
    assert quick.code == plain.code == 0
    assert quick.out == plain.out
    assert "--fast: smartspec" in quick.err
    assert plain.err == ""


def test_nobody_pays_for_the_compiler_unasked():
    """A run that does not ask for it never imports numba."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from worlds import random_profile, random_trace\n"
        "from dspark_sim.engine.simulator import simulate\n"
        "from dspark_sim.policies.registry import parse_policy\n"
        "world = {'concurrency': 1, 'output_tokens': 5, 'seed': 0}\n"
        "simulate(random_trace(0), random_profile(0), parse_policy('full'), **world)\n"
        "print('numba' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
