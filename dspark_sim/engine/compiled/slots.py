"""Slots, compiled: who sits in which, who goes on from where, who leaves."""

from __future__ import annotations

import math

import numpy as np

from dspark_sim.engine.compiled.compiling import inner
from dspark_sim.engine.compiled.layout import (
    AHEAD,
    ARRIVAL_S,
    BASE,
    BLOCKS,
    COMPLETED,
    DONE,
    EMIT_S,
    END_S,
    ENDLESS,
    FINISHED,
    FREE,
    FREE_BLOCKS,
    HEAD,
    KV,
    LAST,
    LEFT,
    MEASURING,
    NEWCOMERS,
    ORDER,
    R_COMPUTE,
    R_KV,
    R_ROW,
    R_STRETCH,
    R_TICKET,
    REQUEST,
    RESUMES,
    ROUNDS,
    ROW,
    SENT,
    SIZE,
    START,
    STEPS,
    STRETCH,
    TICKET,
    WAITING,
    State,
    Terms,
    World,
)


@inner
def start(world: World, ticket: int) -> tuple[int, int, int, int, float]:
    """Return how a request starts here: tokens to compute, row, stretch, KV tokens, last emission."""
    state, asked = world.state, world.asked
    at = find_resume(state, ticket)
    if at >= 0:
        kept = state.resumes_FR
        return kept[R_COMPUTE, at], kept[R_ROW, at], kept[R_STRETCH, at], kept[R_KV, at], state.resume_s_R[at]
    request = world.sent.ints_FK[REQUEST, ticket]
    row, stretch, base = asked.start_FQ[0, request], asked.start_FQ[2, request], asked.start_FQ[3, request]
    prompt_tokens = row + base - 1
    compute = prompt_tokens - asked.cached_Q[request] if world.terms.computes else 0
    return compute, row, stretch, prompt_tokens + 1, math.nan


@inner
def find_resume(state: State, ticket: int) -> int:
    """Return the place of what is noted of ``ticket``, or -1."""
    for at in range(state.ints[RESUMES]):
        if state.resumes_FR[R_TICKET, at] == ticket:
            return at
    return -1


@inner
def drop_resume(state: State, ticket: int) -> None:
    """Forget what is noted of ``ticket``."""
    at = find_resume(state, ticket)
    if at >= 0:
        last = state.ints[RESUMES] - 1
        for f in range(R_KV + 1):
            state.resumes_FR[f, at] = state.resumes_FR[f, last]
        state.resume_s_R[at] = state.resume_s_R[last]
        state.ints[RESUMES] = last


@inner
def needed(terms: Terms, kv_tokens: int) -> int:
    """Return the KV blocks for so many tokens, the anchor's included, and a drafted block behind them."""
    return (kv_tokens + terms.lookahead + terms.block_tokens - 1) // terms.block_tokens


@inner
def join_started(world: World, ticket: int, now_s: float, order: int) -> int:
    """Let a request decode whose newest token appears now; return its slot."""
    terms, state, asked = world.terms, world.state, world.asked
    ints, batch = state.ints, state.batch_FR
    _, row, stretch, kv_tokens, _ = start(world, ticket)
    if ints[FREE]:
        slot = state.free_R[0]
        ints[FREE] -= 1
        for i in range(ints[FREE]):
            state.free_R[i] = state.free_R[i + 1]
    else:
        slot = ints[SIZE]
        ints[SIZE] += 1
    batch[TICKET, slot], batch[START, slot], state.emit_s_R[slot] = ticket, ints[STEPS], now_s
    batch[ROW, slot], batch[LAST, slot] = row, asked.last_S[stretch]
    batch[STRETCH, slot], batch[BASE, slot] = stretch, kv_tokens - row
    ints[KV] += kv_tokens
    if now_s != state.floats[EMIT_S]:
        ints[NEWCOMERS] = 1
    for s in range(terms.lag):
        state.ring_FR[s, slot] = world.tables.nothing
    if terms.paged:
        batch[BLOCKS, slot], batch[ORDER, slot] = needed(terms, kv_tokens), order
    drop_resume(state, ticket)
    return slot


@inner
def leave(world: World, slot: int) -> int:
    """Let the request in ``slot`` go, with its KV blocks, note its rounds, and return its ticket."""
    terms, state = world.terms, world.state
    ints, batch = state.ints, state.batch_FR
    if terms.paged:
        ints[FREE_BLOCKS] += batch[BLOCKS, slot]
        batch[BLOCKS, slot] = 0
    ticket = batch[TICKET, slot]
    ints[KV] -= batch[BASE, slot] + batch[ROW, slot]
    world.sent.ints_FK[ROUNDS, ticket] += ints[STEPS] - batch[START, slot]
    return ticket


@inner
def free_slot(state: State, slot: int) -> None:
    """Note that nobody is in ``slot``; the free ones stay in order."""
    at = state.ints[FREE]
    while at > 0 and state.free_R[at - 1] > slot:
        state.free_R[at] = state.free_R[at - 1]
        at -= 1
    state.free_R[at] = slot
    state.ints[FREE] += 1


@inner
def is_free(state: State, slot: int) -> bool:
    """Return whether nobody is in ``slot``."""
    free = state.ints[FREE]
    if not free:
        return False
    place = np.searchsorted(state.free_R[:free], slot)
    return place < free and state.free_R[place] == slot


@inner
def close_up(terms: Terms, state: State) -> None:
    """Close the free slots."""
    ints, batch = state.ints, state.batch_FR
    kept, gap = 0, 0
    for r in range(ints[SIZE]):
        if gap < ints[FREE] and state.free_R[gap] == r:
            gap += 1
            continue
        if kept != r:
            for f in range(START + 1):
                batch[f, kept] = batch[f, r]
            state.emit_s_R[kept] = state.emit_s_R[r]
            for s in range(terms.lag):
                state.ring_FR[s, kept] = state.ring_FR[s, r]
        kept += 1
    ints[SIZE], ints[FREE] = kept, 0


@inner
def push(state: State, ticket: int) -> None:
    """Put a request at the end of the queue."""
    ints, capacity = state.ints, state.waiting_K.size
    state.waiting_K[(ints[HEAD] + ints[WAITING]) % capacity] = ticket
    ints[WAITING] += 1


@inner
def complete(world: World, ticket: int, now_s: float) -> None:
    """Note that a request is done; its user sends the next one."""
    run = world.run
    world.sent.floats_FK[END_S, ticket] = now_s
    if run.ints[LEFT] != ENDLESS:
        run.ints[LEFT] -= 1
    if run.ints[MEASURING]:
        run.ints[COMPLETED] += 1
        run.finished[run.ints[FINISHED]] = ticket
        run.ints[FINISHED] += 1
    world.state.ints[DONE] += 1
    if world.terms.closed:
        _send_next(world, now_s)


@inner
def _send_next(world: World, now_s: float) -> None:
    run, state = world.run, world.state
    if run.ints[AHEAD] == run.ahead.size:
        return
    ticket = run.ints[SENT]
    world.sent.ints_FK[REQUEST, ticket] = run.ahead[run.ints[AHEAD]]
    world.sent.floats_FK[ARRIVAL_S, ticket] = now_s
    run.ints[SENT] += 1
    run.ints[AHEAD] += 1
    push(state, ticket)
