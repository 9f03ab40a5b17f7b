"""What a synthetic trace follows from, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.schema import DraftKind

Mode = Literal["empirical", "geometric", "minimum-variance", "drift"]
MODES: tuple[Mode, ...] = get_args(Mode)
#: Modes in which no round differs from another.
ALIKE: tuple[Mode, ...] = ("geometric", "minimum-variance")
#: Standard deviations of the parts of a logit.
SPREADS = ("spread_requests", "spread_rounds", "spread_positions", "noise")
#: Largest standard deviation of any part of a logit; beyond it acceptance is a coin on the request.
MAX_SPREAD = 5.0


@dataclass(frozen=True, slots=True)
class SynthDrafter:
    """A drafter to synthesise: its conditional acceptance by position, each in (0, 1)."""

    name: str
    kind: DraftKind
    conditional: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SynthSpec:
    """Everything a synthetic trace follows from.

    Attributes:
        output_tokens, prompt_tokens: mean lengths [tokens].
        spread_requests, spread_rounds, spread_positions: standard deviations of the parts of the
            acceptance logit that the confidence head sees.
        noise: standard deviation of the part that it does not see.
        correlation: of the round part from one token to the next.
        shared: share of the variance of request and round parts that drafters have in common.
        mode: ``empirical``: conditional acceptance by position. ``geometric``: one acceptance for all
            positions of all rounds. ``minimum-variance``: every round accepts one of two neighbouring
            numbers of drafts. Both keep the accepted length, and know no spread. ``drift``: empirical
            on the whole, but acceptance changes along a text.
        drift: change of every acceptance logit per 1,000 tokens of context.
        switch: distance, in logits, between an easy and a hard stretch of a text.
        dwell: mean length of such a stretch [tokens].

    The default spreads and noise, on chat acceptance, give prefix-survival AUCs of .82, .85, .88 and
    .90 at positions 1, 3, 5 and 7; figure 6 of arXiv 2607.05147 has .82, .81, .86 and .91.
    """

    drafters: tuple[SynthDrafter, ...]
    target: str
    made: str
    domain: str = "synthetic"
    requests: int = 400
    output_tokens: float = 300.0
    prompt_tokens: float = 110.0
    spread_requests: float = 0.7
    spread_rounds: float = 1.2
    spread_positions: float = 0.9
    noise: float = 0.5
    correlation: float = 0.7
    shared: float = 0.8
    temperature: float = 1.0
    seed: int = 0
    mode: Mode = "empirical"
    drift: float = 0.0
    switch: float = 0.0
    dwell: float = 100.0


def check(spec: SynthSpec) -> None:
    """Refuse a spec that nothing can be made of.

    Raises:
        InputError: a field is out of range, or says something that its mode does not know.
    """
    rules = {
        "requests": (spec.requests >= 1, "must be at least 1"),
        "output_tokens": (2 <= spec.output_tokens < np.inf, "mean must be at least 2"),
        "prompt_tokens": (1 <= spec.prompt_tokens < np.inf, "mean must be at least 1"),
        "correlation": (0 <= spec.correlation < 1, "must lie in 0..1, 1 excluded"),
        "shared": (0 <= spec.shared <= 1, "must lie in 0..1"),
        "temperature": (0 <= spec.temperature < np.inf, "must not be negative"),
        "seed": (spec.seed >= 0, "must not be negative"),
        "mode": (spec.mode in MODES, f"not one of {', '.join(MODES)}{did_you_mean(spec.mode, MODES)}"),
        "drift": (abs(spec.drift) <= MAX_SPREAD, f"must lie in -{MAX_SPREAD}..{MAX_SPREAD}"),
        "switch": (0 <= spec.switch <= MAX_SPREAD, f"must lie in 0..{MAX_SPREAD}"),
        "dwell": (1 <= spec.dwell < np.inf, "must be at least 1"),
        **{
            name: (0 <= getattr(spec, name) <= MAX_SPREAD, f"must lie in 0..{MAX_SPREAD}") for name in SPREADS
        },
    }
    for name, (good, rule) in rules.items():
        if not good:
            raise InputError(f"synthetic trace: {name} = {getattr(spec, name)}: {rule}")
    _check_mode(spec)
    _check_drafters(spec.drafters)


def _check_mode(spec: SynthSpec) -> None:
    """Refuse what a mode would pass over in silence."""
    for name in SPREADS if spec.mode in ALIKE else ():
        if getattr(spec, name):
            rule = f"mode {spec.mode} has rounds that are all alike, so this must be 0"
            raise InputError(f"synthetic trace: {name} = {getattr(spec, name)}: {rule}")
    if (spec.mode == "drift") != bool(spec.drift or spec.switch):
        raise InputError("synthetic trace: drift or switch is said if and only if the mode is drift")


def _check_drafters(drafters: tuple[SynthDrafter, ...]) -> None:
    names = [drafter.name for drafter in drafters]
    if not names:
        raise InputError("synthetic trace: no drafter")
    for drafter in drafters:
        if names.count(drafter.name) > 1:
            raise InputError(f"synthetic trace: drafter '{drafter.name}' is there twice")
        if not drafter.conditional or not all(0.01 <= c <= 0.99 for c in drafter.conditional):
            rule = "conditional acceptance must be one or more numbers in 0.01..0.99"
            raise InputError(f"synthetic trace: drafter '{drafter.name}': {rule}")
