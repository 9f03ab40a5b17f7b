"""Before a step, compiled: grow, preempt, admit, plan prompts; what :mod:`dspark_sim.engine.replica` does."""

from __future__ import annotations

import math

import numpy as np

from dspark_sim.engine.compiled.compiling import inner
from dspark_sim.engine.compiled.layout import (
    ADMISSION_S,
    ADMITTED,
    AHEAD,
    ARRIVAL_S,
    BASE,
    BLOCKS,
    CHUNKS,
    COMPLETED,
    DONE,
    EMIT_S,
    END_S,
    ENDLESS,
    FINISHED,
    FIRST_S,
    FREE,
    FREE_BLOCKS,
    HEAD,
    INDEX,
    KV,
    LAST,
    LEFT,
    MEASURING,
    NEWCOMERS,
    ORDER,
    P_BLOCKS,
    P_CHUNK,
    P_CONTEXT,
    P_LEFT,
    P_ORDER,
    P_TICKET,
    PAIRS,
    PREEMPTIONS,
    R_COMPUTE,
    R_KV,
    R_ROW,
    R_STRETCH,
    R_TICKET,
    REPLICA,
    REQUEST,
    RESUMES,
    ROOM,
    ROUNDS,
    ROW,
    SENT,
    SIZE,
    START,
    STEPS,
    STRETCH,
    TICKET,
    TOKENS,
    UNDER_WAY,
    WAITING,
    State,
    Terms,
    World,
)


@inner
def begin(world: World, now_s: float) -> bool:
    """Make room for the running requests, admit, plan prompts; return whether there is work."""
    terms, state = world.terms, world.state
    ints = state.ints
    if terms.paged and ints[SIZE] - ints[FREE] > 0:
        _grow(world)
    if ints[UNDER_WAY] or ints[WAITING]:
        each = 1 + terms.lookahead if terms.mixes else 0
        budget = max(0, terms.budget - (ints[SIZE] - ints[FREE]) * each)
        open_step(state, budget)
        _admit(world, now_s)
    if ints[FREE]:
        _close_up(terms, state)
    return ints[SIZE] > 0 or ints[CHUNKS] > 0


@inner
def open_step(state: State, budget: int) -> None:
    """Plan the next step: the prompts under way share ``budget`` tokens."""
    ints = state.ints
    ints[CHUNKS] = ints[TOKENS] = ints[PAIRS] = 0
    ints[ROOM] = budget
    for p in range(ints[UNDER_WAY]):
        _plan(state, p)


@inner
def _plan(state: State, p: int) -> None:
    ints, prompts = state.ints, state.prompts_FR
    tokens = min(prompts[P_LEFT, p], ints[ROOM])
    prompts[P_CHUNK, p] = max(tokens, 0)
    if tokens <= 0:
        return
    ints[CHUNKS] += 1
    ints[TOKENS] += tokens
    ints[PAIRS] += tokens * prompts[P_CONTEXT, p] + tokens * (tokens + 1) // 2
    ints[ROOM] -= tokens


@inner
def _needed(terms: Terms, kv_tokens: int) -> int:
    return (kv_tokens + terms.lookahead + terms.block_tokens - 1) // terms.block_tokens


@inner
def _is_free(state: State, slot: int) -> bool:
    free = state.ints[FREE]
    if not free:
        return False
    place = np.searchsorted(state.free_R[:free], slot)
    return place < free and state.free_R[place] == slot


@inner
def _grow(world: World) -> None:
    """Allocate what the next step writes; preempt the last admitted until it is there."""
    terms, state = world.terms, world.state
    ints, batch = state.ints, state.batch_FR
    more = 0
    for r in range(ints[SIZE]):
        if not _is_free(state, r):
            more += _needed(terms, batch[BASE, r] + batch[ROW, r]) - batch[BLOCKS, r]
    while more > ints[FREE_BLOCKS]:
        more -= _preempt(world)
    if more:
        ints[FREE_BLOCKS] -= more
        for r in range(ints[SIZE]):
            if not _is_free(state, r):
                batch[BLOCKS, r] = _needed(terms, batch[BASE, r] + batch[ROW, r])


@inner
def _preempt(world: World) -> int:
    """Send the request admitted last to the head of the queue; return the blocks that it wanted more."""
    terms, state = world.terms, world.state
    ints, batch, prompts = state.ints, state.batch_FR, state.prompts_FR
    slot = -1
    for r in range(ints[SIZE]):
        if not _is_free(state, r) and (slot < 0 or batch[ORDER, r] > batch[ORDER, slot]):
            slot = r
    last, wanted = ints[UNDER_WAY] - 1, 0
    if last >= 0 and (slot < 0 or prompts[P_ORDER, last] > batch[ORDER, slot]):
        ticket = prompts[P_TICKET, last]
        ints[FREE_BLOCKS] += prompts[P_BLOCKS, last]
        ints[UNDER_WAY] = last
    else:
        wanted = _needed(terms, batch[BASE, slot] + batch[ROW, slot]) - batch[BLOCKS, slot]
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
def _admit(world: World, now_s: float) -> None:
    """Admit the head of the queue while there are a slot, KV blocks and, for a prompt, tokens left."""
    terms, state, asked = world.terms, world.state, world.asked
    ints = state.ints
    ready = 0
    while ints[WAITING] and ints[SIZE] - ints[FREE] + ints[UNDER_WAY] < terms.slots:
        ticket = state.waiting_K[ints[HEAD]]
        compute, row, stretch, kv_tokens, _ = start(world, ticket)
        whole = compute == 0 and row == asked.last_S[stretch]
        held = 0 if not terms.paged or whole else _needed(terms, kv_tokens)
        if compute and ints[ROOM] == 0:
            break
        if terms.paged:
            free = ints[FREE_BLOCKS]
            if not (held <= free - terms.kept_free or (held <= free and free == terms.blocks)):
                break
            ints[FREE_BLOCKS] = free - held
        ints[HEAD] = (ints[HEAD] + 1) % state.waiting_K.size
        ints[WAITING] -= 1
        _note_admission(world, ticket, now_s, math.nan if compute else now_s)
        if whole:
            complete(world, ticket, now_s)
        elif compute:
            _take_prompt(state, ticket, held, kv_tokens - 1 - compute, compute)
        else:
            # Ranks of a step's prompts come before those of its ready requests.
            state.accepted_R[ready] = join_started(world, ticket, now_s, 0)
            ready += 1
    for i in range(ready):
        state.batch_FR[ORDER, state.accepted_R[i]] = ints[ADMITTED] + i
    ints[ADMITTED] += ready


@inner
def _take_prompt(state: State, ticket: int, blocks: int, context: int, left: int) -> None:
    ints, prompts = state.ints, state.prompts_FR
    p = ints[UNDER_WAY]
    prompts[P_TICKET, p], prompts[P_ORDER, p], prompts[P_BLOCKS, p] = ticket, ints[ADMITTED], blocks
    prompts[P_CONTEXT, p], prompts[P_LEFT, p] = context, left
    ints[UNDER_WAY] = p + 1
    ints[ADMITTED] += 1
    _plan(state, p)


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
def _note_admission(world: World, ticket: int, now_s: float, first_s: float) -> None:
    ints_FK, floats_FK = world.sent.ints_FK, world.sent.floats_FK
    ints_FK[REPLICA, ticket] = world.state.ints[INDEX]
    if math.isnan(floats_FK[ADMISSION_S, ticket]):
        floats_FK[ADMISSION_S, ticket], floats_FK[FIRST_S, ticket] = now_s, first_s


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
        batch[BLOCKS, slot], batch[ORDER, slot] = _needed(terms, kv_tokens), order
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


@inner
def push(state: State, ticket: int) -> None:
    """Put a request at the end of the queue."""
    ints, capacity = state.ints, state.waiting_K.size
    state.waiting_K[(ints[HEAD] + ints[WAITING]) % capacity] = ticket
    ints[WAITING] += 1


@inner
def _close_up(terms: Terms, state: State) -> None:
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
