"""The engine step of one replica: grow, admit, plan prompts, decide, verify, commit, free.

The clock belongs to the caller, who lets ``decide``'s duration pass before ``commit``. A step is a
handful of vector operations on the running requests; Python loops over requests only where one is
admitted, has its prompt done, or is preempted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from dspark_sim.engine.deciding import Decider
from dspark_sim.engine.decoding import Decoding
from dspark_sim.engine.kv_blocks import KvBlocks
from dspark_sim.engine.prefill import Prompt, Prompts
from dspark_sim.engine.requests import Resume
from dspark_sim.engine.service import Service
from dspark_sim.schema import FloatArray, IntArray


class Replica:
    """One engine: a queue, prompts under way, running requests, KV blocks.

    Args:
        index: number on record.
        service: what it shares with others.
        decider: its policy and costs.
        slots: most requests at once.
        blocks: its KV blocks; None: without limit.
    """

    def __init__(
        self, index: int, service: Service, decider: Decider, slots: int, blocks: KvBlocks | None
    ) -> None:
        self._index = index
        self._service = service
        self._decider = decider
        self._slots = slots
        self._blocks = blocks
        self._requests, self._tickets = service.requests, service.tickets
        self._mixes = service.prefill.kind == "mixed"
        self._computes = service.prefill.kind in ("mixed", "separate")
        self._plain = service.prefill.kind == "none" and blocks is None
        self.waiting: deque[int] = deque()
        self.prompts = Prompts()
        self.decoding = Decoding(
            service.replay.accepted_N,
            service.requests,
            service.tickets,
            decider=decider,
            slots=slots,
            observer=service.observer,
        )
        self._batch = self.decoding.batch
        self._admitted = 0
        self._decodes = False
        self._state = (0, 0, 0)

    @property
    def load(self) -> int:
        """Requests that are here: waiting, in prefill, decoding."""
        return len(self.waiting) + self.resident

    @property
    def resident(self) -> int:
        """Requests that hold a slot: in prefill, decoding."""
        return len(self.prompts.under_way) + self._batch.running

    def enqueue(self, tickets: IntArray) -> None:
        """Let requests wait here."""
        self.waiting.extend(tickets.tolist())

    def start_in_mid_text(self, request: IntArray, row: IntArray) -> int:
        """Fill the first batch with requests whose earlier steps lie before the run.

        Returns:
            how many found room.
        """
        start_FX = self._requests.start_FQ.take(request, axis=1)
        start_FX[0] = row
        fit = len(request)
        if self._blocks is not None:
            held = np.cumsum(self._blocks.needed(start_FX[3] + row))
            fit = int(np.searchsorted(held, self._blocks.total, side="right"))
            self._blocks.take(int(held[fit - 1]) if fit else 0)
        tickets = self._tickets.add(request[:fit], math.nan)
        self._admitted = fit
        self._join(tickets, start_FX[:, :fit], 0.0, range(fit))
        return fit

    def begin(self, now_s: float) -> bool:
        """Make room for the running requests, admit, plan prompts; return whether there is work."""
        if self._blocks is not None and self._batch.running:
            self._grow(self._blocks)
        if self.prompts.under_way or self.waiting:
            self.prompts.open_step(self._budget())
            if self._plain:
                self._admit_all(now_s)
            else:
                self._admit(now_s)
        self.decoding.close_up()
        return self._batch.size > 0 or bool(self.prompts.chunks)

    def decide(self) -> float:
        """Draft, let the policy decide, and return the duration of the step [s]."""
        used = self._blocks.used if self._blocks is not None else 0
        self._state = (self.resident, len(self.waiting), used)
        self._decodes = self._batch.size > 0 and (self._mixes or not self.prompts.chunks)
        if self._decodes:
            return self.decoding.step_s(self.prompts, len(self.waiting))
        return self._decider.prefill_s(self.prompts)

    def commit(self, start_s: float, step_s: float, end_s: float) -> None:
        """Commit what was verified and accepted, and what prompts yield; free finished requests."""
        recorder, decoding, prompt_tokens = self._service.recorder, self.decoding, self.prompts.tokens
        if not self._decodes:
            yielded = self._finish_prompts(end_s)
            counts = (0, prompt_tokens, yielded, prompt_tokens, yielded, *self._state, self._index)
            recorder.step((start_s, step_s, *counts, 0.0, 0))
            return
        running = self._batch.size
        gap_s, sharing, single_s = decoding.gaps(end_s)
        accepted_R, committed, ended = decoding.verify(step_s, end_s)
        if single_s.size:
            recorder.gaps(single_s)
        if ended.size:
            self._complete(self._leave(ended), end_s)
        yielded = self._finish_prompts(end_s) if prompt_tokens else 0
        row = (
            start_s, step_s, running, decoding.batch_tokens, committed + yielded, prompt_tokens, yielded,
            *self._state, self._index, gap_s, sharing,
        )  # fmt: skip
        recorder.step(row, decoding.verify_len_R, accepted_R)

    def check_laws(self) -> None:
        """Assert the laws of docs/concepts.md on the present state (for ``check=True``)."""
        self.decoding.check_laws()
        assert self.resident <= self._slots, "no more requests than slots"
        if self._blocks is None:
            return
        batch = self._batch
        running = np.setdiff1d(np.arange(batch.size), batch.free)
        blocks_R, kv_R = batch.blocks_R[running], (batch.kv_base_R + batch.row_R)[running]
        held = blocks_R.sum() + sum(prompt.blocks for prompt in self.prompts.under_way)
        assert held + self._blocks.free == self._blocks.total, "allocated + free = total"
        assert (blocks_R * self._blocks.block_tokens >= kv_R - 1).all(), "computed tokens have their blocks"

    def _budget(self) -> int:
        """Return the prompt tokens that the next step may compute."""
        each = 1 + self._service.replay.lookahead if self._mixes else 0
        return max(0, self._service.prefill.budget - self._batch.running * each)

    def _grow(self, blocks: KvBlocks) -> None:
        """Allocate what the next step writes; preempt the last admitted until it is there."""
        batch = self._batch
        need_R = blocks.needed_R(batch.kv_base_R, batch.row_R)
        if batch.free.size:
            need_R[batch.free] = 0
        while (more := int(np.add.reduce(need_R - batch.blocks_R))) > blocks.free:
            self._preempt(blocks)
            need_R[batch.free] = 0
        if more:
            blocks.take(more)
            batch.blocks_R[:] = need_R

    def _preempt(self, blocks: KvBlocks) -> None:
        """Take the KV of the request admitted last, and send it to the head of the queue."""
        batch, under_way = self._batch, self.prompts.under_way
        order_R = batch.order_R.copy()
        order_R[batch.free] = -1
        slot = int(order_R.argmax())
        if under_way and under_way[-1].order > order_R[slot]:
            prompt = under_way.pop()
            ticket = prompt.ticket
            blocks.give_back(prompt.blocks)
        else:
            resume = self.decoding.resume(slot)
            [ticket] = self._leave(np.array([slot])).tolist()
            self._tickets.resume[ticket] = resume
        self._tickets.preemptions_K[ticket] += 1
        self.waiting.appendleft(ticket)

    def _admit_all(self, now_s: float) -> None:
        """Admit as many as there are slots: nothing is computed of prompts, and KV is without limit."""
        while self.waiting and (room := self._slots - self._batch.running) > 0:
            taken = np.array([self.waiting.popleft() for _ in range(min(room, len(self.waiting)))])
            self._tickets.admit(taken, now_s, self._index)
            start_FX = self._requests.start_FQ.take(self._tickets.request_K[taken], axis=1)
            whole = start_FX[0] == start_FX[1]
            if whole.any():
                self._complete(taken[whole], now_s)
                taken, start_FX = taken[~whole], start_FX[:, ~whole]
            self._join(taken, start_FX, now_s, ())

    def _admit(self, now_s: float) -> None:
        """Admit the head of the queue while there are a slot, KV blocks and, for a prompt, tokens left."""
        ready: list[int] = []
        while self.waiting and self.resident + len(ready) < self._slots:
            ticket = self.waiting[0]
            start = self._start(ticket)
            whole = not start.compute and start.row == self._requests.last_S[start.stretch]
            held = 0 if self._blocks is None or whole else self._blocks.needed(start.kv_tokens)
            if start.compute and not self.prompts.room:
                break
            if self._blocks is not None and not self._blocks.take_if_admissible(held):
                break
            self.waiting.popleft()
            self._tickets.readmit(ticket, now_s, self._index, math.nan if start.compute else now_s)
            if whole:
                self._complete(np.array([ticket]), now_s)
            elif start.compute:
                context = start.kv_tokens - 1 - start.compute
                self.prompts.add(Prompt(ticket, self._admitted, held, context, start.compute))
                self._admitted += 1
            else:
                ready.append(ticket)
        if ready:
            order = range(self._admitted, self._admitted + len(ready))
            self._admitted += len(ready)
            self._join_started(ready, order, now_s)

    def _start(self, ticket: int) -> Resume:
        """Return how a request starts here."""
        resume = self._tickets.resume.get(ticket)
        if resume is not None:
            return resume
        request = int(self._tickets.request_K[ticket])
        row, _, stretch, base = self._requests.start_FQ[:, request].tolist()
        prompt_tokens = row + base - 1
        compute = prompt_tokens - int(self._requests.cached_tokens_Q[request]) if self._computes else 0
        return Resume(compute, row, stretch, prompt_tokens + 1, math.nan)

    def _join_started(self, tickets: list[int], order: Sequence[int], now_s: float) -> None:
        """Let requests decode whose newest token appears now, or appeared before they came here."""
        starts = [self._start(ticket) for ticket in tickets]
        last_S = self._requests.last_S
        start_FX = np.array([(s.row, last_S[s.stretch], s.stretch, s.kv_tokens - s.row) for s in starts]).T
        emit_s = [now_s if s.compute or math.isnan(s.emit_s) else s.emit_s for s in starts]
        self._join(np.array(tickets), start_FX, np.array(emit_s), order)
        for ticket in tickets:
            self._tickets.resume.pop(ticket, None)

    def _join(
        self, tickets: IntArray, start_FX: IntArray, emit_s: float | FloatArray, order: Sequence[int]
    ) -> None:
        slots = self.decoding.join(tickets, start_FX, emit_s)
        if self._blocks is not None:
            self._batch.blocks_R[slots] = self._blocks.needed(start_FX[0] + start_FX[3])
            self._batch.order_R[slots] = order

    def _finish_prompts(self, end_s: float) -> int:
        """Let the prompts that are done yield a token each; return how many are."""
        joining, done = [], self.prompts.close_step()
        for prompt in done:
            ticket, start = prompt.ticket, self._start(prompt.ticket)
            if math.isnan(start.emit_s):
                self._tickets.first_s_K[ticket] = end_s
            else:
                self._service.recorder.gaps(np.array([end_s - start.emit_s]))
            whole = start.row == self._requests.last_S[start.stretch]
            if not whole and self._service.handoff is None:
                joining.append(prompt)
                continue
            if self._blocks is not None:
                self._blocks.give_back(prompt.blocks)
            if whole:
                self._tickets.resume.pop(ticket, None)
                self._complete(np.array([ticket]), end_s)
            elif self._service.handoff is not None:
                self._tickets.resume[ticket] = start._replace(compute=0, emit_s=end_s)
                self._service.handoff(ticket)
        if joining:
            self._join_started([p.ticket for p in joining], [p.order for p in joining], end_s)
        return len(done)

    def _leave(self, slots: IntArray) -> IntArray:
        """Let the requests in ``slots`` go, with their KV blocks; return their tickets."""
        if self._blocks is not None:
            self._blocks.give_back(int(np.add.reduce(self._batch.blocks_R[slots])))
            self._batch.blocks_R[slots] = 0
        return self.decoding.leave(slots)

    def _complete(self, tickets: IntArray, now_s: float) -> None:
        self._tickets.end_s_K[tickets] = now_s
        self._service.recorder.finish(tickets)
        self._service.completed(len(tickets), now_s)
