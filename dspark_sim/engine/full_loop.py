"""A closed loop whose slots are never empty: the step without a queue, without blocks, without prompts.

Where users wait for slots or at least fill them, answer at once and never stop, a request that ends gives
its slot to the next one of the stream between two steps, and R never changes. Then a step is the policy, four
operations on rows, and a look at who has come to an end; times, rounds and histograms are worked out for
thousands of steps at once. What it records equals what :class:`~dspark_sim.engine.replica.Replica` records,
bit for bit.

Shape legend: R users in slots, C steps of a chunk, E requests that ended, G = gamma.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dspark_sim.engine.recorder import Recorder
from dspark_sim.engine.replay import Replay
from dspark_sim.engine.requests import Requests, Tickets
from dspark_sim.engine.shortcuts import shortcut
from dspark_sim.hardware.cost import StepCost
from dspark_sim.policies.base import Policy
from dspark_sim.schema import STEP_FIELDS, FloatArray, IntArray

_ROUNDS = 1 << 16


class FullLoop:
    """The loop.

    Args:
        replay, requests, tickets, recorder: of the run.
        policy: a rule with a shortcut.
        cost, believed: true and believed cost of a step.
        row_R, request_R: where the users of the first batch stand in mid-text.
        concurrency: users, those that wait included.
        take: returns that many of the next requests of the stream.
    """

    def __init__(
        self,
        replay: Replay,
        requests: Requests,
        tickets: Tickets,
        recorder: Recorder,
        *,
        policy: Policy,
        cost: StepCost,
        believed: StepCost,
        request_R: IntArray,
        row_R: IntArray,
        concurrency: int,
        take: Callable[[int], IntArray],
    ) -> None:
        slots = len(row_R)
        rule = shortcut(policy, replay, slots)
        assert rule is not None
        self._rule, self._replay, self._recorder = rule, replay, recorder
        self._requests, self._tickets, self._take = requests, tickets, take
        self._concurrency = concurrency
        self._row_R = row_R.copy()
        start_FR = requests.start_FQ[:, request_R]
        self._last_R, self._base_R = start_FR[1].copy(), start_FR[3].copy()
        self._kv_tokens = int((self._base_R + row_R).sum())
        self._price = _Price(cost, replay, policy, slots)
        self._belief = self._price if believed is cost else _Price(believed, replay, policy, slots)
        self._ring: list[IntArray] = []
        if replay.lagged_LW is not None:
            self._ring = [np.full(slots, len(replay.lagged_LW) - 1) for _ in range(policy.lag)]
        self._nothing = 0 if replay.lagged_LW is None else len(replay.lagged_LW) - 1
        self._steps, self._clock_s = 0, 0.0
        chunk = max(1, _ROUNDS // slots)
        self._length_CR = np.empty((chunk, slots), dtype=np.int64)
        self._moved_CR = np.empty_like(self._length_CR)
        self._history = _History(request_R, concurrency - slots)

    def advance(self) -> tuple[bool, float]:
        """Run a chunk of steps; return whether all that was wanted is measured, and the time [s]."""
        self._run_chunk()
        if self._recorder.done:
            self._history.write(self._tickets, self._recorder)
        return self._recorder.done, self._clock_s

    def _run_chunk(self) -> None:
        recorder, rule, ring = self._recorder, self._rule, self._ring
        row_R, last_R, accepted_N = self._row_R, self._last_R, self._replay.accepted_N
        gamma, lag, decide = self._replay.gamma, len(ring), rule.lengths
        believed, price, same = self._belief.at, self._price, self._belief is self._price
        needs_costs, kv_tokens = rule.needs_costs, self._kv_tokens
        left_R, anchor_R = np.empty_like(row_R), np.empty_like(row_R)
        # Arrays of one value: a number costs an operation as much again.
        one_R, gamma_R, most_R = (np.full_like(row_R, value) for value in (1, gamma, gamma - 1))
        costs_M, oldest_R = np.empty(0), row_R
        left = recorder.tokens_left
        step_s: list[float] = []
        verified: list[int] = []
        committed: list[int] = []
        ends: list[_Ends] = []
        for c in range(len(self._length_CR)):
            if needs_costs:
                costs_M = believed(kv_tokens)
            if lag:
                oldest_R = ring[(self._steps + c) % lag]
            length_R, tokens = decide(row_R, oldest_R, costs_M)
            step_s.append(float(costs_M[tokens]) if needs_costs and same else price.of(tokens, kv_tokens))
            verified.append(tokens)
            if lag:
                np.multiply(row_R, gamma_R, out=anchor_R)
                np.minimum(length_R, most_R, out=oldest_R)
                np.add(oldest_R, anchor_R, out=oldest_R)
            self._length_CR[c] = length_R
            moved_R = self._moved_CR[c]
            np.subtract(last_R, row_R, out=left_R)
            accepted_N.take(row_R, out=moved_R, mode="clip")
            np.minimum(moved_R, length_R, out=moved_R)
            np.add(moved_R, one_R, out=moved_R)
            np.minimum(moved_R, left_R, out=moved_R)
            np.add(row_R, moved_R, out=row_R)
            moved = int(one_R.dot(moved_R))  # the cheapest sum
            committed.append(moved)
            kv_tokens += moved
            ended = (moved_R == left_R).nonzero()[0]
            if ended.size:
                ends.append(_Ends(c, ended, last_R[ended]))
                kv_tokens += self._turn_over(ended)
            left -= moved
            if left <= 0:
                break
        self._kv_tokens = kv_tokens
        self._note(step_s, verified, committed, ends)
        self._steps += len(step_s)

    def _turn_over(self, ended: IntArray) -> int:
        """Give the slots of requests that ended to the next ones; return by how much KV has grown."""
        request = self._take(ended.size)
        start_FE = self._requests.start_FQ.take(request, axis=1)
        row_E, base_E = start_FE[0], start_FE[3]
        grown = int(np.add.reduce(row_E + base_E - self._row_R[ended] - self._base_R[ended]))
        self._row_R[ended], self._last_R[ended], self._base_R[ended] = row_E, start_FE[1], base_E
        for rows_R in self._ring:
            rows_R[ended] = self._nothing
        self._history.requests.append(request)
        return grown

    def _note(
        self, step_s: list[float], verified: list[int], committed: list[int], ends: list[_Ends]
    ) -> None:
        """Put a chunk on record."""
        steps, users = len(step_s), len(self._row_R)
        time_s = np.add.accumulate(np.array([self._clock_s, *step_s]))
        self._clock_s = float(time_s[-1])
        self._history.note(ends, self._steps, time_s[1:], self._recorder.measuring)
        if not self._recorder.measuring:
            self._recorder.warm_up(committed)
            return
        accepted_CR = self._accepted_CR(steps, ends)
        table = np.zeros((steps, len(STEP_FIELDS) + 1))
        columns = dict(zip((*STEP_FIELDS, "accepted"), table.T, strict=True))
        columns["start_s"][:], columns["step_s"][:] = time_s[:-1], step_s
        columns["num_running"][:] = columns["resident"][:] = columns["gap_requests"][:] = users
        columns["batch_tokens"][:] = np.array(verified) + users
        columns["committed_tokens"][:], columns["waiting"][:] = committed, self._concurrency - users
        columns["gap_s"][:] = time_s[1:] - time_s[:-1]
        columns["accepted"][:] = accepted_CR.sum(axis=1)
        self._recorder.take(table, self._length_CR[:steps], accepted_CR)

    def _accepted_CR(self, steps: int, ends: list[_Ends]) -> IntArray:
        """Return draft tokens verified and accepted: all that moved but the bonus; at an end, look again."""
        accepted_CR: IntArray = self._moved_CR[:steps] - 1
        if not ends:
            return accepted_CR
        step_E = np.repeat([e.step for e in ends], [e.slots.size for e in ends])
        slot_E, last_E = np.concatenate([e.slots for e in ends]), np.concatenate([e.last for e in ends])
        left_E = self._moved_CR[step_E, slot_E]
        hits_E = np.minimum(self._length_CR[step_E, slot_E], self._replay.accepted_N[last_E - left_E])
        accepted_CR[step_E, slot_E] = np.minimum(hits_E, left_E)
        return accepted_CR


class _Ends(NamedTuple):
    """Requests that ended in one step of a chunk: their slots, and their last rows."""

    step: int
    slots: IntArray
    last: IntArray


class _Price:
    """Durations of steps of R users whose drafts cost the same in every step [s]."""

    def __init__(self, cost: StepCost, replay: Replay, policy: Policy, users: int) -> None:
        self._cost, self._users, self._most = cost, users, users * replay.gamma
        self._draft_s = cost.draft_s(replay.draft_kind, users, replay.draft_tokens)
        self._synchronous = policy.synchronous
        self._constant_M = None if cost.reads_context else self._step_s_M(0)

    def _step_s_M(self, kv_tokens: int) -> FloatArray:
        return self._cost.step_s_M(self._users, kv_tokens, self._most, self._draft_s, self._synchronous)

    def at(self, kv_tokens: int) -> FloatArray:
        """Return the duration by verified draft tokens, 0..R*G."""
        return self._step_s_M(kv_tokens) if self._constant_M is None else self._constant_M

    def of(self, verified: int, kv_tokens: int) -> float:
        """Return the duration of a step that verifies ``verified`` draft tokens."""
        if self._constant_M is not None:
            return float(self._constant_M[verified])
        tokens = self._users + verified
        return self._cost.step_s(tokens, self._users, kv_tokens, self._draft_s, self._synchronous)


class _History:
    """Who was in which slot from when to when, noted as slots change hands, worked out at the end."""

    def __init__(self, request_R: IntArray, waiting: int) -> None:
        self.requests = [request_R]
        self._users, self._waiting = len(request_R), waiting
        self._slots: list[IntArray] = []
        self._steps: list[IntArray] = []
        self._end_s: list[FloatArray] = []
        self._measured: list[NDArray[np.bool_]] = []

    def note(self, ends: list[_Ends], before: int, end_s_C: FloatArray, measured: bool) -> None:
        """Note the ends of a chunk, ``before`` steps after the start, whose steps end at ``end_s_C``."""
        if not ends:
            return
        step_E = np.repeat([e.step for e in ends], [e.slots.size for e in ends])
        self._slots.append(np.concatenate([e.slots for e in ends]))
        self._steps.append(step_E + before)
        self._end_s.append(end_s_C[step_E])
        self._measured.append(np.full(step_E.size, measured))

    def write(self, tickets: Tickets, recorder: Recorder) -> None:
        """Write the tickets of all requests, and those of the measured ones that ended, in that order."""
        if not self._slots:
            return
        slot_E, step_E = np.concatenate(self._slots), np.concatenate(self._steps)
        end_s_E, users, ends = np.concatenate(self._end_s), self._users, len(slot_E)
        # The i-th request of the stream comes into the slot of the i-th that ends; it was sent when the
        # last of those who waited before it got theirs.
        arrival_s = np.concatenate([np.full(users, np.nan), np.zeros(self._waiting), end_s_E])[: users + ends]
        ticket_K = tickets.add(np.concatenate(self.requests), arrival_s)
        tickets.admit(ticket_K[users:], 0.0, 0)
        tickets.admission_s_K[users : users + ends] = tickets.first_s_K[users : users + ends] = end_s_E
        ticket_E, since_E = np.empty_like(slot_E), np.zeros_like(slot_E)
        order = np.argsort(slot_E, kind="stable")
        follows = slot_E[order][1:] == slot_E[order][:-1]
        ticket_E[order] = slot_E[order]
        ticket_E[order[1:][follows]] = users + order[:-1][follows]
        since_E[order[1:][follows]] = step_E[order[:-1][follows]] + 1
        tickets.rounds_K[ticket_E] = step_E + 1 - since_E
        tickets.end_s_K[ticket_E] = end_s_E
        recorder.finish(ticket_E[np.concatenate(self._measured)])
