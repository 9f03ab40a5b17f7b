"""Draft and decide, compiled: what :mod:`dspark_sim.engine.deciding` and the step costs say."""

from __future__ import annotations

import numpy as np

from dspark_sim.engine.compiled.compiling import inner
from dspark_sim.engine.compiled.layout import (
    BATCH_TOKENS,
    CHUNKS,
    CURSOR,
    FIXED,
    KV,
    PAIRS,
    PREFIX,
    ROW,
    SEARCH,
    SIZE,
    TOKENS,
    Costs,
    State,
    Terms,
    World,
)
from dspark_sim.engine.compiled.selection import ONE, Keys, gather, lengths_of_best, sort_down
from dspark_sim.schema import FloatArray, IntArray

MS = 1e-3
#: Of survivals; a power of two, so that products with it are exact.
GRID = 1.0 / ONE


@inner
def decide(world: World) -> float:
    """Write the lengths of a step that decodes; return its duration [s]."""
    terms, state = world.terms, world.state
    ints = state.ints
    running, tokens = ints[SIZE], ints[TOKENS]
    verified = _lengths(world)
    if terms.lag:
        _push(terms, state, running)
    ints[BATCH_TOKENS] = running + verified + tokens
    return _step_s(world.true, terms, ints[BATCH_TOKENS], running, ints[KV], tokens, ints[PAIRS])


@inner
def prefill_s(world: World) -> float:
    """Return the duration of a step of prompts alone [s]; NaN: its table entry is not filled in yet."""
    costs, ints = world.true, world.state.ints
    pairs_s = costs.ms_per_pair * ints[PAIRS] * MS
    host_ms = costs.constant_ms + costs.by_prompt_ms * ints[CHUNKS]
    return costs.prefill_s_T[ints[TOKENS]] + pairs_s + host_ms * MS


@inner
def _lengths(world: World) -> int:
    terms, tables, state = world.terms, world.tables, world.state
    running, length_R, row_R = state.ints[SIZE], state.length_R, state.batch_FR[ROW]
    if terms.rule == FIXED:
        length_R[:running] = terms.length
        return running * terms.length
    if terms.rule == PREFIX:
        return _known_lengths(tables.length_N, row_R, length_R, running)
    keys_X, gamma, width = state.keys_X, terms.gamma, terms.width
    stage_RV, stage_X = state.stage_RV, state.stage_X
    rows, table = row_R, tables.survival_NV
    if terms.lag:
        rows, table = state.ring_FR[state.ints[CURSOR]], tables.lagged_LV
    gather(table, rows, running, stage_RV, stage_X, keys_X)
    falling = sort_down(keys_X, state.other_X, state.bins, running, width)
    budget = _budget(world, falling, running)
    if budget == 0 or budget == running * gamma:
        length_R[:running] = gamma if budget else 0
    else:
        gather(tables.survival_NV, row_R, running, stage_RV, stage_X, keys_X)
        lengths_of_best(keys_X, running, width, gamma, budget, length_R)
    return budget


@inner
def _known_lengths(length_N: IntArray, row_R: IntArray, length_R: IntArray, running: int) -> int:
    verified = 0
    for r in range(running):
        length_R[r] = length_N[row_R[r]]
        verified += length_R[r]
    return verified


@inner
def _budget(world: World, falling: Keys, running: int) -> int:
    """Return how many draft tokens pay: the best m over all, or up to the first that does not improve."""
    terms, costs, ints = world.terms, world.believed, world.state.ints
    tokens = ints[TOKENS]
    rest_s = _rest_s(costs, terms, running, ints[KV], tokens, ints[PAIRS])
    forward_s_M = costs.verify_s_B[running + tokens :]
    row_s_M = costs.row_s_B[running:]
    if costs.row_s_B.size == 0:
        row_s_M = costs.row_s_B
    return _best(falling, running, terms.gamma, forward_s_M, row_s_M, rest_s, terms.rule == SEARCH)


@inner
def _best(
    falling: Keys,
    running: int,
    gamma: int,
    forward_s_M: FloatArray,
    row_s_M: FloatArray,
    rest_s: float,
    searches: bool,
) -> int:
    expected, best, budget = np.int64(running) * ONE, -1.0, 0
    for m in range(running * gamma + 1):
        if m:
            expected += falling[m - 1]
        step_s = forward_s_M[m]
        if row_s_M.size:
            step_s += row_s_M[m]
        theta = expected * GRID / (step_s + rest_s)
        if theta > best:
            best, budget = theta, m
        elif not searches:
            break
    return budget


@inner
def _push(terms: Terms, state: State, running: int) -> None:
    """Put this step's blocks in place of the oldest ones."""
    ints, gamma = state.ints, terms.gamma
    latest, row_R, length_R = state.ring_FR[ints[CURSOR]], state.batch_FR[ROW], state.length_R
    for r in range(running):
        latest[r] = row_R[r] * gamma + min(length_R[r], gamma - 1)
    ints[CURSOR] = (ints[CURSOR] + 1) % terms.lag


@inner
def _step_s(
    costs: Costs, terms: Terms, batch_tokens: int, running: int, kv: int, tokens: int, pairs: int
) -> float:
    rest_s = _rest_s(costs, terms, running, kv, tokens, pairs)
    forward_s = costs.verify_s_B[batch_tokens]
    if costs.row_s_B.size:
        forward_s += costs.row_s_B[batch_tokens - tokens]
    return forward_s + rest_s


@inner
def _rest_s(costs: Costs, terms: Terms, running: int, kv: int, tokens: int, pairs: int) -> float:
    """Return what does not depend on the batch tokens, in the order of additions of ``StepCost``."""
    draft_s = costs.draft_s_R[running]
    attention_s = 0.0
    if costs.contexts_C.size and running:
        attention_s = _attention_s(costs.contexts_C, costs.attention_s_RC[running], kv / running)
    known_s = attention_s + costs.fixed_s_R[running] + draft_s
    if draft_s != 0.0:
        known_s += costs.speculating_s
    if terms.synchronous:
        known_s += costs.bubble_s
    if tokens:
        known_s += costs.mixed_s + costs.ms_per_pair * pairs * MS
    return known_s


@inner
def _attention_s(contexts_C: FloatArray, row_C: FloatArray, context: float) -> float:
    right = min(int(np.searchsorted(contexts_C, context, side="right")), contexts_C.size - 1)
    left = right - 1 if right else 0
    if left == right or context <= contexts_C[left]:
        return row_C[left]
    share = (context - contexts_C[left]) / (contexts_C[right] - contexts_C[left])
    return row_C[left] + share * (row_C[right] - row_C[left])
