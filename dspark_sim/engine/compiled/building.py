"""The state of a compiled replica, from what the rest of the engine has."""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark_sim.engine.compiled import layout as at
from dspark_sim.engine.compiled.selection import SCRATCH_BINS
from dspark_sim.engine.kv_blocks import KvBlocks
from dspark_sim.engine.prefill import Prefill
from dspark_sim.engine.replay import Replay
from dspark_sim.engine.requests import Requests
from dspark_sim.engine.shortcuts import Admission, FixedLength, PrefixLength, Shortcut
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.base import Policy
from dspark_sim.schema import FloatArray, IntArray


def costs_of(cost: StepCost, kind: Any, k: int, budget: int) -> at.Costs:
    """Return ``cost`` as arrays; the table of prompt steps is filled in when it is needed."""
    return at.Costs(prefill_s_T=np.full(budget + 1, np.nan), **cost.arrays(kind, k))  # type: ignore[arg-type]


def terms_of(
    rule: Shortcut,
    replay: Replay,
    policy: Policy,
    prefill: Prefill,
    slots: int,
    blocks: KvBlocks | None,
    requests: Requests,
    believes: bool,
) -> at.Terms:
    """Return what does not change in a run."""
    kind, length = at.SEARCH, 0
    if isinstance(rule, FixedLength):
        kind, length = at.FIXED, rule.length
    elif isinstance(rule, PrefixLength):
        kind = at.PREFIX
    elif isinstance(rule, Admission) and rule.stops:
        kind = at.STOP
    return at.Terms(
        rule=kind,
        length=length,
        gamma=replay.gamma,
        width=replay.width,
        lag=policy.lag if replay.lagged_LW is not None else 0,
        synchronous=policy.synchronous,
        mixes=prefill.kind == "mixed",
        computes=prefill.kind in ("mixed", "separate"),
        budget=prefill.budget,
        lookahead=replay.lookahead,
        slots=slots,
        paged=blocks is not None,
        block_tokens=blocks.block_tokens if blocks else 1,
        blocks=blocks.total if blocks else 0,
        kept_free=blocks.kept_free if blocks else 0,
        closed=False,
        seams=requests.has_seams,
        believes=believes,
    )


def tables_of(rule: Shortcut, replay: Replay) -> at.Tables:
    """Return what is replayed, survivals as words."""
    none: Any = np.empty((0, 0), dtype=np.uint64)
    lagged = none if replay.lagged_LW is None else replay.lagged_LW.view(np.uint64)
    lengths = rule.length_N if isinstance(rule, PrefixLength) else np.empty(0, dtype=np.int64)
    return at.Tables(
        accepted_N=replay.accepted_N,
        survival_NV=none if replay.survival_NW is None else replay.survival_NW.view(np.uint64),
        lagged_LV=lagged,
        length_N=lengths,
        nothing=len(lagged) - 1,
    )


def asked_of(requests: Requests) -> at.Asked:
    """Return what may be sent, in arrays of one layout."""
    arrays = (requests.prompt_tokens_Q, requests.cached_tokens_Q, requests.start_FQ, requests.stretch_Q1,
              requests.first_S, requests.last_S)  # fmt: skip
    return at.Asked(*(np.ascontiguousarray(array, dtype=np.int64) for array in arrays))


def state_of(
    slots: int, replay: Replay, lag: int, index: int, blocks: KvBlocks | None, queue: int
) -> at.State:
    """Return the state of an idle replica; ``queue``: requests that it has room for at first."""
    ints = np.zeros(at.BEGUN + 1, dtype=np.int64)
    ints[at.INDEX] = index
    ints[at.FREE_BLOCKS] = blocks.total if blocks else 0
    rows = 1 << max(0, slots - 1).bit_length()
    stage = np.empty((rows, replay.width), dtype=np.float32)
    nothing = 0 if replay.lagged_LW is None else len(replay.lagged_LW) - 1

    def whole(*shape: int) -> IntArray:
        return np.zeros(shape, dtype=np.int64)

    def keys() -> Any:
        return np.empty(rows * replay.width, dtype=np.int32)

    floats: FloatArray = np.zeros(at.STEP_S + 1)
    return at.State(
        ints=ints,
        floats=floats,
        batch_FR=whole(at.START + 1, slots),
        emit_s_R=np.zeros(slots),
        free_R=whole(slots + 1),
        ring_FR=np.full((max(1, lag), slots), nothing),
        waiting_K=whole(queue),
        prompts_FR=whole(at.P_CHUNK + 1, slots + 1),
        resumes_FR=whole(at.R_KV + 1, 2 * slots + 2),
        resume_s_R=np.zeros(2 * slots + 2),
        length_R=whole(slots),
        accepted_R=whole(slots),
        stage_RV=stage.view(np.uint64),
        stage_X=stage.reshape(-1),
        keys_X=keys(),
        other_X=keys(),
        bins=whole(SCRATCH_BINS),
    )
