"""Draft-length: how far to draft is part of the budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Lt

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import expected_tokens_M, top_k, under_lag
from dspark_sim.policies.uniform import Positions
from dspark_sim.schema import FloatArray


class Memory(NamedTuple):
    """What past steps came to.

    counts: tests and acceptances by position, fading.
    drafted: block lengths of the last ``lag`` steps, the oldest first.
    idle: steps since something was drafted.
    """

    counts: Positions
    drafted: tuple[int, ...]
    idle: int


@policy("draft-length", source="our own", reads="lagged", default_lag=2, verdict=under_lag)
def draft_length(
    view: BatchView,
    state: Memory | None,
    *,
    keep: Annotated[float, Gt(0), Lt(1)] = 0.99,
    probe: Annotated[int, Ge(1)] = 64,
    cut: bool = True,
) -> Decision:
    """(k, m) of largest (R + sum of the m largest lagged survivals within k positions) / step_s(k, m), where
    the step drafts k tokens of every request; k = 0 drafts nothing, and after ``probe`` such steps the best
    k >= 1 is tried again. Then the m largest current survivals within k. ``cut`` False: whole blocks or
    nothing.

    Positions that were not drafted ``lag`` steps ago, and new requests, are expected to be accepted as
    their position was lately (fading by ``keep`` a step). Simplified: a shorter block costs what the
    profile says a smaller pass costs, accepts what the first positions of a whole one do
    (docs/beat-the-paper.md measures that), and a drafter that was left out pays nothing to catch up with
    the text. Lossless under lag: k and m are decided before this step's tokens are drawn, and the rest is
    as in ``dspark-async``.
    """
    start = Memory(Positions.none(view.gamma), (view.gamma,) * max(view.lag, 1), 0)
    memory = state or start
    counts = memory.counts.after(view.past, keep)
    seen = memory.drafted[0] if view.lag else view.gamma
    expected_RG = _expected(view.lagged_RG, seen, counts.conditional_G(prior=0.6), whole=not view.lag)
    lengths = range(1, view.gamma + 1) if cut else (view.gamma,)
    length, budget = _best(view, expected_RG, lengths, probing=memory.idle >= probe)
    running = view.num_running
    verify_len_R = (
        top_k(view.survival_RG[:, :length], budget) if length else np.zeros(running, dtype=np.int64)
    )
    idle = 0 if length else memory.idle + 1
    drafted = (*memory.drafted[1:], length)
    return Decision(verify_len_R, Memory(counts, drafted, idle), np.full(running, length, dtype=np.int64))


def _best(
    view: BatchView, expected_RG: FloatArray, lengths: Iterable[int], *, probing: bool
) -> tuple[int, int]:
    """Return (draft tokens of every request, verified tokens of the batch) of most expected tokens / step."""
    running, gamma = view.num_running, view.gamma
    rest_s_M = view.step_s_M - view.draft_s(running, gamma)
    best, length, budget = 0.0 if probing else running / rest_s_M[0], 0, 0
    for k in lengths:
        tokens_M = expected_tokens_M(expected_RG[:, :k])
        theta_M = tokens_M / (rest_s_M[: len(tokens_M)] + view.draft_s(running, k))
        m = int(theta_M.argmax())
        if theta_M[m] > best:
            best, length, budget = theta_M[m], k, m
    return length, budget


def _expected(lagged_RG: FloatArray, seen: int, conditional_G: FloatArray, whole: bool) -> FloatArray:
    """Return lagged survivals where there are any, continued by what positions are accepted lately."""
    if whole:
        return lagged_RG
    expected_RG = lagged_RG.copy()
    fresh_R = (lagged_RG[:, :seen] == 1.0).all(axis=1)
    before_R = np.ones(len(lagged_RG))
    for j, conditional in enumerate(conditional_G):
        unknown_R = fresh_R if j < seen else np.ones(len(lagged_RG), dtype=bool)
        expected_RG[:, j] = np.where(unknown_R, before_R * conditional, expected_RG[:, j])
        before_R = expected_RG[:, j]
    return expected_RG
