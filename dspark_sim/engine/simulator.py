"""The door of the engine: one policy at one load under one seed, from a trace and a profile."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import simpy

from dspark_sim.engine.batching import RequestStream, mid_text
from dspark_sim.engine.recorder import Recorder
from dspark_sim.engine.replay import build_replay
from dspark_sim.engine.replica import Replica
from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.base import Policy
from dspark_sim.schema import RunLog
from dspark_sim.workload.traces import Trace


def simulate(
    trace: Trace,
    profile: HardwareProfile,
    policy: Policy,
    *,
    concurrency: int,
    output_tokens: int,
    seed: int,
    drafter: str | None = None,
    believed: HardwareProfile | None = None,
    requests: int | None = None,
    max_output_tokens: int | None = None,
    warmup_fraction: float | None = None,
    check: bool = False,
) -> RunLog:
    """Serve a closed loop of users and return its records.

    Args:
        trace: acceptance to replay.
        profile: true cost of a step.
        policy: verification policy (``parse_policy``).
        concurrency: users; each sends its next request the moment its last one is done [requests].
        output_tokens: committed output tokens to measure, up to the end of a step [tokens].
        seed: of every random stream, >= 0.
        drafter: drafter of the trace; None as in ``Trace.drafter``.
        believed: cost that the scheduler plans with; None: the true one.
        requests: a finite stream of that many requests, all from their first token, measured whole
            until the last is done; ``output_tokens`` and the warm-up then mean nothing.
        max_output_tokens: cuts every text [tokens].
        warmup_fraction: warm-up before measuring, as a share of ``output_tokens``; None: until the
            running users have committed the longest text each, on average.
        check: test the laws of docs/concepts.md after every step (slow).

    Raises:
        InputError: an argument out of range, a drafter that the trace lacks, a policy that the
            drafter cannot serve, or a user's rule that returns something else than lengths.
    """
    _at_least("concurrency", concurrency, 1)
    _at_least("output_tokens", output_tokens, 1)
    _at_least("seed", seed, 0)
    _at_least("requests", requests, 1)
    _at_least("max_output_tokens", max_output_tokens, 2)
    _at_least("warmup_fraction", warmup_fraction, 0)
    chosen = trace.drafter(drafter)
    replay = build_replay(trace, chosen, policy, max_output_tokens)
    slots = min(concurrency, profile.max_num_seqs or concurrency, requests or concurrency)
    # The first batch meets texts by their tokens, a loop that has run for long by their rounds: fast
    # texts are too many at first (2-3% of throughput at 256 users), until every text of it is through.
    longest = int((replay.last_row_Q - replay.first_row_Q).max())
    warmup_tokens = slots * longest if warmup_fraction is None else warmup_fraction * output_tokens
    recorder = Recorder(
        replay.gamma,
        slots,
        warmup_tokens=0 if requests else warmup_tokens,
        output_tokens=None if requests else output_tokens,
    )
    most_tokens = slots * (1 + replay.gamma)
    cost = StepCost(profile, slots, most_tokens)
    replica = Replica(
        replay,
        policy,
        cost=cost,
        believed=StepCost(believed, slots, most_tokens) if believed else cost,
        stream=RequestStream(len(trace.output_tokens_Q), seed, requests),
        recorder=recorder,
        slots=slots,
    )
    if requests is None:
        replica.start_in_mid_text(*mid_text(replay, slots, seed))
    env = simpy.Environment()
    env.run(until=env.process(_serve(env, replica, recorder, check)))
    return recorder.run_log(
        replay.last_row_Q - replay.first_row_Q + 1,
        policy=policy.label,
        drafter=chosen.name,
        concurrency=concurrency,
        seed=seed,
        lag=policy.lag,
        num_gpus=profile.num_gpus,
        lossless="lossless" if trace.meta.get("temperature") == 0 else policy.verdict,
        meta={"slots": slots, "warmup_steps": recorder.warmup_steps, "draft_kind": replay.draft_kind},
    )


def _at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and not least <= value < math.inf:
        raise InputError(f"{name} is {value}; it must be at least {least}")


def _serve(
    env: simpy.Environment, replica: Replica, recorder: Recorder, check: bool
) -> Generator[simpy.Event, Any, None]:
    """Carry time: one event an engine step."""
    while not recorder.done and replica.admit(env.now):
        start_s, step_s = env.now, replica.decide()
        yield env.timeout(step_s)
        replica.commit(start_s, step_s, env.now)
        if check:
            replica.check_laws()
