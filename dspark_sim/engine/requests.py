"""What is asked of the engine: lengths of every request, and the stretches of text that it replays.

A closed loop asks for the texts of a trace, one stretch each; an open loop for a
:class:`~dspark_sim.workload.mix.Demand`. Shape legend: Q requests, S stretches, K requests sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.mix import Demand
from dspark_sim.workload.traces import Trace


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests that may be sent.

    Attributes:
        prompt_tokens_Q, output_tokens_Q: lengths [tokens]; output counts prefill's token.
        cached_tokens_Q: leading prompt tokens that no prefill need compute: less than the prompt.
        stretch_Q1, first_S, last_S: as in :class:`~dspark_sim.workload.mix.Demand`.
        start_FQ: rows of :class:`~dspark_sim.engine.batching.Batch` once token 0 is there: row, last
            row, stretch, KV base (KV tokens are base + row: the prompt, and the output up to the anchor).
        has_seams: whether any request has several stretches.
    """

    prompt_tokens_Q: IntArray
    output_tokens_Q: IntArray
    cached_tokens_Q: IntArray
    stretch_Q1: IntArray
    first_S: IntArray
    last_S: IntArray
    start_FQ: IntArray = field(init=False)
    has_seams: bool = field(init=False)

    def __post_init__(self) -> None:
        """Lay out how each request starts."""
        stretch = self.stretch_Q1[:-1]
        row = self.first_S[stretch]
        base = self.prompt_tokens_Q + 1 - row
        object.__setattr__(self, "start_FQ", np.stack([row, self.last_S[stretch], stretch, base]))
        object.__setattr__(self, "has_seams", len(self.first_S) > len(self))

    def __len__(self) -> int:
        """Number of requests, Q."""
        return len(self.output_tokens_Q)

    @property
    def most_tokens_Q(self) -> IntArray:
        """KV tokens of each request in its last round: all but its last token."""
        return self.prompt_tokens_Q + self.output_tokens_Q - 1

    def next_stretch(self, request: int, stretch: int, row: int) -> tuple[int, int]:
        """Return row and stretch of a request that has come to ``row``: at a seam, those behind it."""
        if row == self.last_S[stretch] and stretch + 1 < self.stretch_Q1[request + 1]:
            return int(self.first_S[stretch + 1]), stretch + 1
        return row, stretch


def requests_of_trace(trace: Trace, max_output_tokens: int | None) -> Requests:
    """Return the texts of ``trace`` as requests; ``max_output_tokens`` cuts them.

    Raises:
        InputError: no text has a token to decode.
    """
    length = trace.output_tokens_Q
    if max_output_tokens is not None:
        length = np.minimum(length, max_output_tokens)
    if not (length > 1).any():
        raise InputError(f"trace '{trace.name}': no text is longer than the one token that prefill yields")
    first = trace.offset_Q1[:-1]
    return Requests(
        prompt_tokens_Q=trace.prompt_tokens_Q,
        output_tokens_Q=length,
        cached_tokens_Q=np.zeros_like(length),
        stretch_Q1=np.arange(len(length) + 1),
        first_S=first,
        last_S=first + length - 1,
    )


def requests_of_demand(demand: Demand) -> Requests:
    """Return the requests of an open loop; of a prompt that is cached whole, the last token is computed."""
    prompt, cached = demand.prompt_tokens_Q, demand.cached_prefix_tokens_Q
    return Requests(
        prompt_tokens_Q=prompt,
        output_tokens_Q=demand.output_tokens_Q,
        cached_tokens_Q=np.zeros_like(prompt) if cached is None else np.minimum(cached, prompt - 1),
        stretch_Q1=demand.stretch_Q1,
        first_S=demand.first_S,
        last_S=demand.last_S,
    )


class Resume(NamedTuple):
    """How a request goes on that lost its KV (preempted) or takes it along (handed over).

    compute: tokens that a prefill must compute before it decodes.
    row, stretch: where its anchor is then.
    kv_tokens: KV tokens that it has then.
    emit_s: when its newest token appeared [s].
    """

    compute: int
    row: int
    stretch: int
    kv_tokens: int
    emit_s: float


class Tickets:
    """Every request that was sent: what is on record of it. A ticket is its number, 0, 1, ...

    Attributes:
        request_K: row of :class:`Requests`.
        rounds_K, preemptions_K: counts so far.
        replica_K: where it was admitted last.
        arrival_s_K, admission_s_K, first_s_K, end_s_K: when it came, was first admitted, had its first
            token and its last [s]; NaN: not yet.
        resume: tickets that do not start from the beginning.
        count: how many there are.
        ints_FK, floats_FK: all of the above but ``resume``, one row each, in the order above.
    """

    def __init__(self, capacity: int) -> None:
        self.ints_FK: IntArray = np.zeros((4, capacity), dtype=np.int64)
        self.floats_FK: FloatArray = np.full((4, capacity), np.nan)
        self.count = 0
        self.resume: dict[int, Resume] = {}
        self._name()

    def add(self, request: IntArray, arrival_s: float | FloatArray) -> IntArray:
        """Note requests sent at ``arrival_s`` [s]; return their tickets, one after the other."""
        begin, self.count = self.count, self.count + len(request)
        self.reserve(self.count)
        self.request_K[begin : self.count] = request
        self.arrival_s_K[begin : self.count] = arrival_s
        return np.arange(begin, self.count)

    def reserve(self, count: int) -> None:
        """Make room for ``count`` requests in all; the arrays move."""
        while count > self.ints_FK.shape[1]:
            self.ints_FK = np.concatenate([self.ints_FK, np.zeros_like(self.ints_FK)], axis=1)
            self.floats_FK = np.concatenate([self.floats_FK, np.full_like(self.floats_FK, np.nan)], axis=1)
            self._name()

    def admit(self, tickets: IntArray, now_s: float, replica: int) -> None:
        """Note that ``replica`` takes in fresh requests, whose token 0 is there with a slot."""
        self.replica_K[tickets] = replica
        self.admission_s_K[tickets] = self.first_s_K[tickets] = now_s

    def readmit(self, ticket: int, now_s: float, replica: int, first_s: float) -> None:
        """Note that ``replica`` takes in a request, fresh or not; ``first_s``: its token 0 if it is fresh."""
        self.replica_K[ticket] = replica
        if math.isnan(self.admission_s_K[ticket]):
            self.admission_s_K[ticket], self.first_s_K[ticket] = now_s, first_s

    def _name(self) -> None:
        self.request_K, self.rounds_K, self.preemptions_K, self.replica_K = self.ints_FK
        self.arrival_s_K, self.admission_s_K, self.first_s_K, self.end_s_K = self.floats_FK
