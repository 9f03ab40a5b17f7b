"""Hard cases of a service, each with the right value."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from worlds import constant_cost, make_profile, make_trace, table

from dspark_sim.engine.prefill import parse_prefill
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve, simulate
from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.sections import KvMemory
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.timeline import write_timeline
from dspark_sim.workload.mix import demand_of_workload, make_mix
from dspark_sim.workload.workloads import Workload


def run_of(
    prompt, output, arrival_s=None, *, spec="off", prefill="mixed", profile=None, accepted=0, gamma=3,
    cached=None, **more: Any,
):  # fmt: skip
    """Serve a few requests whose rounds all accept ``accepted`` draft tokens; 10 ms a step unless said."""
    prompt, output = np.asarray(prompt), np.asarray(output)
    arrival_s = np.zeros(len(prompt)) if arrival_s is None else np.asarray(arrival_s, dtype=float)
    left = np.arange(200)[::-1]
    logits = np.zeros((200, gamma))
    mix = make_mix([make_trace([200], np.minimum(left, accepted), logits, logits, gamma=gamma)])
    cached = None if cached is None else np.asarray(cached)
    demand = demand_of_workload(mix, Workload("w", {}, arrival_s, prompt, output, cached), 0)
    serving = Serving(prefill, **more)
    world = (mix.trace, demand, arrival_s, profile or constant_cost(), parse_policy(spec))
    return serve(*world, seed=0, serving=serving, check=True)


def kv(num_blocks, block_tokens=4, profile=None, **more: Any):
    return replace(
        profile or constant_cost(),
        kv=KvMemory(block_tokens=block_tokens, num_blocks=num_blocks, bytes_per_token=1000, **more),
    )


def test_token_0_appears_as_the_prompt_is_done_and_chunks_fill_the_budget():
    """A prompt of 50 under a budget of 20: chunks of 20, 20, 10; TTFT three steps; then 4 rounds."""
    run = run_of([50], [5], prefill="mixed:budget=20")
    assert run.steps.prefill_tokens.tolist() == [20, 20, 10, 0, 0, 0, 0]
    assert run.steps.batch_tokens.tolist() == [20, 20, 10, 1, 1, 1, 1]
    assert run.steps.committed_tokens.tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert run.requests.start_s[0] == pytest.approx(0.030)
    assert run.requests.end_s[0] == pytest.approx(0.070)


def test_running_requests_come_first_in_the_budget_of_a_mixed_step():
    """One decode reserves 1 + gamma = 4 of 10 tokens: the second prompt gets 6 a step beside it."""
    run = run_of([10, 12], [9, 2], prefill="mixed:budget=10", spec="full")
    assert run.steps.prefill_tokens.tolist()[:4] == [10, 6, 6, 0]
    assert run.steps.num_running.tolist()[:4] == [0, 1, 1, 2]
    assert run.steps.batch_tokens.tolist()[:3] == [10, 4 + 6, 4 + 6]


def test_separate_steps_let_decodes_wait():
    """The second prompt arrives amid the first text; its step decodes nothing, and costs one gap."""
    run = run_of([8, 8], [6, 2], [0.0, 0.025], prefill="separate:budget=8")
    assert run.steps.num_running.tolist() == [0, 1, 1, 0, 2, 1, 1]
    assert run.steps.prefill_tokens.tolist() == [8, 0, 0, 8, 0, 0, 0]
    gaps = np.repeat(run.gaps.gap_s, run.gaps.requests)
    np.testing.assert_allclose(np.sort(gaps), [0.01] * 5 + [0.02])


def test_disaggregated_prompts_pay_the_link_and_every_gpu_counts():
    """1000 tokens of 1000 bytes over 8 Gbit/s are 1 ms, and .5 ms of latency: after one prefill step."""
    spec = "disaggregated:gbit_per_s=8,latency_ms=0.5,workers=3"
    run = run_of([1000], [2], prefill=spec, profile=kv(10**6))
    assert run.requests.start_s[0] == pytest.approx(0.010)
    decode = run.steps.num_running > 0
    assert run.steps.start_s[decode].tolist() == pytest.approx([0.010 + 0.0015])
    assert run.num_gpus == 2 * (1 + 3)
    with pytest.raises(InputError, match=r"moves KV between pools.*kv\.bytes_per_token"):
        run_of([10], [2], prefill=spec)


def test_a_cached_prefix_is_not_computed_but_its_last_token_is():
    run = run_of([50, 50, 50], [1, 1, 1], cached=[0, 40, 50])
    assert run.steps.prefill_tokens.tolist() == [50 + 10 + 1]


@pytest.mark.parametrize("prefill", ["none", "mixed", "separate"])
def test_an_output_of_one_token_has_no_round(prefill):
    run = run_of([5, 5], [1, 3], prefill=prefill)
    rounds = dict(zip(run.requests.output_tokens.tolist(), run.requests.rounds.tolist(), strict=True))
    assert rounds == {1: 0, 3: 2}
    first = run.requests.output_tokens == 1
    assert (run.requests.end_s == run.requests.start_s)[first].all()


def test_a_step_of_prompts_only_asks_no_policy_and_costs_what_prompts_cost(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def rule(view):\n    assert view.num_running > 0\n    return [0] * view.num_running\n")
    profile = make_profile()
    run = run_of([30, 20], [2, 2], spec=f"{file}:rule", profile=profile)
    assert run.steps.num_running.tolist() == [0, 2]
    assert run.steps.step_s[0] == StepCost(profile, 1, 1).prefill_s(50, 2, 30 * 31 // 2 + 20 * 21 // 2)


@pytest.mark.parametrize("prefill", ["none", "mixed", "separate"])
def test_budget_0_in_every_step_still_pays_the_drafter(prefill):
    """K = 0 verifies nothing, commits one token a round, and drafts all the same."""
    runs = [run_of([4], [6], spec=s, prefill=prefill, profile=make_profile()) for s in ("static:k=0", "off")]
    zero, off = (run.steps.step_s[run.steps.num_running > 0] for run in runs)
    assert runs[0].steps.verify_tokens.sum() == 0
    assert len(zero) == len(off) == 5
    cost = StepCost(make_profile(), 1, 4)
    np.testing.assert_allclose(zero - off, cost.draft_s("dspark", 1, 3))


@pytest.mark.parametrize("gamma", [1, 16])
def test_gamma_1_and_16(gamma):
    """Texts of 35 tokens that accept everything: 34 = 17 * 2 = 2 * 17 decode tokens."""
    free = table([1], [0.0])
    profile = replace(constant_cost(), draft=make_profile(draft={"dspark": free | {"gamma": 16}}).draft)
    run = run_of([4], [35], spec="full", profile=profile, accepted=gamma, gamma=gamma)
    assert run.requests.rounds.tolist() == [34 // (1 + gamma)]


def test_a_request_that_no_kv_holds_is_refused_and_the_rest_is_served():
    """Ten blocks of 4: the last round of (38, 3) holds 40 tokens and fits; (39, 3) and (50, 1) do not."""
    run = run_of([39, 38, 50, 4], [3, 3, 1, 3], profile=kv(10))
    assert run.refused.tolist() == [0, 2]
    assert sorted(run.requests.request.tolist()) == [1, 3]
    assert run.requests.preemptions.sum() == 0
    every = run_of([50, 60], [3, 3], profile=kv(10))
    assert every.refused.tolist() == [0, 1]
    assert len(every.requests.request) == len(every.steps.step_s) == 0


def test_users_whose_request_is_refused_send_the_next():
    trace = make_trace([3, 30, 5], np.zeros(38), gamma=1, prompt=[10, 10, 10])
    world = {"concurrency": 2, "output_tokens": 40, "seed": 0, "check": True}
    run = simulate(trace, kv(5), parse_policy("off"), **world)
    assert 1 not in run.requests.request
    assert set(run.refused.tolist()) == {1}
    drained = simulate(trace, kv(5), parse_policy("off"), **world, requests=9)
    assert drained.completed + len(drained.refused) == 9
    with pytest.raises(InputError, match="its KV holds no text of trace 'world'"):
        simulate(trace, kv(2), parse_policy("off"), **world)


def test_the_last_admitted_is_preempted_recomputes_what_it_had_and_finishes_later():
    """Eight blocks of 4, no draft: two requests of 10 + 9 tokens need 5 blocks each in the end.

    Both prompts (3 blocks each) fit. As the KV of both passes 16 tokens there are no two blocks more: the
    second one goes, with 10 + 7 tokens to recompute, and its step yields its token 7.
    """
    run = run_of([10, 10], [9, 9], profile=kv(8))
    log = run.requests
    order = np.argsort(log.request)
    assert log.preemptions[order].tolist() == [0, 1]
    assert log.end_s[order][0] < log.end_s[order][1]
    assert run.steps.kv_blocks.max() == 8
    again = run.steps.prefill_tokens[1:]
    assert again[again > 0].tolist() == [10 + 7]
    assert log.rounds[order].tolist() == [8, 7]
    assert run.steps.prefill_outputs.sum() == 3


def test_the_watermark_stays_free_at_admission():
    """Of ten blocks, two are kept: the third prompt of 3 blocks waits; an empty cache admits anything."""
    run = run_of([9, 9, 9], [2, 2, 2], profile=kv(10, watermark=0.2))
    assert run.steps.resident.tolist()[0] == 2
    assert run_of([9, 9, 9], [2, 2, 2], profile=kv(10)).steps.resident.tolist()[0] == 3
    assert len(run_of([35], [2], profile=kv(10, watermark=0.2)).requests.request) == 1


def test_drafted_tokens_hold_blocks():
    """A block of gamma = 3 behind the anchor: 12 tokens of prompt and anchor take 4 blocks, not 3."""
    blocks = [run_of([11], [3], spec=s, profile=kv(10)).steps.kv_blocks[0] for s in ("off", "full")]
    assert blocks == [3, 4]


def test_ten_thousand_arrivals_at_one_instant():
    """A finite batch: 100 slots, one round each: 100 steps, in order of arrival."""
    run = run_of(np.ones(10_000, int), np.full(10_000, 2), prefill="none", profile=constant_cost(10.0, 100))
    assert set(run.steps.num_running.tolist()) == {100}
    assert run.steps.waiting.tolist() == list(range(9900, -1, -100))
    np.testing.assert_array_equal(run.requests.request, np.arange(10_000))
    assert run.requests.end_s[-1] == pytest.approx(1.0)


def test_verify_lengths_past_the_captured_sizes_pay_the_eager_step():
    """Captured to 32: 9 requests of 1 + 3 tokens are 36, and run 20 ms over; 8 are 32, and do not."""
    profile = make_profile()
    eight, nine = (
        run_of(np.ones(n, int), np.full(n, 5), spec="full", prefill="none", profile=profile).steps.step_s[0]
        for n in (8, 9)
    )
    cost = StepCost(profile, 9, 36)
    assert (eight, nine) == (
        cost.step_s(32, 8, 16, cost.draft_s("dspark", 8, 3), False),
        cost.step_s(36, 9, 18, cost.draft_s("dspark", 9, 3), False),
    )
    assert nine - eight > 0.020


def test_prompt_tokens_push_a_step_over_the_capture_limit():
    """30 prompt tokens beside a decode: 31 are captured; 40 are not."""
    steps = [run_of([4, n], [9, 2], [0.0, 0.005], profile=make_profile()).steps.step_s[1] for n in (30, 40)]
    assert steps[1] - steps[0] > 0.020


def test_a_size_missing_from_the_capture_list_pays_the_next():
    """Sizes 1, 4, 8 and then 32: ten tokens pay for 32."""
    verify = table([1, 8, 16, 32], [7.0, 7.5, 7.25, 11.0], key="tokens", value="ms")
    verify["lookup"] = "ceil_to_capture"
    gappy, whole = (
        make_profile(verify=verify, capture={"limit": 32, "sizes": sizes})
        for sizes in ([1, 4, 8, 32], [1, 4, 8, 16, 32])
    )
    steps = [
        run_of(np.ones(10, int), np.full(10, 2), prefill="none", profile=p).steps.step_s[0]
        for p in (gappy, whole)
    ]
    assert steps[0] - steps[1] == pytest.approx((11.0 - 7.25) * 1e-3)


def test_a_batch_that_was_never_captured_pays_the_eager_step():
    """Graphs for 1 and 2 requests only: the third makes a step of 139 ms one of 830 ms (seen in the wild)."""
    eager = {"tokens": [3], "ms": [830.0], "beyond": "hold"}
    verify = table([1, 2], [120.0, 139.0], key="tokens", value="ms")
    host = {"constant_ms": 0.0, "bubble_ms": 0.0}
    profile = make_profile(verify=verify, capture={"limit": 2, "sizes": [1, 2]}, eager=eager, host=host)
    steps = [
        run_of(np.ones(n, int), np.full(n, 2), prefill="none", profile=profile).steps.step_s
        for n in (1, 2, 3)
    ]
    np.testing.assert_allclose(np.concatenate(steps), [0.120, 0.139, 0.830])


def test_an_empty_service_takes_no_step(tmp_path):
    """Ten seconds without a request: no step, no look at the policy; the next starts at its arrival."""
    file = tmp_path / "mine.py"
    file.write_text("def rule(view):\n    assert view.num_running == 1\n    return [0]\n")
    run = run_of([4, 4], [3, 3], [0.0, 10.0], spec=f"{file}:rule")
    assert run.steps.start_s.tolist() == pytest.approx([0.0, 0.01, 0.02, 10.0, 10.01, 10.02])
    assert (run.requests.end_s - run.requests.arrival_s).tolist() == pytest.approx([0.03, 0.03])


@pytest.mark.parametrize("spec", ["static:k=4", "mtp:k=9"])
def test_drafting_past_the_trained_block_is_refused(spec):
    with pytest.raises(InputError, match="drafts 3 tokens a block; k must be 0 to 3"):
        run_of([4], [6], spec=spec)


def test_ranks_in_lockstep_wait_for_the_slowest():
    """One rank has a prompt of 40, the other one of 4 and then nothing: both steps last alike."""
    line = table([1, 100], [1.0, 100.0], key="tokens", value="ms")
    profile = make_profile(verify=line, capture=None, eager=None, host={"constant_ms": 0.0, "bubble_ms": 0.0})
    world = {"prompt": [40, 4], "output": [2, 2], "profile": profile, "replicas": 2}
    together, apart = (run_of(**world, lockstep=flag) for flag in (True, False))
    assert together.steps.step_s.tolist() == pytest.approx([0.040, 0.040, 0.001, 0.001])
    assert sorted(apart.steps.step_s.tolist()) == pytest.approx([0.001, 0.001, 0.004, 0.040])
    assert together.num_gpus == apart.num_gpus == 4


def test_routers():
    """Requests of 2 and 20 tokens in turn: round-robin sends all long ones to one replica."""
    world = {"prompt": [4] * 12, "output": [20, 2] * 6, "arrival_s": np.arange(12) * 0.03, "replicas": 2}
    turns, least, two = (
        run_of(**world, router=name) for name in ("round-robin", "least-loaded", "two-choices")
    )
    long = turns.requests.output_tokens == 20
    assert set(turns.requests.replica[long].tolist()) == {0}
    for run in (least, two):
        assert set(run.requests.replica.tolist()) == {0, 1}
        assert run.requests.end_s.max() <= turns.requests.end_s.max()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mixd", "unknown prefill 'mixd'.*did you mean 'mixed'"),
        ("mixed:budget=0", "budget = 0"),
        ("separate:workers=2", "no option 'workers'"),
        ("disaggregated:gbit_per_s=0", "gbit_per_s = 0"),
    ],
)
def test_bad_prefill_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        parse_prefill(spec)


@pytest.mark.parametrize(
    ("arrival_s", "message"),
    [
        ([0.0], "1 arrivals for 2"),
        ([1.0, 0.5], "sorted"),
        ([0.0, np.nan], "finite"),
        ([-1.0, 0.0], "of 0 s or more"),
    ],
)
def test_bad_arrivals_are_refused(arrival_s, message):
    mix = make_mix([make_trace([5], np.zeros(5), gamma=1)])
    demand = demand_of_workload(mix, Workload("w", {}, np.zeros(2), np.ones(2, int), np.full(2, 3)), 0)
    with pytest.raises(InputError, match=message):
        serve(mix.trace, demand, np.array(arrival_s), constant_cost(), parse_policy("off"), seed=0)


def test_bad_deployments_are_refused():
    with pytest.raises(InputError, match="replicas is 0"):
        Serving(replicas=0).check()
    with pytest.raises(InputError, match=r"unknown router 'least-load'.*did you mean 'least-loaded'"):
        Serving(router="least-load").check()


def test_a_timeline_has_no_overlap_and_the_same_bytes(tmp_path):
    run = run_of([30] * 6, [9] * 6, np.arange(6) * 0.017, spec="full", profile=make_profile(), replicas=2)
    paths = [tmp_path / name for name in ("a.json.gz", "b.json.gz")]
    for path in paths:
        write_timeline(path, run)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    events = json.loads(gzip.decompress(paths[0].read_bytes()))["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(run.steps.step_s) == sum(e["ph"] == "C" for e in events)
    for replica in (0, 1):
        track = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in slices if e["pid"] == replica)
        assert all(start + length <= after for (start, length), (after, _) in itertools.pairwise(track))
    assert sum(e["args"]["B"] for e in events if e["ph"] == "C") == run.steps.batch_tokens.sum()
    with pytest.raises(InputError, match=r"\.json\.gz"):
        write_timeline(tmp_path / "t.json", run)
