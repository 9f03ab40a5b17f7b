"""State of the compiled step: tuples of arrays, and counters in two arrays by index.

Shape legend as in the rest of the engine: N anchors, Q requests asked for, S stretches, K tickets, R slots,
W padded columns, L rows of the lagged table, B batch tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dspark_sim.schema import FloatArray, IntArray

#: Rules.
FIXED, PREFIX, STOP, SEARCH = range(4)
#: Why a run-ahead came back: a buffer is full, nothing is left to do, a prompt step's cost is not known.
FULL, OVER, PRICE = range(3)

#: Rows of ``Slots.ints``, as in :class:`~dspark_sim.engine.batching.Batch`.
TICKET, ROW, LAST, STRETCH, BASE, BLOCKS, ORDER, START = range(8)
#: Rows of ``Prompts.ints``, as in :class:`~dspark_sim.engine.prefill.Prompt`, and this step's chunk.
P_TICKET, P_ORDER, P_BLOCKS, P_CONTEXT, P_LEFT, P_CHUNK = range(6)
#: Rows of ``Resumes.ints``, as in :class:`~dspark_sim.engine.requests.Resume`.
R_TICKET, R_COMPUTE, R_ROW, R_STRETCH, R_KV = range(5)

#: Counters of one replica.
(SIZE, FREE, KV, STEPS, NEWCOMERS, ADMITTED, HEAD, WAITING, UNDER_WAY, CHUNKS, TOKENS, PAIRS, ROOM,
 FREE_BLOCKS, WAS_RESIDENT, WAS_WAITING, WAS_USED, DECODES, BATCH_TOKENS, CURSOR, RESUMES, INDEX,
 DONE, YIELDED, BEGUN) = range(25)  # fmt: skip
#: Times of one replica.
EMIT_S, STEP_S = range(2)

#: Counters of a run.
(MEASURING, WARMUP_STEPS, MEASURED, COMPLETED, LEFT, WANTED, ROWS, SINGLES, FINISHED, SENT, ARRIVED,
 AHEAD) = range(12)  # fmt: skip
#: Times of a run, and what is left of its warm-up [tokens].
NOW_S, WARMUP_LEFT = range(2)
#: ``LEFT`` and ``WANTED`` where there is no end.
ENDLESS = -1

#: Columns of a row on record; they are those of ``recorder.STEP_FIELDS`` and accepted tokens.
ROW_FIELDS = 14


class Tables(NamedTuple):
    """What is replayed; survivals two to a word; ``length_N`` is that of a rule of kind PREFIX."""

    accepted_N: IntArray
    survival_NV: NDArray[np.uint64]
    lagged_LV: NDArray[np.uint64]
    length_N: IntArray
    nothing: int


class Costs(NamedTuple):
    """:class:`~dspark_sim.hardware.cost.StepCost` as arrays; empty ones where a term is absent."""

    verify_s_B: FloatArray
    row_s_B: FloatArray
    fixed_s_R: FloatArray
    draft_s_R: FloatArray
    contexts_C: FloatArray
    attention_s_RC: FloatArray
    prefill_s_T: FloatArray
    mixed_s: float
    ms_per_pair: float
    bubble_s: float
    speculating_s: float
    constant_ms: float
    by_prompt_ms: float


class Asked(NamedTuple):
    """Requests that may be sent: :class:`~dspark_sim.engine.requests.Requests`."""

    prompt_Q: IntArray
    cached_Q: IntArray
    start_FQ: IntArray
    stretch_Q1: IntArray
    first_S: IntArray
    last_S: IntArray


class Sent(NamedTuple):
    """Requests that were sent: :class:`~dspark_sim.engine.requests.Tickets`."""

    ints_FK: IntArray
    floats_FK: FloatArray


#: Rows of ``Sent``.
REQUEST, ROUNDS, PREEMPTIONS, REPLICA = range(4)
ARRIVAL_S, ADMISSION_S, FIRST_S, END_S = range(4)


class Terms(NamedTuple):
    """What does not change in a run."""

    rule: int
    length: int
    gamma: int
    width: int
    lag: int
    synchronous: bool
    mixes: bool
    computes: bool
    budget: int
    lookahead: int
    slots: int
    paged: bool
    block_tokens: int
    blocks: int
    kept_free: int
    closed: bool
    seams: bool
    believes: bool


class State(NamedTuple):
    """One replica. ``ring_FR``: rows of the lagged table; ``free_R``: free slots, ascending."""

    ints: IntArray
    floats: FloatArray
    batch_FR: IntArray
    emit_s_R: FloatArray
    free_R: IntArray
    ring_FR: IntArray
    waiting_K: IntArray
    prompts_FR: IntArray
    resumes_FR: IntArray
    resume_s_R: FloatArray
    length_R: IntArray
    accepted_R: IntArray
    stage_RV: NDArray[np.uint64]
    stage_X: NDArray[np.float32]
    keys_X: NDArray[np.int32]
    other_X: NDArray[np.int32]
    bins: IntArray


class Run(NamedTuple):
    """What replicas share: counters, arrivals or the next requests of users, records in blocks."""

    ints: IntArray
    floats: FloatArray
    ahead: IntArray
    arrival_s_K: FloatArray
    rows: FloatArray
    singles: FloatArray
    finished: IntArray
    length_counts: IntArray
    accepted_counts: IntArray


class World(NamedTuple):
    """All of it; ``reserve``: most requests that may end, or be sent, in one step."""

    terms: Terms
    tables: Tables
    true: Costs
    believed: Costs
    asked: Asked
    sent: Sent
    state: State
    run: Run
    reserve: int
