"""Which replica serves a request, and waking those that wait for work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING

import simpy

from dspark_sim.rng import stream
from dspark_sim.schema import IntArray

if TYPE_CHECKING:
    from dspark_sim.engine.compiled.machine import CompiledReplica
    from dspark_sim.engine.replica import Replica

    AnyReplica = Replica | CompiledReplica

#: The replica of the next request.
Router = Callable[[Sequence["AnyReplica"]], int]


def round_robin(seed: int) -> Router:
    """One after the other."""
    del seed
    turn = count()
    return lambda replicas: next(turn) % len(replicas)


def least_loaded(seed: int) -> Router:
    """The one with the fewest requests, waiting ones included; the first among equals."""
    del seed
    return lambda replicas: min(range(len(replicas)), key=lambda i: (replicas[i].load, i))


def two_choices(seed: int) -> Router:
    """The less loaded of two drawn at random; the first drawn among equals."""
    random = stream(seed, "router")

    def choose(replicas: Sequence[AnyReplica]) -> int:
        one = int(random.integers(len(replicas)))
        other = (one + 1 + int(random.integers(len(replicas) - 1))) % len(replicas)
        return other if replicas[other].load < replicas[one].load else one

    return choose


ROUTERS: dict[str, Callable[[int], Router]] = {
    "round-robin": round_robin,
    "least-loaded": least_loaded,
    "two-choices": two_choices,
}


class Pool:
    """Replicas behind one router. A group of replicas steps together; it rests when none has work.

    Args:
        env: the clock.
        groups: replicas by group.
        router: of :data:`ROUTERS`.
    """

    def __init__(
        self, env: simpy.Environment, groups: Sequence[Sequence[AnyReplica]], router: Router
    ) -> None:
        self.groups = groups
        self._env = env
        self._router = router
        self._replicas = [replica for group in groups for replica in group]
        self._group_of = [g for g, group in enumerate(groups) for _ in group]
        self._resting: dict[int, simpy.Event] = {}

    def send(self, tickets: IntArray) -> None:
        """Put requests into the queues of replicas, and wake these."""
        if len(self._replicas) == 1:
            self._replicas[0].enqueue(tickets)
            self._wake(0)
            return
        for i in range(len(tickets)):
            chosen = self._router(self._replicas)
            self._replicas[chosen].enqueue(tickets[i : i + 1])
            self._wake(self._group_of[chosen])

    def rest(self, group: int, until_s: float) -> simpy.Event:
        """Return what a group without work waits for: a request, or the time ``until_s`` [s]."""
        self._resting[group] = event = self._env.event()
        if until_s == float("inf"):
            return event
        return event | self._env.timeout(until_s - self._env.now)

    def _wake(self, group: int) -> None:
        event = self._resting.pop(group, None)
        if event is not None:
            event.succeed()
