"""The compiled step as the rest of the engine sees it: a replica, and a recorder in blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dspark_sim.engine.compiled import layout as at
from dspark_sim.engine.compiled.loop import advance, finish, is_done, turn
from dspark_sim.engine.compiled.selection import SCRATCH_BINS
from dspark_sim.engine.kv_blocks import KvBlocks
from dspark_sim.engine.prefill import Prefill
from dspark_sim.engine.recorder import Recorder, StepSink
from dspark_sim.engine.replay import Replay
from dspark_sim.engine.requests import Requests, Tickets
from dspark_sim.engine.service import Service
from dspark_sim.engine.shortcuts import Admission, FixedLength, PrefixLength, Shortcut, shortcut
from dspark_sim.engine.sources import ClosedLoop, Source
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.base import Policy
from dspark_sim.schema import FloatArray, IntArray

_STEPS = 1 << 14
_ENDS = 1 << 16


class CompiledRecorder(Recorder):
    """A recorder whose counters and blocks the compiled step writes; made as :class:`Recorder` is."""

    def __init__(
        self,
        gamma: int,
        slots: int,
        warmup_tokens: float,
        output_tokens: int | None,
        requests: int | None = None,
        *,
        sink: StepSink | None = None,
    ) -> None:
        super().__init__(gamma, slots, warmup_tokens, output_tokens, requests, sink=sink)
        ints = np.zeros(at.AHEAD + 1, dtype=np.int64)
        ints[at.MEASURING] = self.measuring
        ints[at.LEFT] = at.ENDLESS if requests is None else requests
        ints[at.WANTED] = at.ENDLESS if output_tokens is None else output_tokens
        self.run = at.Run(
            ints=ints,
            floats=np.array([0.0, warmup_tokens]),
            ahead=np.empty(0, dtype=np.int64),
            arrival_s_K=np.empty(0),
            rows=np.empty((_STEPS, at.ROW_FIELDS)),
            singles=np.empty(_ENDS + 2 * slots),
            finished=np.empty(0, dtype=np.int64),
            length_counts=self._verify_len_counts,
            accepted_counts=self._accepted_counts,
        )

    @property
    def done(self) -> bool:
        """Whether all that was wanted is measured."""
        return bool(is_done(self.run))

    def refuse(self, count: int) -> None:
        """Do not wait for ``count`` requests that were refused."""
        if self.run.ints[at.LEFT] != at.ENDLESS:
            self.run.ints[at.LEFT] -= count

    def flush(self) -> None:
        """Take over what stands in the blocks, and empty them."""
        ints, run = self.run.ints, self.run
        self._gaps.append(run.singles[: ints[at.SINGLES]].copy())
        self._keep(run.rows[: ints[at.ROWS]].copy())
        self._finished.append(run.finished[: ints[at.FINISHED]].copy())
        ints[[at.ROWS, at.SINGLES, at.FINISHED]] = 0
        self.completed, self.warmup_steps = int(ints[at.COMPLETED]), int(ints[at.WARMUP_STEPS])
        self.measured_tokens = int(ints[at.MEASURED])


class CompiledReplica:
    """One engine; see :class:`~dspark_sim.engine.replica.Replica`.

    Args:
        index: number on record.
        replay, requests, tickets, recorder, prefill: what the replicas of the run share.
        policy: a shipped rule that has a shortcut.
        cost, believed: true and believed cost of a step.
        slots: most requests at once.
        blocks: its KV blocks; None: without limit.
    """

    def __init__(
        self,
        index: int,
        *,
        replay: Replay,
        requests: Requests,
        tickets: Tickets,
        recorder: CompiledRecorder,
        prefill: Prefill,
        policy: Policy,
        cost: StepCost,
        believed: StepCost,
        slots: int,
        blocks: KvBlocks | None,
    ) -> None:
        rule = shortcut(policy, replay, slots)
        assert rule is not None
        self._tickets, self._recorder, self._requests, self._cost = tickets, recorder, requests, cost
        self._source: Source | None = None
        kind, k = replay.draft_kind, replay.draft_tokens
        true = costs_of(cost, kind, k, prefill.budget)
        self._world = at.World(
            terms=_terms(rule, replay, policy, prefill, slots, blocks, requests, believed is not cost),
            tables=_tables(rule, replay),
            true=true,
            believed=true if believed is cost else costs_of(believed, kind, k, prefill.budget),
            asked=_asked(requests),
            sent=at.Sent(tickets.ints_FK, tickets.floats_FK),
            state=_state(slots, replay, policy.lag, index, blocks, len(tickets.ints_FK[0])),
            run=recorder.run,
            reserve=2 * (len(requests) + slots),
        )

    @property
    def load(self) -> int:
        """Requests that are here: waiting, in prefill, decoding."""
        ints = self._world.state.ints
        return int(ints[at.WAITING] + ints[at.SIZE] - ints[at.FREE] + ints[at.UNDER_WAY])

    def enqueue(self, tickets: IntArray) -> None:
        """Let requests wait here."""
        state = self._world.state
        ints, capacity = state.ints, state.waiting_K.size
        first = ints[at.HEAD] + ints[at.WAITING]
        if ints[at.WAITING] + len(tickets) > capacity:
            self._widen(int(ints[at.WAITING]) + len(tickets))
            return self.enqueue(tickets)
        state.waiting_K[np.arange(first, first + len(tickets)) % capacity] = tickets
        ints[at.WAITING] += len(tickets)
        return None

    def start_in_mid_text(self, request: IntArray, row: IntArray) -> int:
        """Fill the first batch as :meth:`~dspark_sim.engine.replica.Replica.start_in_mid_text`."""
        terms, state = self._world.terms, self._world.state
        start_FX = self._requests.start_FQ.take(request, axis=1)
        start_FX[0] = row
        needed = np.zeros(len(request), dtype=np.int64)
        fit = len(request)
        if terms.paged:
            needed = (start_FX[3] + row + terms.lookahead + terms.block_tokens - 1) // terms.block_tokens
            fit = int(np.searchsorted(np.cumsum(needed), terms.blocks, side="right"))
            state.ints[at.FREE_BLOCKS] -= needed[:fit].sum()
        batch = state.batch_FR
        batch[at.TICKET, :fit] = self._tickets.add(request[:fit], math.nan)
        batch[at.ROW : at.BASE + 1, :fit] = start_FX[:, :fit]
        batch[at.BLOCKS, :fit], batch[at.ORDER, :fit] = needed[:fit], np.arange(fit)
        state.ints[at.SIZE] = state.ints[at.ADMITTED] = fit
        state.ints[at.KV] = (start_FX[0] + start_FX[3])[:fit].sum()
        return fit

    def begin(self, now_s: float) -> bool:
        """Begin a step; return whether there is work."""
        self._follow()
        ints = self._world.state.ints
        ints[at.DONE] = 0
        works = bool(turn(self._world, now_s))
        while works and math.isnan(self._world.state.floats[at.STEP_S]):
            self._fill_in()
            turn(self._world, now_s)
        self._tell(now_s)
        return works

    def decide(self) -> float:
        """Return the duration of the step that has begun [s]."""
        return float(self._world.state.floats[at.STEP_S])

    def commit(self, start_s: float, step_s: float, end_s: float) -> None:
        """Commit the step."""
        self._follow()
        self._world.state.ints[at.DONE] = 0
        finish(self._world, start_s, step_s, end_s)
        self._tell(end_s)

    def check_laws(self) -> None:
        """Nothing: a run that checks its laws is not compiled."""

    def attach(self, source: Source, *, alone: bool) -> None:
        """Let ``source`` know of requests that are done; ``alone``: it may run ahead."""
        self._source = source
        if not alone:
            self._make_room()
            return
        run, closed = self._world.run, isinstance(source, ClosedLoop)
        if not closed:
            run = run._replace(arrival_s_K=self._tickets.floats_FK[at.ARRIVAL_S, : self._tickets.count])
        run.ints[at.SENT] = self._tickets.count
        self._world = self._world._replace(run=run, terms=self._world.terms._replace(closed=closed))
        self._make_room()

    def advance(self) -> tuple[bool, float]:
        """Run ahead; return whether all is over, and the time at which it stopped [s]."""
        status = advance(self._world)
        if status == at.PRICE:
            self._fill_in()
        elif status == at.FULL:
            self._make_room()
        if self._world.terms.closed:
            self._tickets.count = int(self._world.run.ints[at.SENT])
        return status == at.OVER, float(self._world.run.floats[at.NOW_S])

    def _tell(self, now_s: float) -> None:
        done = int(self._world.state.ints[at.DONE])
        if done:
            assert self._source is not None
            self._source.completed(done, now_s)
        if self._recorder.run.ints[at.ROWS] == _STEPS or self._short_of_room():
            self._make_room()

    def _short_of_room(self) -> bool:
        run = self._recorder.run
        slots = self._world.terms.slots
        return bool(
            run.ints[at.SINGLES] + 2 * slots > run.singles.size
            or run.ints[at.FINISHED] + self._world.reserve > run.finished.size
        )

    def _fill_in(self) -> None:
        """Fill in the cost of this step's prompts."""
        tokens = int(self._world.state.ints[at.TOKENS])
        self._world.true.prefill_s_T[tokens] = self._cost.prompts_s(tokens)

    def _make_room(self) -> None:
        """Empty the blocks on record, and give users requests to send."""
        world, tickets = self._world, self._tickets
        self._recorder.flush()
        run = world.run
        if run.finished.size < _ENDS + world.reserve:
            run = run._replace(finished=np.empty(_ENDS + world.reserve, dtype=np.int64))
        if world.terms.closed:
            assert isinstance(self._source, ClosedLoop)
            left = run.ahead[run.ints[at.AHEAD] :]
            left_of_all = int(run.ints[at.LEFT])
            endless = left_of_all == at.ENDLESS
            more = self._source.ahead(max(_ENDS, world.reserve) if endless else left_of_all)
            run = run._replace(ahead=np.concatenate([left, more]))
            run.ints[at.AHEAD] = 0
            tickets.reserve(int(run.ints[at.SENT]) + _ENDS + world.reserve)
        self._recorder.run = run
        self._world = world._replace(run=run)
        self._follow()

    def _follow(self) -> None:
        """Follow arrays that have moved."""
        tickets, world, run = self._tickets, self._world, self._recorder.run
        if world.sent.ints_FK is not tickets.ints_FK or world.run is not run:
            sent = at.Sent(tickets.ints_FK, tickets.floats_FK)
            self._world = world._replace(sent=sent, run=run)

    def _widen(self, least: int) -> None:
        """Make the queue wider."""
        state = self._world.state
        order = np.arange(state.ints[at.HEAD], state.ints[at.HEAD] + state.ints[at.WAITING])
        wider = np.zeros(2 * least, dtype=np.int64)
        wider[: order.size] = state.waiting_K[order % state.waiting_K.size]
        state.ints[at.HEAD] = 0
        self._world = self._world._replace(state=state._replace(waiting_K=wider))


def compile_replicas(
    service: Service,
    policy: Policy,
    cost: StepCost,
    believed: StepCost,
    slots: int,
    ledgers: Sequence[KvBlocks | None],
) -> list[CompiledReplica]:
    """Return compiled replicas, one for each of ``ledgers``: its KV blocks, None for no limit."""
    assert isinstance(service.recorder, CompiledRecorder)
    return [
        CompiledReplica(
            i,
            replay=service.replay,
            requests=service.requests,
            tickets=service.tickets,
            recorder=service.recorder,
            prefill=service.prefill,
            policy=policy,
            cost=cost,
            believed=believed,
            slots=slots,
            blocks=blocks,
        )
        for i, blocks in enumerate(ledgers)
    ]


def costs_of(cost: StepCost, kind: Any, k: int, budget: int) -> at.Costs:
    """Return ``cost`` as arrays; the table of prompt steps is filled in when it is needed."""
    return at.Costs(prefill_s_T=np.full(budget + 1, np.nan), **cost.arrays(kind, k))  # type: ignore[arg-type]


def _terms(
    rule: Shortcut,
    replay: Replay,
    policy: Policy,
    prefill: Prefill,
    slots: int,
    blocks: KvBlocks | None,
    requests: Requests,
    believes: bool,
) -> at.Terms:
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


def _tables(rule: Shortcut, replay: Replay) -> at.Tables:
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


def _asked(requests: Requests) -> at.Asked:
    arrays = (requests.prompt_tokens_Q, requests.cached_tokens_Q, requests.start_FQ, requests.stretch_Q1,
              requests.first_S, requests.last_S)  # fmt: skip
    return at.Asked(*(np.ascontiguousarray(array, dtype=np.int64) for array in arrays))


def _state(slots: int, replay: Replay, lag: int, index: int, blocks: KvBlocks | None, queue: int) -> at.State:
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
