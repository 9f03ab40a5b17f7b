"""One replica run ahead, compiled: steps and arrivals, until a buffer is full or nothing is left to do."""

from __future__ import annotations

import math

from dspark_sim.engine.compiled.admit import begin
from dspark_sim.engine.compiled.commit import commit
from dspark_sim.engine.compiled.compiling import entry, inner, pointed
from dspark_sim.engine.compiled.decide import decide, prefill_s
from dspark_sim.engine.compiled.layout import (
    AHEAD,
    ARRIVED,
    BEGUN,
    CHUNKS,
    DECODES,
    ENDLESS,
    FINISHED,
    FREE,
    FREE_BLOCKS,
    FULL,
    LEFT,
    MEASURED,
    NOW_S,
    OVER,
    PRICE,
    ROWS,
    SENT,
    SINGLES,
    SIZE,
    STEP_S,
    UNDER_WAY,
    WAITING,
    WANTED,
    WAS_RESIDENT,
    WAS_USED,
    WAS_WAITING,
    Run,
    World,
)
from dspark_sim.engine.compiled.slots import push


@entry
def advance(world: World) -> int:
    """Run until :data:`FULL`, :data:`OVER` or :data:`PRICE`; ``NOW_S`` is the end of the last step."""
    return _advance(pointed(world))


@inner
def _advance(world: World) -> int:
    run, state = world.run, world.state
    if not state.ints[BEGUN]:
        _let_in(world)
    while not is_done(run):
        now_s = run.floats[NOW_S]
        if not state.ints[BEGUN]:
            if _is_full(world):
                return FULL
            if not begin(world, now_s):
                if is_done(run) or _next_s(run) == math.inf:
                    return OVER
                run.floats[NOW_S] = now_s + (_next_s(run) - now_s)
                _let_in(world)
                continue
            state.ints[BEGUN] = 1
        step_s = price(world)
        if math.isnan(step_s):
            return PRICE
        state.ints[BEGUN] = 0
        end_s = now_s + step_s
        run.floats[NOW_S] = end_s
        _let_in(world)
        commit(world, now_s, step_s, end_s)
    return OVER


@entry
def turn(world: World, now_s: float) -> bool:
    """Begin a step at ``now_s``, for a replica that others share the clock with; return whether there is one.

    ``STEP_S`` of the state is its duration, NaN where the cost of its prompts is not filled in yet.
    """
    return _turn(pointed(world), now_s)


@inner
def _turn(world: World, now_s: float) -> bool:
    state = world.state
    if not state.ints[BEGUN] and not begin(world, now_s):
        return False
    state.ints[BEGUN] = 1
    state.floats[STEP_S] = price(world)
    return True


@entry
def finish(world: World, start_s: float, step_s: float, end_s: float) -> None:
    """Commit the step that :func:`turn` began."""
    world.state.ints[BEGUN] = 0
    commit(pointed(world), start_s, step_s, end_s)


@inner
def price(world: World) -> float:
    """Draft and decide; return the duration of the step [s]."""
    ints, terms = world.state.ints, world.terms
    ints[WAS_RESIDENT] = ints[SIZE] - ints[FREE] + ints[UNDER_WAY]
    ints[WAS_WAITING] = ints[WAITING]
    ints[WAS_USED] = terms.blocks - ints[FREE_BLOCKS] if terms.paged else 0
    ints[DECODES] = ints[SIZE] > 0 and (terms.mixes or ints[CHUNKS] == 0)
    return decide(world) if ints[DECODES] else prefill_s(world)


@inner
def is_done(run: Run) -> bool:
    """Return whether all that was wanted is measured."""
    ints = run.ints
    if ints[LEFT] != ENDLESS:
        return ints[LEFT] <= 0
    return ints[WANTED] != ENDLESS and ints[MEASURED] >= ints[WANTED]


@inner
def _next_s(run: Run) -> float:
    arrived = run.ints[ARRIVED]
    return run.arrival_s_K[arrived] if arrived < run.arrival_s_K.size else math.inf


@inner
def _let_in(world: World) -> None:
    """Queue what has arrived."""
    run = world.run
    while _next_s(run) <= run.floats[NOW_S]:
        push(world.state, run.ints[ARRIVED])
        run.ints[ARRIVED] += 1


@inner
def _is_full(world: World) -> bool:
    """Return whether a step might not find room for its records or the next requests of its users."""
    run, most = world.run, world.reserve
    ints = run.ints
    if ints[ROWS] == run.rows.shape[0] or ints[SINGLES] + 2 * world.terms.slots > run.singles.size:
        return True
    if ints[FINISHED] + most > run.finished.size:
        return True
    if not world.terms.closed:
        return False
    short = ints[LEFT] == ENDLESS and ints[AHEAD] + most > run.ahead.size
    return short or ints[SENT] + most > world.sent.ints_FK.shape[1]
