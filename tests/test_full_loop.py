"""The closed loop whose slots are never empty records what the general replica records, bit for bit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import SPECS
from worlds import make_trace, random_profile, random_trace

from dspark_sim.engine import full_loop
from dspark_sim.engine.simulator import simulate
from dspark_sim.policies.registry import parse_policy


def records(run) -> dict[str, np.ndarray]:
    """Every array of a run."""
    logs = {f"{log}.{f.name}": getattr(getattr(run, log), f.name)
            for log in ("steps", "requests", "gaps") for f in fields(getattr(run, log))}  # fmt: skip
    counts = ("verify_len_counts", "position_verified", "position_accepted", "refused")
    scalars = {"rounds": run.rounds, "completed": run.completed, "warm-up": run.meta["warmup_steps"]}
    return logs | {name: getattr(run, name) for name in counts} | {k: np.array(v) for k, v in scalars.items()}


def assert_same_bytes(one, two):
    """No array of two runs differs, in type, shape or content."""
    ours, theirs = records(one), records(two)
    for name, array in ours.items():
        assert (array.dtype, array.shape) == (theirs[name].dtype, theirs[name].shape), name
        assert array.tobytes() == theirs[name].tobytes(), name


def texts_of_two_and_more(seed: int, gamma: int, ties: bool):
    """A random trace without texts of one token, which would leave a slot empty for a moment."""
    trace = random_trace(seed, gamma=gamma, ties=ties)
    length = np.maximum(trace.output_tokens_Q, 2)
    rng, rows = np.random.default_rng(seed), int(length.sum())
    left = np.concatenate([np.arange(n)[::-1] for n in length])
    values = [-2.0, 0.0, 0.0, 1.5, 20.0]
    logits, free = (rng.choice(values, (rows, gamma)) if ties else rng.normal(1.0, 1.5, (rows, gamma))
                    for _ in range(2))  # fmt: skip
    accepted = np.minimum(rng.integers(0, gamma + 1, rows), left)
    return make_trace(length, accepted, logits, free, gamma=gamma, prompt=rng.integers(1, 50, len(length)))


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    gamma=st.sampled_from([2, 3, 7, 9]),
    ties=st.booleans(),
    concurrency=st.integers(1, 9),
    output_tokens=st.integers(1, 300),
    max_num_seqs=st.none() | st.integers(1, 5),
    max_output_tokens=st.none() | st.integers(2, 6),
    other_belief=st.booleans(),
    warmup_fraction=st.sampled_from([None, 0.0, 0.3]),
)
def test_it_records_what_the_general_replica_does(
    spec, seed, gamma, ties, concurrency, output_tokens, max_num_seqs, max_output_tokens, other_belief,
    warmup_fraction,
):  # fmt: skip
    world = {
        "trace": texts_of_two_and_more(seed, gamma, ties),
        "profile": random_profile(seed, max_num_seqs),
        "policy": parse_policy(spec),
        "concurrency": concurrency,
        "output_tokens": output_tokens,
        "seed": seed,
        "believed": random_profile(seed + 1) if other_belief else None,
        "max_output_tokens": max_output_tokens,
        "warmup_fraction": warmup_fraction,
    }
    assert_same_bytes(simulate(**world), simulate(**world, check=True))


def test_chunks_do_not_show(monkeypatch):
    world = {"output_tokens": 400, "seed": 3, "concurrency": 4, "policy": parse_policy("dspark-async")}
    trace = texts_of_two_and_more(1, 3, ties=True)
    whole = simulate(trace, random_profile(1), **world)
    monkeypatch.setattr(full_loop, "_ROUNDS", 12)
    assert_same_bytes(whole, simulate(trace, random_profile(1), **world))


@pytest.mark.parametrize(
    ("change", "plain"),
    [({}, True), ({"requests": 5}, False), ({"turnaround_s": 0.1}, False), ({"check": True}, False)],
)
def test_it_runs_where_slots_are_never_empty_and_nobody_watches(monkeypatch, change, plain):
    """Otherwise the comparison above would compare the general replica with itself."""
    ran = []
    advance = full_loop.FullLoop.advance
    monkeypatch.setattr(full_loop.FullLoop, "advance", lambda self: ran.append(1) or advance(self))
    world = {"output_tokens": 50, "seed": 0, "concurrency": 2, "policy": parse_policy("full")}
    simulate(texts_of_two_and_more(1, 3, ties=False), random_profile(1), **world | change)
    assert bool(ran) == plain
