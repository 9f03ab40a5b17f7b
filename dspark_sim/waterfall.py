"""Where the gap between a policy and the bound comes from: one flaw mended at a time.

Every rung of the ladder mends one thing more and is simulated on the same requests in the same order;
the differences add up to the gap by construction. The order matters where flaws overlap: it is the
order in which an engineer could mend them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dspark_sim.bounds import bound, clairvoyant
from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.forward import verify_ms
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.policies.base import Policy
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.schema import FloatArray
from dspark_sim.workload.fitting import calibrate
from dspark_sim.workload.traces import Trace

#: The best budget of every step, and no longer a draft than pays.
FRUGAL = "draft-length:lag=0"


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: what is mended on it and on all before, and the throughput there [tok/s]."""

    name: str
    tok_per_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """What is replayed, and how.

    Attributes:
        trace, profile: acceptance and true cost.
        believed: what the policy plans with; None: the truth.
        concurrency, output_tokens, seed: of every run.
    """

    trace: Trace
    profile: HardwareProfile
    concurrency: int
    output_tokens: int
    seed: int
    believed: HardwareProfile | None = None


def waterfall(case: Case, policy: Policy, on_rung: Callable[[], None] = lambda: None) -> list[Rung]:
    """Return the rungs from the policy as it is to the bound.

    Args:
        case: what is replayed.
        policy: where the ladder begins.
        on_rung: called after each of :func:`count` rungs.

    Raises:
        InputError: the policy does not fit the trace, or the trace has a single prompt.
    """
    rungs = []
    for name, speed in _rungs(case, policy):
        rungs.append(Rung(name, speed))
        on_rung()
    return rungs


def count(case: Case, policy: Policy) -> int:
    """Return how many rungs the ladder of a policy has."""
    best, frugal = parse_policy("dspark-async").info, parse_policy(FRUGAL).info
    mended = (policy.info not in (best, frugal)) + (policy.info is not frugal)
    return 6 + (case.believed is not None) + bool(policy.lag) + mended


def _rungs(case: Case, policy: Policy) -> Iterator[tuple[str, float]]:
    told = replace(case, believed=None)
    yield policy.label, _speed(case, policy)
    if case.believed is not None:
        yield "believed cost: the true one", _speed(told, policy)
    free = replace(told, profile=replace(case.profile, host=replace(case.profile.host, bubble_ms=0.0)))
    yield "pipeline bubble: none", _speed(free, policy)
    if policy.lag:
        yield "lag: none", _speed(free, replace(policy, lag=0))
    best, frugal = parse_policy("dspark-async:lag=0"), parse_policy(FRUGAL)
    if policy.info not in (best.info, frugal.info):
        yield "rule: the best budget of every step", _speed(free, best)
    if policy.info is not frugal.info:
        yield "draft cost: as many positions as pay", _speed(free, frugal)
    drafter = case.trace.drafter()
    fitted = replace(free, trace=calibrate(case.trace, drafter.name, "bias").trace)
    yield "calibration: fitted to this trace", _speed(fitted, frugal)
    yield "ranking: acceptance known", _seer(free)
    yield "stairs: the convex cost below them", _seer(replace(free, profile=smooth(free)))
    limit = bound(case.trace, case.profile, concurrency=case.concurrency)
    yield "foresight, cheapest drafts: bound", limit.tok_per_s


def _speed(case: Case, policy: Policy) -> float:
    run = simulate(
        case.trace, case.profile, policy, concurrency=case.concurrency, output_tokens=case.output_tokens,
        seed=case.seed, believed=case.believed,
    )  # fmt: skip
    return tok_per_s(run)


def _seer(case: Case) -> float:
    run = clairvoyant(
        case.trace,
        case.profile,
        concurrency=case.concurrency,
        output_tokens=case.output_tokens,
        seed=case.seed,
        rule=FRUGAL,
    )
    return tok_per_s(run)


def smooth(case: Case) -> HardwareProfile:
    """Return the profile whose verify cost is the lower convex hull of the true one, from R tokens on."""
    profile, gamma = case.profile, case.trace.drafter().gamma
    running = min(case.concurrency, profile.max_num_seqs or case.concurrency)
    most = running * (1 + gamma)
    ms_B = verify_ms(profile, most, capture_sizes(profile.capture, profile.verify.tokens))
    corners = [running + place for place in lower_hull(ms_B[running:])]
    table = replace(
        profile.verify, lookup="linear", tokens=tuple(corners), ms=tuple(float(ms_B[b]) for b in corners),
        beyond="last_two", monotone=False,
    )  # fmt: skip
    return replace(profile, verify=table, capture=None, eager=None, experts=None)


def lower_hull(values: FloatArray) -> list[int]:
    """Return the places of the corners of the lower convex hull of ``values`` at 0, 1, 2, ..."""
    corners: list[int] = []
    for place in range(len(values)):
        while len(corners) > 1 and _above(values, corners[-2], corners[-1], place):
            corners.pop()
        corners.append(place)
    return corners


def _above(values: FloatArray, left: int, middle: int, right: int) -> bool:
    """Whether the middle point lies on or above the chord of its neighbours."""
    chord = values[left] + (values[right] - values[left]) * (middle - left) / (right - left)
    return bool(np.greater_equal(values[middle], chord))
