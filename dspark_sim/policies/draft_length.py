"""Draft-length: how far to draft is part of the budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import best_budget, expected_tokens_M, top_k, under_lag
from dspark_sim.schema import FloatArray

#: Whole blocks that are remembered, how many of them one look renews, and steps between those that are
#: remembered while whole blocks are what pays.
_POOL, _LOOK, _EVERY = 512, 128, 8


class Memory(NamedTuple):
    """What past steps came to.

    pool_NG: survivals of whole blocks drafted lately, the oldest first.
    gains: by block length 1..G, what the m best tokens of the pool's blocks gain in all.
    drafted: block lengths of the last ``lag`` steps, the oldest first.
    keep: whether the blocks of those steps are to be remembered.
    since: steps since a whole block was drafted.
    age: steps since one was to be remembered.
    looking: whole blocks still to draft, in steps, whatever pays.
    """

    pool_NG: FloatArray
    gains: tuple[FloatArray, ...]
    drafted: tuple[int, ...]
    keep: tuple[bool, ...]
    since: int = 0
    age: int = 0
    looking: int = 0

    @classmethod
    def of(cls, pool_NG: FloatArray, lag: int) -> Memory:
        """Return the memory of one who drafted whole blocks, of which those of the pool are known."""
        gamma, back = pool_NG.shape[1], max(lag, 1)
        return cls(pool_NG, _gains(pool_NG), (gamma,) * back, (False,) * back)


@policy("draft-length", source="our own", reads="lagged", default_lag=2, verdict=under_lag)
def draft_length(
    view: BatchView,
    state: Memory | None,
    *,
    probe: Annotated[int, Ge(1)] = 256,
    cut: bool = True,
) -> Decision:
    """(k, m) of largest (R + sum of the m largest survivals within k positions) / step_s(k, m), where the
    step drafts k tokens of every request; k = 0 drafts nothing. k by the survivals of the last whole blocks,
    as if the batch were a sample of those; m by lagged survivals, as ``dspark-async``, where k tokens were
    drafted ``lag`` steps ago. Then the m largest current survivals within k.

    What lies past a short block is not seen, so after ``probe`` steps without a whole one some are drafted.
    New requests are expected to be accepted as the last whole blocks on average. ``cut`` False: whole blocks
    or nothing. Simplified: a shorter block costs what the profile says a smaller pass costs, accepts what the
    first positions of a whole one do (docs/beat-the-paper.md measures that), and a drafter that was left out
    pays nothing to catch up with the text.

    Lossless under lag: k and m are decided before this step's tokens are drawn, and the rest is as in
    ``dspark-async``.
    """
    gamma, running = view.gamma, view.num_running
    memory = _recalled(view, state or Memory.of(np.empty((0, gamma)), view.lag))
    lengths = range(1, gamma + 1) if cut else (gamma,)
    length = gamma if memory.looking else _best_length(view, memory, lengths)
    verify_len_R = np.zeros(running, dtype=np.int64)
    if length:
        verify_len_R = top_k(view.survival_RG[:, :length], _budget(view, memory, length))
    after = _noted(memory, length, length == gamma, running, probe)
    return Decision(verify_len_R, after, np.full(running, length, dtype=np.int64))


def _noted(memory: Memory, length: int, whole: bool, running: int, probe: int) -> Memory:
    """Return the memory after a step that drafts ``length`` tokens, and whether to look in the next one."""
    keep = whole and (memory.looking > 0 or memory.age + 1 >= _EVERY)
    since = 0 if whole else memory.since + 1
    return memory._replace(
        drafted=(*memory.drafted[1:], length),
        keep=(*memory.keep[1:], keep),
        since=since,
        age=0 if keep else memory.age + 1,
        looking=-(-_LOOK // running) if since >= probe else max(memory.looking - 1, 0),
    )


def _recalled(view: BatchView, memory: Memory) -> Memory:
    """Return the memory with the whole blocks of ``lag`` steps ago in it; too few of them: look at more.

    Without a lag it is the batch itself.
    """
    if not view.lag:
        return memory._replace(pool_NG=view.lagged_RG, gains=_gains(view.lagged_RG), looking=0)
    if memory.keep[0]:
        pool_NG = np.concatenate([memory.pool_NG, view.lagged_RG[~_new_R(view)]])[-_POOL:]
        memory = memory._replace(pool_NG=pool_NG, gains=_gains(pool_NG))
    return memory._replace(looking=max(memory.looking, int(len(memory.pool_NG) < _LOOK)))


def _gains(pool_NG: FloatArray) -> tuple[FloatArray, ...]:
    return tuple(expected_tokens_M(pool_NG[:, :k], base=0.0) for k in range(1, pool_NG.shape[1] + 1))


def _new_R(view: BatchView) -> NDArray[np.bool_]:
    """Return who has no block of ``lag`` steps ago: survivals of 1.0."""
    new_R: NDArray[np.bool_] = view.lagged_RG[:, -1] == 1.0
    return new_R


def _best_length(view: BatchView, memory: Memory, lengths: Iterable[int]) -> int:
    """Return the draft tokens of every request of most expected tokens / step; 0: none."""
    best, length = view.num_running / _step_s_M(view, 0)[0], 0
    for k in lengths:
        theta = (_tokens_M(view, memory, k) / _step_s_M(view, k)).max()
        if theta > best:
            best, length = theta, k
    return length


def _budget(view: BatchView, memory: Memory, length: int) -> int:
    """Return the draft tokens to verify of blocks of ``length``."""
    step_s_M = _step_s_M(view, length)
    if view.lag and length > memory.drafted[0]:
        return int((_tokens_M(view, memory, length) / step_s_M).argmax())
    lagged_RG = view.lagged_RG[:, :length]
    if view.lag and len(memory.pool_NG):
        mean_K = memory.pool_NG[:, :length].mean(axis=0)
        lagged_RG = np.where(_new_R(view)[:, None], mean_K, lagged_RG)
    return best_budget(lagged_RG, step_s_M)


def _step_s_M(view: BatchView, length: int) -> FloatArray:
    """Return the believed duration [s] of a step that drafts ``length`` tokens of all and verifies m."""
    running, gamma = view.num_running, view.gamma
    drafts_s = view.draft_s(running, length) - view.draft_s(running, gamma)
    step_s_M: FloatArray = view.step_s_M[: running * length + 1] + drafts_s
    return step_s_M


def _tokens_M(view: BatchView, memory: Memory, length: int) -> FloatArray:
    """Return expected tokens of a step if m are verified, of a batch like the pool."""
    running, size, gain_M = view.num_running, len(memory.pool_NG), memory.gains[length - 1]
    if size != running:
        places_M = np.arange(running * length + 1) * (size / running)
        gain_M = np.interp(places_M, np.arange(len(gain_M)), gain_M) * (running / size)
    return running + gain_M
