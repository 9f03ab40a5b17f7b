"""The compiled step as the rest of the engine sees it: a replica."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dspark_sim.engine.compiled import layout as at
from dspark_sim.engine.compiled.building import asked_of, costs_of, state_of, tables_of, terms_of
from dspark_sim.engine.compiled.loop import advance, finish, turn
from dspark_sim.engine.compiled.recording import ENDS, STEPS, CompiledRecorder
from dspark_sim.engine.kv_blocks import KvBlocks
from dspark_sim.engine.prefill import Prefill
from dspark_sim.engine.replay import Replay
from dspark_sim.engine.requests import Requests, Tickets
from dspark_sim.engine.service import Service
from dspark_sim.engine.shortcuts import shortcut
from dspark_sim.engine.sources import ClosedLoop, Source
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.base import Policy
from dspark_sim.schema import IntArray


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
            terms=terms_of(rule, replay, policy, prefill, slots, blocks, requests, believed is not cost),
            tables=tables_of(rule, replay),
            true=true,
            believed=true if believed is cost else costs_of(believed, kind, k, prefill.budget),
            asked=asked_of(requests),
            sent=at.Sent(tickets.ints_FK, tickets.floats_FK),
            state=state_of(slots, replay, policy.lag, index, blocks, len(tickets.ints_FK[0])),
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
        if self._recorder.run.ints[at.ROWS] == STEPS or self._short_of_room():
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
        if run.finished.size < ENDS + world.reserve:
            run = run._replace(finished=np.empty(ENDS + world.reserve, dtype=np.int64))
        if world.terms.closed:
            assert isinstance(self._source, ClosedLoop)
            left = run.ahead[run.ints[at.AHEAD] :]
            left_of_all = int(run.ints[at.LEFT])
            endless = left_of_all == at.ENDLESS
            more = self._source.ahead(max(ENDS, world.reserve) if endless else left_of_all)
            run = run._replace(ahead=np.concatenate([left, more]))
            run.ints[at.AHEAD] = 0
            tickets.reserve(int(run.ints[at.SENT]) + ENDS + world.reserve)
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
