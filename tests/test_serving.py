"""Arrivals, prefill, KV blocks, preemption, replicas: the engine against a brute-force service, and laws."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_serving import Service
from test_engine import SPECS
from worlds import random_profile, random_trace

from dspark_sim.engine.prefill import parse_prefill
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve
from dspark_sim.hardware.sections import KvMemory
from dspark_sim.policies.registry import parse_policy
from dspark_sim.workload.mix import demand_of_workload, make_mix
from dspark_sim.workload.workloads import Workload

PREFILLS = [
    "none",
    "mixed:budget=16",
    "mixed:budget=64",
    "separate:budget=8",
    "separate:budget=50",
    "disaggregated:budget=20,workers=2",
]


@st.composite
def services(draw, prefills=PREFILLS, kv=True):
    """A small service under load: bursts and gaps, texts stitched and cut, little KV."""
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    count = draw(st.integers(1, 14))
    gap_s = draw(st.sampled_from([0.0, 0.02, 0.1]))
    prompt = rng.integers(1, 40, count)
    cached = np.minimum(rng.integers(0, 40, count), prompt) if draw(st.booleans()) else None
    arrival_s = rng.exponential(gap_s, count).cumsum().round(draw(st.sampled_from([1, 9])))
    workload = Workload("small", {}, arrival_s, prompt, rng.integers(1, 20, count), cached)
    mix = make_mix([random_trace(seed, gamma=draw(st.sampled_from([2, 3, 7])), ties=draw(st.booleans()))])
    prefill = draw(st.sampled_from(prefills))
    block_tokens = draw(st.sampled_from([1, 4, 16]))
    memory = KvMemory(block_tokens=block_tokens, num_blocks=10**6, bytes_per_token=100_000)
    if kv and draw(st.booleans()):
        blocks = int(rng.integers(20, 200)) // block_tokens + 2
        memory = replace(memory, num_blocks=blocks, watermark=draw(st.sampled_from([0.0, 0.1])))
    elif not prefill.startswith("disaggregated") and draw(st.booleans()):
        memory = None
    return {
        "trace": mix.trace,
        "demand": demand_of_workload(mix, workload, seed),
        "arrival_s_Q": arrival_s,
        "profile": replace(random_profile(seed, draw(st.sampled_from([None, 1, 2, 4]))), kv=memory),
        "policy": parse_policy(draw(st.sampled_from(SPECS))),
        "seed": seed,
        "believed": random_profile(seed + 1) if draw(st.booleans()) else None,
        "serving": Serving(
            prefill,
            replicas=draw(st.integers(1, 3)),
            router=draw(st.sampled_from(["round-robin", "least-loaded", "two-choices"])),
            lockstep=draw(st.booleans()),
        ),
    }


def brute_force(trace, demand, arrival_s_Q, profile, policy, *, seed, believed, serving):
    kv = profile.kv and (profile.kv.num_blocks, profile.kv.block_tokens, profile.kv.watermark)
    deployed = {name: getattr(serving, name) for name in ("replicas", "router", "lockstep")}
    return Service(
        trace, demand, arrival_s_Q, profile, policy,
        seed=seed, prefill=parse_prefill(serving.prefill), kv=kv, believed=believed, **deployed,
    ).run()  # fmt: skip


def by_replica(table: np.ndarray) -> np.ndarray:
    return table[np.lexsort((np.round(table[:, 0], 9), table[:, -1]))]


@settings(max_examples=40, deadline=None)
@given(world=services())
def test_a_service_equals_brute_force(world):
    """Every time, count and gap of every request and step, to 1e-9 s; laws asserted after every step."""
    run, theirs = serve(**world, check=True), brute_force(**world)
    log = run.requests
    ours = [log.request, log.arrival_s, log.admission_s, log.start_s, log.end_s, log.prompt_tokens,
            log.output_tokens, log.rounds, log.preemptions, log.replica]  # fmt: skip
    done = [(r.number, r.arrival_s, r.admission_s, r.first_s, r.end_s, r.prompt, r.length, r.rounds,
             r.preemptions, r.replica) for r in sorted(theirs.done, key=lambda r: r.number)]  # fmt: skip
    table = np.column_stack(ours)[np.argsort(log.request)]
    np.testing.assert_allclose(table, np.array(done, dtype=float).reshape(-1, 10), rtol=0, atol=1e-9)
    log = run.steps
    ours = [log.start_s, log.step_s, log.num_running, log.batch_tokens, log.committed_tokens,
            log.accepted_tokens, log.prefill_tokens, log.prefill_outputs, log.resident, log.waiting,
            log.kv_blocks, log.replica]  # fmt: skip
    steps = np.array(theirs.steps, dtype=float).reshape(-1, 12)
    np.testing.assert_allclose(by_replica(np.column_stack(ours)), by_replica(steps), rtol=0, atol=1e-9)
    gaps = np.sort(np.repeat(run.gaps.gap_s, run.gaps.requests))
    np.testing.assert_allclose(gaps, np.sort(np.array(theirs.gaps)), rtol=0, atol=1e-9)
    assert run.refused.tolist() == [r.number for r in theirs.refused]


@settings(max_examples=40, deadline=None)
@given(world=services())
def test_nothing_is_lost(world):
    """Requests, tokens, prompts and gaps are conserved, with preemption on."""
    run, demand = serve(**world, check=True), world["demand"]
    log, steps = run.requests, run.steps
    assert sorted([*log.request.tolist(), *run.refused.tolist()]) == list(range(len(demand)))
    served = np.sort(log.request)
    length, prompt = demand.output_tokens_Q[served], demand.prompt_tokens_Q[served]
    kind = world["serving"].prefill.partition(":")[0]
    token_0 = 0 if kind == "none" else 1  # in a decode-only pool it is somebody else's
    assert steps.committed_tokens.sum() == (length - 1 + token_0).sum()
    assert log.rounds.sum() == run.rounds == steps.num_running.sum()
    recomputed = steps.prefill_outputs.sum() - token_0 * len(served)
    assert 0 <= recomputed <= log.preemptions.sum()
    assert run.gaps.requests.sum() == run.rounds + recomputed
    assert (run.gaps.gap_s > 0).all()
    if kind != "none" and not log.preemptions.any():
        cached = demand.cached_prefix_tokens_Q
        skipped = 0 if cached is None else np.minimum(cached[served], prompt - 1).sum()
        assert steps.prefill_tokens.sum() == prompt.sum() - skipped
    assert (steps.batch_tokens == steps.num_running + steps.verify_tokens + steps.prefill_tokens).all()


@settings(max_examples=40, deadline=None)
@given(world=services())
def test_times_are_in_order(world):
    """Arrival <= admission <= first token <= end, and no token appears after the last step."""
    run = serve(**world)
    log, steps = run.requests, run.steps
    assert (log.arrival_s <= log.admission_s + 1e-9).all()
    assert (log.admission_s <= log.start_s).all()
    assert (log.start_s <= log.end_s).all()
    decoded = log.rounds > 0
    assert np.isin(log.end_s[decoded].round(9), (steps.start_s + steps.step_s).round(9)).all()


@settings(max_examples=40, deadline=None)
@given(world=services(prefills=["none", "mixed:budget=16", "separate:budget=8"]))
def test_littles_law(world):
    """The integral of the requests in the system, which steps count, is the sum of their times in it.

    Of every replica: steps count who is there as they start; whoever comes in between is added from his
    arrival to the next step, or to his end if no step ever saw him (an output of one token, its prompt
    somebody else's).
    """
    run = serve(**world)
    for replica in range(world["serving"].replicas):
        steps, log = run.steps, run.requests
        mine, here = steps.replica == replica, log.replica == replica
        counted_s = ((steps.resident + steps.waiting) * steps.step_s)[mine].sum()
        starts_s = np.append(steps.start_s[mine], np.inf)
        arrival_s, end_s = log.arrival_s[here], log.end_s[here]
        seen_s = starts_s[np.searchsorted(starts_s, arrival_s - 1e-9)]
        unseen_s = (np.minimum(seen_s, end_s) - arrival_s).sum()
        np.testing.assert_allclose(counted_s + unseen_s, (end_s - arrival_s).sum(), atol=1e-6)


def test_same_seed_same_bytes():
    """Every array of two runs, under every kind of prefill and with preemption."""
    for prefill in PREFILLS:
        workload = Workload("w", {}, np.zeros(12), np.full(12, 20), np.full(12, 15))
        mix = make_mix([random_trace(3)])
        memory = KvMemory(block_tokens=4, num_blocks=24, bytes_per_token=1000)
        worlds = [
            serve(
                mix.trace, demand_of_workload(mix, workload, 0), workload.arrivals,
                replace(random_profile(3), kv=memory), parse_policy("dspark-async"), seed=0,
                serving=Serving(prefill, replicas=2, router="two-choices"),
            )
            for _ in range(2)
        ]  # fmt: skip
        assert worlds[0].requests.preemptions.sum() > 0
        for log in ("steps", "requests", "gaps"):
            for f in fields(getattr(worlds[0], log)):
                pair = [getattr(getattr(run, log), f.name) for run in worlds]
                assert pair[0].tobytes() == pair[1].tobytes(), f"{log}.{f.name} under {prefill}"
