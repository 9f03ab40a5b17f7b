"""Random batches for the audit: ties, extremes, jagged costs, every state a rule can get into.

Shape legend: R running requests, G = gamma, M = R * G.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.policies.base import BatchView, Decision, Past, Policy
from dspark_sim.schema import FloatArray, IntArray

_GRID = 2.0**24
_TIES = np.array([0.0, 0.25, 0.5, 0.5, 0.75, 0.9, 1.0, 1.0])
_DRAFT_S, _BLOCK_S = 0.2, 0.4


def survival(confidence_RG: FloatArray) -> FloatArray:
    """Return running products on the 2**-24 grid, as the engine has them."""
    survival_RG: FloatArray = np.rint(np.cumprod(confidence_RG, axis=1) * _GRID) / _GRID
    return survival_RG


def with_confidence(view: BatchView, confidence_RG: FloatArray) -> BatchView:
    """Return the view of another block of this step; lagged survivals stay, unless the lag is 0."""
    current = survival(confidence_RG)
    lagged = current if view.lag == 0 else view.lagged_RG
    return view._replace(confidence_RG=confidence_RG, survival_RG=current, lagged_RG=lagged)


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of an episode: what the rule sees, its state, and what it decides."""

    view: BatchView
    state: Any
    decision: Decision


def episode(
    policy: Policy, rng: np.random.Generator, *, num_running: int, gamma: int, steps: int
) -> Iterator[Moment]:
    """Run a rule through random steps, its state handed on, some requests replaced by new ones."""
    state, past = None, Past.nothing(num_running)
    for _ in range(steps):
        view = draw_view(policy, rng, past, gamma)
        decision = policy.decide(view, state)
        check_shape(policy, view, decision)
        yield Moment(view, state, decision)
        state, past = decision.state, _outcome(rng, decision.verify_len_R)


def draw_view(policy: Policy, rng: np.random.Generator, past: Past, gamma: int) -> BatchView:
    """Return a random view of one step of a batch of ``len(past.previous_R)`` requests."""
    running = len(past.previous_R)
    confidence, older = (draw_confidences(rng, running, gamma) for _ in range(2))
    captured = tuple(range(1, running * (1 + gamma) + 1, int(rng.integers(1, 5))))
    view = BatchView(
        survival(confidence),
        confidence,
        survival(older),
        draw_costs(rng, running, gamma),
        gamma,
        policy.lag,
        draft_s=drafting_s,
        past=past,
        captured=captured if rng.random() < 0.5 else (),
        kv_tokens=int(rng.integers(1, 1000)) * running,
        num_waiting=int(rng.integers(0, 3)),
    )
    return with_confidence(view, confidence)


def draw_confidences(rng: np.random.Generator, running: int, gamma: int) -> FloatArray:
    """Return confidences [R, G]: few values (ties, zeros, ones), or a spread of any."""
    kind = rng.integers(3)
    if kind == 0:
        return rng.choice(_TIES, (running, gamma))
    if kind == 1:
        return rng.random((running, gamma))
    return rng.beta(4, 1, (running, gamma))


def draw_costs(rng: np.random.Generator, running: int, gamma: int) -> FloatArray:
    """Return step durations [M+1]: a line, stairs, a cliff, or anything; with whole blocks drafted."""
    m = np.arange(running * gamma + 1)
    kind, slope = rng.integers(4), rng.uniform(0.0, 1.5) / running
    step_s: Any = 1.0 + slope * m
    if kind == 1:
        step_s = 1.0 + slope * (m // rng.integers(2, 5)) * 3
    elif kind == 2:
        step_s = step_s + 3.0 * (m > rng.integers(0, len(m)))
    elif kind == 3:
        step_s = rng.choice([1.0, 1.5, 2.0, 3.0], len(m))
    costs: FloatArray = step_s + drafting_s(running, gamma)
    return costs


def drafting_s(requests: int, tokens: int) -> float:
    """Return what the audit's drafter costs [s]: a pass, and something a request and a token."""
    return (_DRAFT_S + 0.02 * requests + _BLOCK_S / 8 * tokens) * (requests > 0 and tokens > 0)


def check_shape(policy: Policy, view: BatchView, decision: Decision) -> None:
    """Raise unless the decision is whole lengths in 0..gamma that were drafted.

    Raises:
        InputError: it is not.
    """
    lengths = np.asarray(decision.verify_len_R)
    most = view.gamma if decision.draft_R is None else decision.draft_R
    fits = lengths.shape == (view.num_running,) and lengths.dtype.kind in "iu"
    if not fits or (lengths < 0).any() or (lengths > most).any():
        raise InputError(
            f"policy {policy.label} returned {lengths.tolist()}; a rule returns one whole number in "
            f"0..{view.gamma} for each of the {view.num_running} requests, at most what it drafts"
        )


def _outcome(rng: np.random.Generator, verify_len_R: IntArray) -> Past:
    """Accept some of what was verified, and replace a request now and then."""
    running = len(verify_len_R)
    accepted = rng.integers(0, verify_len_R + 1)
    previous = np.where(rng.random(running) < 0.1, -1, np.arange(running))
    return Past(previous, verify_len_R, accepted, float(rng.uniform(1, 3)))
