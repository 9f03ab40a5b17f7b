"""After a step, compiled: verify, commit, let prompts yield, put on record."""

from __future__ import annotations

import math

from dspark_sim.engine.compiled.admit import open_step
from dspark_sim.engine.compiled.compiling import inner
from dspark_sim.engine.compiled.layout import (
    BASE,
    BATCH_TOKENS,
    DECODES,
    EMIT_S,
    FIRST_S,
    FREE_BLOCKS,
    INDEX,
    KV,
    LAST,
    MEASURED,
    MEASURING,
    NEWCOMERS,
    P_BLOCKS,
    P_CHUNK,
    P_CONTEXT,
    P_LEFT,
    P_ORDER,
    P_TICKET,
    REQUEST,
    ROW,
    ROWS,
    SINGLES,
    SIZE,
    START,
    STEPS,
    STRETCH,
    TICKET,
    TOKENS,
    UNDER_WAY,
    WARMUP_LEFT,
    WARMUP_STEPS,
    WAS_RESIDENT,
    WAS_USED,
    WAS_WAITING,
    YIELDED,
    Run,
    State,
    World,
)
from dspark_sim.engine.compiled.slots import complete, drop_resume, free_slot, join_started, leave, start
from dspark_sim.schema import IntArray


@inner
def commit(world: World, start_s: float, step_s: float, end_s: float) -> None:
    """Commit what was verified and accepted, and what prompts yield; free finished requests."""
    state, run = world.state, world.run
    ints, prompt_tokens = state.ints, state.ints[TOKENS]
    running, batch_tokens, committed, accepted, sharing = 0, prompt_tokens, 0, 0, 0
    gap_s = 0.0
    if ints[DECODES]:
        running, batch_tokens = ints[SIZE], ints[BATCH_TOKENS]
        gap_s = end_s - state.floats[EMIT_S]
        sharing = running - _single_gaps(state, run, end_s)
        committed, accepted = _verify(world, end_s)
    ints[YIELDED] = 0
    if prompt_tokens:
        _finish_prompts(world, end_s)
    tokens = committed + ints[YIELDED]
    if not run.ints[MEASURING]:
        run.floats[WARMUP_LEFT] -= tokens
        run.ints[WARMUP_STEPS] += 1
        run.ints[MEASURING] = run.floats[WARMUP_LEFT] <= 0
        return
    row = run.rows[run.ints[ROWS]]
    row[0], row[1], row[2], row[3], row[4] = start_s, step_s, running, batch_tokens, tokens
    row[5], row[6], row[7] = prompt_tokens, ints[YIELDED], ints[WAS_RESIDENT]
    row[8], row[9], row[10] = ints[WAS_WAITING], ints[WAS_USED], ints[INDEX]
    row[11], row[12], row[13] = gap_s, sharing, accepted
    run.ints[ROWS] += 1
    run.ints[MEASURED] += tokens
    _count(run.length_counts, state.length_R, running)
    _count(run.accepted_counts, state.accepted_R, running)


@inner
def _count(counts: IntArray, value_R: IntArray, running: int) -> None:
    for r in range(running):
        counts[value_R[r]] += 1


@inner
def _single_gaps(state: State, run: Run, end_s: float) -> int:
    """Put the gaps of newcomers on record singly, and return how many they are."""
    ints, found = state.ints, 0
    if not ints[NEWCOMERS]:
        return 0
    start_R, emit_s_R, step = state.batch_FR[START], state.emit_s_R, ints[STEPS]
    for r in range(ints[SIZE]):
        if start_R[r] == step:
            found += 1
            _note_gap(run, end_s - emit_s_R[r])
    return found


@inner
def _note_gap(run: Run, gap_s: float) -> None:
    if run.ints[MEASURING]:
        run.singles[run.ints[SINGLES]] = gap_s
        run.ints[SINGLES] += 1


@inner
def _verify(world: World, end_s: float) -> tuple[int, int]:
    """Move the anchors on; return the tokens committed and the draft tokens accepted."""
    state = world.state
    ints, row_R, last_R = state.ints, state.batch_FR[ROW], state.batch_FR[LAST]
    running = ints[SIZE]
    total, hits, ended = _move(
        row_R, last_R, state.length_R, world.tables.accepted_N, state.accepted_R, running
    )
    ints[KV] += total
    ints[STEPS] += 1
    state.floats[EMIT_S], ints[NEWCOMERS] = end_s, 0
    for r in range(running):
        if not ended:
            break
        if row_R[r] == last_R[r]:
            ended -= 1
            if not _cross_seam(world, r):
                ticket = leave(world, r)
                free_slot(state, r)
                complete(world, ticket, end_s)
    return total, hits


@inner
def _move(
    row_R: IntArray,
    last_R: IntArray,
    length_R: IntArray,
    accepted_N: IntArray,
    accepted_R: IntArray,
    running: int,
) -> tuple[int, int, int]:
    """Move anchors; return tokens committed, draft tokens accepted, and how many stand at their last row."""
    total, hits, ended = 0, 0, 0
    for r in range(running):
        row = row_R[r]
        left = last_R[r] - row
        accepted = min(length_R[r], accepted_N[row], left)
        moved = min(accepted + 1, left)
        accepted_R[r] = accepted
        row_R[r] = row + moved
        hits += accepted
        total += moved
        ended += moved == left
    return total, hits, ended


@inner
def _cross_seam(world: World, slot: int) -> bool:
    """Let a request at the end of a stretch go on with the next one; return whether there is one."""
    if not world.terms.seams:
        return False
    batch, asked = world.state.batch_FR, world.asked
    stretch = batch[STRETCH, slot] + 1
    request = world.sent.ints_FK[REQUEST, batch[TICKET, slot]]
    if stretch >= asked.stretch_Q1[request + 1]:
        return False
    first = asked.first_S[stretch]
    batch[BASE, slot] += batch[ROW, slot] - first
    batch[ROW, slot], batch[LAST, slot] = first, asked.last_S[stretch]
    batch[STRETCH, slot] = stretch
    return True


@inner
def _finish_prompts(world: World, end_s: float) -> None:
    """Let the prompts that are done yield a token each."""
    state = world.state
    ints, prompts = state.ints, state.prompts_FR
    kept, count = 0, ints[UNDER_WAY]
    ints[UNDER_WAY] = 0
    for p in range(count):
        prompts[P_CONTEXT, p] += prompts[P_CHUNK, p]
        prompts[P_LEFT, p] -= prompts[P_CHUNK, p]
        if prompts[P_LEFT, p]:
            for f in range(P_CHUNK + 1):
                prompts[f, kept] = prompts[f, p]
            kept += 1
        else:
            _yield_token(world, p, end_s)
    ints[UNDER_WAY] = kept
    open_step(state, 0)


@inner
def _yield_token(world: World, p: int, end_s: float) -> None:
    state, prompts = world.state, world.state.prompts_FR
    ticket, order, blocks = prompts[P_TICKET, p], prompts[P_ORDER, p], prompts[P_BLOCKS, p]
    _, row, stretch, _, emit_s = start(world, ticket)
    state.ints[YIELDED] += 1
    if math.isnan(emit_s):
        world.sent.floats_FK[FIRST_S, ticket] = end_s
    else:
        _note_gap(world.run, end_s - emit_s)
    if row != world.asked.last_S[stretch]:
        join_started(world, ticket, end_s, order)
        return
    if world.terms.paged:
        state.ints[FREE_BLOCKS] += blocks
    drop_resume(state, ticket)
    complete(world, ticket, end_s)
