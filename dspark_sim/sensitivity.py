"""What a policy loses when one thing about the world is worse, or other, than it was: one axis at a time.

Every axis changes what the rule is told, never what is true, but for ``gamma`` and ``domain``, which
change the drafter and the traffic. All values of an axis meet the same requests in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.hardware.believed import Block, believe
from dspark_sim.hardware.misread import at_context, shifted, stale, truncated
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import point
from dspark_sim.rng import stream
from dspark_sim.workload.blur import blurred, noisy
from dspark_sim.workload.join import join_traces
from dspark_sim.workload.traces import DrafterTrace, Trace

BELIEFS = ("true", "vllm", "sglang", "sglang-additive", "trtllm", "linear", "flat")


@dataclass(frozen=True, slots=True)
class World:
    """What one value of an axis makes of trace and profile.

    Attributes:
        trace: with the one drafter that is asked about.
        believed: what the rule plans with; None: the truth.
        lag: of rules that take one; None: their own.
        other: a second trace, for mixtures.
    """

    trace: Trace
    profile: HardwareProfile
    believed: HardwareProfile | None = None
    lag: int | None = None
    other: Trace | None = None


def _lag(world: World, value: float) -> World:
    return replace(world, lag=int(value))


def _temperature(world: World, value: float) -> World:
    """Logits divided by ``value`` after calibration: above 1 under-, below 1 over-confident."""

    def told(drafter: DrafterTrace) -> DrafterTrace:
        c = drafter.calibration
        scaled = replace(
            c,
            temperatures=tuple(t * value for t in c.temperatures),
            biases=tuple(b / value for b in c.biases),
        )
        return replace(drafter, calibration=scaled)

    return _with(world, told)


def _bias(world: World, value: float) -> World:
    """``value`` added to every calibrated logit."""

    def told(drafter: DrafterTrace) -> DrafterTrace:
        c = drafter.calibration
        return replace(drafter, calibration=replace(c, biases=tuple(b + value for b in c.biases)))

    return _with(world, told)


def _noise(world: World, value: float) -> World:
    """Normal noise of that standard deviation on every logit: ranking gets worse, calibration too."""
    return _with(world, lambda drafter: noisy(drafter, value))


def _auc(world: World, value: float) -> World:
    """Noise that leaves ``value`` of the lift of the AUC over a coin, and a calibration fitted anew."""
    return replace(world, trace=blurred(world.trace, world.trace.drafter().name, value))


def _gamma(world: World, value: float) -> World:
    """The first ``value`` tokens of every block: a shorter block is drafted, and paid."""
    gamma = int(value)

    def cut(drafter: DrafterTrace) -> DrafterTrace:
        if not 1 <= gamma <= drafter.gamma:
            raise InputError(f"gamma {gamma}: drafter '{drafter.name}' drafts 1 to {drafter.gamma} tokens")
        c = drafter.calibration
        shorter = replace(c, temperatures=c.temperatures[:gamma], biases=c.biases[:gamma])
        short = replace(drafter, gamma=gamma, calibration=shorter)
        fields = ("confidence_logit_NG", "confidence_logit_free_NG", "accept_rate_NG")
        columns = {name: getattr(drafter, name) for name in fields}
        columns = {name: None if x is None else x[:, :gamma] for name, x in columns.items()}
        return replace(short, accepted_N=np.minimum(drafter.accepted_N, gamma).astype(np.uint8), **columns)

    return _with(world, cut)


def _believed(world: World, value: str) -> World:
    """Plan with the table that an engine of that convention would have profiled."""
    drafter = world.trace.drafter()
    if value == "true":
        return world
    return replace(world, believed=believe(value, world.profile, Block(drafter.kind, drafter.gamma)))


def _shift(world: World, value: float) -> World:
    return replace(world, believed=shifted(world.profile, int(value)))


def _stale(world: World, value: float) -> World:
    return replace(world, believed=stale(world.profile, value))


def _truncated(world: World, value: float) -> World:
    return replace(world, believed=truncated(world.profile, int(value)) if value else None)


def _context(world: World, value: float) -> World:
    """Plan with the attention of one context for all; 0: with each request's own."""
    return replace(world, believed=at_context(world.profile, int(value)) if value else None)


def _mixture(world: World, value: float) -> World:
    """``value`` of the requests from the other trace, the rest from the first; the same number in all."""
    if world.other is None:
        raise InputError("mixture: of which traces? Name the second one (--with)")
    first, other = world.trace, world.other
    count = min(len(first.request_id), len(other.request_id))
    others = round(value * count)
    rows = [
        stream(0, "sensitivity", "mixture", n).permutation(len(trace.request_id))
        for n, trace in enumerate((first, other))
    ]
    chosen = [rows[0][: count - others], len(first.request_id) + rows[1][:others]]
    return replace(world, trace=join_traces([first, other]).take(np.sort(np.concatenate(chosen))))


def _domain(world: World, value: str) -> World:
    """Requests of one domain only; ``all``: every one."""
    chosen = np.array([value in ("all", domain) for domain in world.trace.domain])
    if not chosen.any():
        raise InputError(f"domain '{value}': trace '{world.trace.name}' has no request of it")
    return replace(world, trace=world.trace.take(chosen))


def _with(world: World, told: Callable[[DrafterTrace], DrafterTrace]) -> World:
    """Return the world with its drafter changed; replaced, so that nothing cached is kept."""
    drafter = world.trace.drafter()
    return replace(world, trace=replace(world.trace, drafters={drafter.name: told(drafter)}))


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that may be other than it was.

    Attributes:
        change: (world, value) -> world.
        values: what is tried where nothing is said; None: depends on the trace.
        neutral: the value that changes nothing; None: the largest.
        words: what it is, with its unit.
    """

    change: Callable[[World, Any], World]
    values: tuple[Any, ...] | None
    neutral: Any
    words: str


AXES: Mapping[str, Axis] = {
    "lag": Axis(_lag, (0, 1, 2, 3, 4), 2, "lag [engine steps]"),
    "temperature": Axis(_temperature, (0.5, 0.7, 1.0, 1.4, 2.0), 1.0, "temperature on the calibrated logits"),
    "bias": Axis(_bias, (-1.0, -0.5, 0.0, 0.5, 1.0), 0.0, "bias on the calibrated logits"),
    "noise": Axis(_noise, (0.0, 0.5, 1.0, 2.0, 4.0), 0.0, "noise on the logits [standard deviation]"),
    "auc": Axis(_auc, (0.0, 0.25, 0.5, 0.75, 1.0), 1.0, "share of the head's AUC above 1/2, recalibrated"),
    "gamma": Axis(_gamma, None, None, "draft tokens in a block"),
    "believed": Axis(_believed, BELIEFS, "true", "convention of the believed cost"),
    "shift": Axis(_shift, (-64, -16, -4, 0, 4, 16, 64), 0, "shift of the believed table [tokens]"),
    "stale": Axis(_stale, (0.25, 0.5, 1.0, 2.0, 4.0), 1.0, "believed over true cost of a further token"),
    "truncated": Axis(_truncated, (64, 128, 256, 512, 0), 0, "end of the believed table [tokens]; 0: none"),
    "context": Axis(
        _context,
        (0, 128, 1024, 8192, 32768),
        0,
        "KV context of the believed cost [tokens]; 0: true",
    ),
    "mixture": Axis(_mixture, (0.0, 0.25, 0.5, 0.75, 1.0), 0.0, "share of requests from the second trace"),
    "domain": Axis(_domain, None, "all", "domain of the requests"),
}


_WHOLE = ("lag", "gamma", "shift", "truncated", "context")
_RANGES = {
    "lag": (0, 64),
    "auc": (0, 1),
    "mixture": (0, 1),
    "stale": (0, 1e3),
    "shift": (-1024, 1024),
    "truncated": (0, 4096),
    "context": (0, 1e6),
    "noise": (0, 100),
}


def axis(name: str) -> Axis:
    """Return the axis called ``name``.

    Raises:
        InputError: there is none.
    """
    if name not in AXES:
        raise InputError(f"unknown axis '{name}'{did_you_mean(name, AXES)}; known: {', '.join(AXES)}")
    return AXES[name]


def values_of(name: str, trace: Trace, words: str | None = None) -> list[Any]:
    """Return the values of an axis to try: those of the comma list ``words``, else its usual ones.

    Raises:
        InputError: a word that is no number where numbers are wanted.
    """
    if words is not None:
        found = [word.strip() for word in words.split(",")]
        return found if name in ("believed", "domain") else [_number(name, word) for word in found]
    usual = axis(name).values
    if usual is not None:
        return list(usual)
    return (
        list(range(1, trace.drafter().gamma + 1)) if name == "gamma" else ["all", *sorted(set(trace.domain))]
    )


def _number(name: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise InputError(f"--values {word}: {name} takes numbers") from None
    if not np.isfinite(value) or (name == "temperature" and value <= 0):
        raise InputError(f"--values {word}: {name} takes finite numbers, a temperature above 0")
    if name in _WHOLE and not value.is_integer():
        raise InputError(f"--values {word}: {name} takes whole numbers")
    low, high = _RANGES.get(name, (-np.inf, np.inf))
    if not low <= value <= high:
        raise InputError(f"--values {word}: {name} takes numbers in {low:g}..{high:g}")
    return value


def explore(
    name: str,
    world: World,
    values: list[Any],
    policies: list[str],
    *,
    concurrency: int,
    output_tokens: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Yield one row a value and policy: the point, and its throughput over that at the neutral value.

    Raises:
        InputError: a value that the trace does not allow, or a policy that it cannot serve.
    """
    chosen = axis(name)
    drafter = world.trace.drafter()
    base = replace(world, trace=replace(world.trace, drafters={drafter.name: drafter}))
    neutral = drafter.gamma if name == "gamma" else chosen.neutral
    run = partial(_speed, concurrency=concurrency, output_tokens=output_tokens, seed=seed)
    reference = {spec: run(chosen.change(base, neutral), spec) for spec in policies}
    for value in values:
        there = chosen.change(base, value)
        for spec in policies:
            found = run(there, spec)
            relative = found["tok_per_s"] / reference[spec]["tok_per_s"] - 1.0
            yield {"value": value, "policy": spec, "change": relative, "point": found}


def _speed(world: World, spec: str, *, concurrency: int, output_tokens: int, seed: int) -> dict[str, Any]:
    policy = parse_policy(spec, world.lag)
    return point(
        simulate(
            world.trace,
            world.profile,
            policy,
            concurrency=concurrency,
            output_tokens=output_tokens,
            seed=seed,
            believed=world.believed,
        )
    )
