"""Before a step, compiled: grow, admit, plan prompts; what :mod:`dspark_sim.engine.replica` does."""

from __future__ import annotations

import math

from dspark_sim.engine.compiled.compiling import inner
from dspark_sim.engine.compiled.grow import grow
from dspark_sim.engine.compiled.layout import (
    ADMISSION_S,
    ADMITTED,
    CHUNKS,
    FIRST_S,
    FREE,
    FREE_BLOCKS,
    HEAD,
    INDEX,
    ORDER,
    P_BLOCKS,
    P_CHUNK,
    P_CONTEXT,
    P_LEFT,
    P_ORDER,
    P_TICKET,
    PAIRS,
    REPLICA,
    ROOM,
    SIZE,
    TOKENS,
    UNDER_WAY,
    WAITING,
    State,
    World,
)
from dspark_sim.engine.compiled.slots import close_up, complete, join_started, needed, start


@inner
def begin(world: World, now_s: float) -> bool:
    """Make room for the running requests, admit, plan prompts; return whether there is work."""
    terms, state = world.terms, world.state
    ints = state.ints
    if terms.paged and ints[SIZE] - ints[FREE] > 0:
        grow(world)
    if ints[UNDER_WAY] or ints[WAITING]:
        each = 1 + terms.lookahead if terms.mixes else 0
        budget = max(0, terms.budget - (ints[SIZE] - ints[FREE]) * each)
        open_step(state, budget)
        _admit(world, now_s)
    if ints[FREE]:
        close_up(terms, state)
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
def _admit(world: World, now_s: float) -> None:
    """Admit the head of the queue while there are a slot, KV blocks and, for a prompt, tokens left."""
    terms, state, asked = world.terms, world.state, world.asked
    ints = state.ints
    ready = 0
    while ints[WAITING] and ints[SIZE] - ints[FREE] + ints[UNDER_WAY] < terms.slots:
        ticket = state.waiting_K[ints[HEAD]]
        compute, row, stretch, kv_tokens, _ = start(world, ticket)
        whole = compute == 0 and row == asked.last_S[stretch]
        held = 0 if not terms.paged or whole else needed(terms, kv_tokens)
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
def _note_admission(world: World, ticket: int, now_s: float, first_s: float) -> None:
    ints_FK, floats_FK = world.sent.ints_FK, world.sent.floats_FK
    ints_FK[REPLICA, ticket] = world.state.ints[INDEX]
    if math.isnan(floats_FK[ADMISSION_S, ticket]):
        floats_FK[ADMISSION_S, ticket], floats_FK[FIRST_S, ticket] = now_s, first_s
