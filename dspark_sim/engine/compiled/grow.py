"""KV blocks, compiled: what the next step writes, and who loses theirs for it."""

from __future__ import annotations

from dspark_sim.engine.compiled.compiling import inner
from dspark_sim.engine.compiled.layout import (
    BASE,
    BLOCKS,
    EMIT_S,
    FREE_BLOCKS,
    HEAD,
    ORDER,
    P_BLOCKS,
    P_ORDER,
    P_TICKET,
    PREEMPTIONS,
    R_COMPUTE,
    R_KV,
    R_ROW,
    R_STRETCH,
    R_TICKET,
    REQUEST,
    RESUMES,
    ROW,
    SIZE,
    START,
    STEPS,
    STRETCH,
    TICKET,
    UNDER_WAY,
    WAITING,
    World,
)
from dspark_sim.engine.compiled.slots import free_slot, is_free, leave, needed


@inner
def grow(world: World) -> None:
    """Allocate what the next step writes; preempt the last admitted until it is there."""
    terms, state = world.terms, world.state
    ints, batch = state.ints, state.batch_FR
    more = 0
    for r in range(ints[SIZE]):
        if not is_free(state, r):
            more += needed(terms, batch[BASE, r] + batch[ROW, r]) - batch[BLOCKS, r]
    while more > ints[FREE_BLOCKS]:
        more -= _preempt(world)
    if more:
        ints[FREE_BLOCKS] -= more
        for r in range(ints[SIZE]):
            if not is_free(state, r):
                batch[BLOCKS, r] = needed(terms, batch[BASE, r] + batch[ROW, r])


@inner
def _preempt(world: World) -> int:
    """Send the request admitted last to the head of the queue; return the blocks that it wanted more."""
    terms, state = world.terms, world.state
    ints, batch, prompts = state.ints, state.batch_FR, state.prompts_FR
    slot = -1
    for r in range(ints[SIZE]):
        if not is_free(state, r) and (slot < 0 or batch[ORDER, r] > batch[ORDER, slot]):
            slot = r
    last, wanted = ints[UNDER_WAY] - 1, 0
    if last >= 0 and (slot < 0 or prompts[P_ORDER, last] > batch[ORDER, slot]):
        ticket = prompts[P_TICKET, last]
        ints[FREE_BLOCKS] += prompts[P_BLOCKS, last]
        ints[UNDER_WAY] = last
    else:
        wanted = needed(terms, batch[BASE, slot] + batch[ROW, slot]) - batch[BLOCKS, slot]
        _note_resume(world, slot)
        ticket = leave(world, slot)
        free_slot(state, slot)
    world.sent.ints_FK[PREEMPTIONS, ticket] += 1
    capacity = state.waiting_K.size
    ints[HEAD] = (ints[HEAD] - 1) % capacity
    state.waiting_K[ints[HEAD]] = ticket
    ints[WAITING] += 1
    return wanted


@inner
def _note_resume(world: World, slot: int) -> None:
    """Note how the request in ``slot`` goes on: recomputing what it has yields its next token."""
    state, asked = world.state, world.asked
    ints, batch, resumes = state.ints, state.batch_FR, state.resumes_FR
    ticket = batch[TICKET, slot]
    request = world.sent.ints_FK[REQUEST, ticket]
    kv_tokens = batch[BASE, slot] + batch[ROW, slot]
    row, stretch = batch[ROW, slot] + 1, batch[STRETCH, slot]
    if row == asked.last_S[stretch] and stretch + 1 < asked.stretch_Q1[request + 1]:
        stretch += 1
        row = asked.first_S[stretch]
    joined = batch[START, slot] == ints[STEPS]
    at = ints[RESUMES]
    resumes[R_TICKET, at], resumes[R_COMPUTE, at] = ticket, kv_tokens - asked.cached_Q[request]
    resumes[R_ROW, at], resumes[R_STRETCH, at], resumes[R_KV, at] = row, stretch, kv_tokens + 1
    state.resume_s_R[at] = state.emit_s_R[slot] if joined else state.floats[EMIT_S]
    ints[RESUMES] = at + 1
