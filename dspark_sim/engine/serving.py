"""How a service is deployed: prefill, replicas, router; and its wiring on the clock."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from dspark_sim.engine.alone import Alone
from dspark_sim.engine.deciding import Decider
from dspark_sim.engine.decoding import Observer
from dspark_sim.engine.kv_blocks import KvBlocks
from dspark_sim.engine.prefill import Prefill, parse_prefill, separate
from dspark_sim.engine.recorder import Recorder
from dspark_sim.engine.replay import Replay
from dspark_sim.engine.replica import Replica
from dspark_sim.engine.requests import Requests, Tickets
from dspark_sim.engine.routing import ROUTERS, Pool
from dspark_sim.engine.service import Service
from dspark_sim.engine.sources import Source
from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.memory import kv_blocks
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.policies.base import Policy
from dspark_sim.schema import IntArray

if TYPE_CHECKING:
    from dspark_sim.engine.compiled.machine import CompiledReplica

GBIT = 1e9
BITS = 8


@dataclass(frozen=True)
class Serving:
    """A deployment, in words.

    Attributes:
        prefill: spec of :mod:`dspark_sim.engine.prefill`.
        replicas: engines that decode; each is what the profile describes.
        router: of :data:`dspark_sim.engine.routing.ROUTERS`.
        lockstep: replicas are ranks that step together (attention data-parallel over one set of
            experts): a step lasts as long as its slowest rank's, and ranks without work wait.
    """

    prefill: str = "none"
    replicas: int = 1
    router: str = "round-robin"
    lockstep: bool = False

    def check(self) -> Prefill:
        """Return the prefill mode.

        Raises:
            InputError: a spec that does not hold.
        """
        if self.replicas < 1:
            raise InputError(f"replicas is {self.replicas}; it must be at least 1")
        if self.router not in ROUTERS:
            hint = f"{did_you_mean(self.router, ROUTERS)}; known: {', '.join(ROUTERS)}"
            raise InputError(f"unknown router '{self.router}'{hint}")
        return parse_prefill(self.prefill)


@dataclass(frozen=True)
class Hardware:
    """True and believed profile of the replicas, and the profile of a prefill pool's engines.

    ``blocks``: KV blocks of a replica; None: without limit.
    """

    profile: HardwareProfile
    believed: HardwareProfile
    pool: HardwareProfile
    blocks: int | None

    @classmethod
    def of(
        cls, profile: HardwareProfile, believed: HardwareProfile | None, prefill: Prefill, replay: Replay
    ) -> Hardware:
        """Return the hardware of a run.

        Raises:
            InputError: no such profile, no room for a KV block, or KV to move whose size nobody states.
        """
        pool = load_profile(prefill.hw) if prefill.hw else profile
        if prefill.workers and (profile.kv is None or profile.kv.bytes_per_token is None):
            raise InputError(
                f"profile {profile.name}: prefill {prefill.label} moves KV between pools, and the profile "
                "does not say how much; take one that does, such as h800-qwen3-4b, or state its KV: "
                "--set kv.block_tokens=16 --set kv.memory_gib=GIB --set kv.bytes_per_token=BYTES"
            )
        return cls(profile, believed or profile, pool, kv_blocks(profile, drafting=replay.lookahead > 0))

    def fits(self, most_tokens_Q: IntArray, lookahead: int) -> NDArray[np.bool_]:
        """Return which requests of ``most_tokens_Q`` KV tokens in their last round a replica can hold."""
        ledger = self.ledger(lookahead)
        if ledger is None:
            return np.ones(len(most_tokens_Q), dtype=bool)
        return ledger.needed(most_tokens_Q) <= ledger.total

    def ledger(self, lookahead: int) -> KvBlocks | None:
        """Return the KV blocks of one replica, all free."""
        kv = self.profile.kv
        if kv is None or self.blocks is None:
            return None
        return KvBlocks(self.blocks, kv.block_tokens, kv.watermark, lookahead)

    def transfer_s(self, prefill: Prefill, prompt_tokens: int) -> float:
        """Return how long a prompt's KV takes from pool to pool [s]."""
        kv = self.profile.kv
        assert kv is not None
        assert kv.bytes_per_token is not None
        bits = prompt_tokens * (kv.bytes_per_token + kv.draft_bytes_per_token) * BITS
        return prefill.latency_ms * 1e-3 + bits / (prefill.gbit_per_s * GBIT)


class RunsAhead(Protocol):
    """An engine that is alone, and so may run many steps at once."""

    def advance(self) -> tuple[bool, float]:
        """Run a stretch; return whether all is over, and the time at its end [s]."""


class Deployment:
    """Replicas, a prefill pool if there is one, and the clock that they share.

    Args:
        replay, policy, requests, tickets, recorder, hardware: of the run.
        serving: what to deploy.
        slots: most requests at once in a replica.
        seed: of the router.
        observer: told about every round.
        compiled: run the compiled step (:mod:`dspark_sim.engine.fast` says when it can).
    """

    def __init__(
        self,
        *,
        replay: Replay,
        policy: Policy,
        requests: Requests,
        tickets: Tickets,
        recorder: Recorder,
        hardware: Hardware,
        serving: Serving,
        slots: int,
        seed: int,
        observer: Observer | None = None,
        compiled: bool = False,
    ) -> None:
        self.env = simpy.Environment()
        self._requests, self._tickets, self._recorder = requests, tickets, recorder
        self._hardware, self._prefill = hardware, serving.check()
        self._source: Source | None = None
        common = (replay, requests, tickets, recorder)
        service = Service(*common, self._prefill, self._completed, observer=observer)
        most_tokens = slots * (1 + replay.gamma)
        if self._prefill.kind == "mixed":
            most_tokens += self._prefill.budget
        cost = StepCost(hardware.profile, slots, most_tokens)
        believed = cost
        if hardware.believed is not hardware.profile:
            believed = StepCost(hardware.believed, slots, most_tokens)
        ledgers = [hardware.ledger(replay.lookahead) for _ in range(serving.replicas)]
        self.cost, self.believed = cost, believed
        self._compiled: list[CompiledReplica] = []
        if compiled:
            from dspark_sim.engine.compiled.machine import compile_replicas

            self._compiled = compile_replicas(service, policy, cost, believed, slots, ledgers)
        self.replicas: Sequence[Replica | CompiledReplica] = self._compiled or [
            Replica(
                i, service, Decider(replay, policy, cost=cost, believed=believed, slots=slots), slots, ledger
            )
            for i, ledger in enumerate(ledgers)
        ]
        groups = [self.replicas] if serving.lockstep else [[replica] for replica in self.replicas]
        router = ROUTERS[serving.router]
        self._decode = self._front = Pool(self.env, groups, router(seed))
        if self._prefill.workers:
            alone = Service(*common, separate(budget=self._prefill.budget), self._completed, self._hand_over)
            cost = StepCost(hardware.pool, 1, 1)
            decider = Decider(replay, policy, cost=cost, believed=cost, slots=0)
            numbers = range(serving.replicas, serving.replicas + self._prefill.workers)
            workers = [[Replica(n, alone, decider, slots, None)] for n in numbers]
            self._front = Pool(self.env, workers, router(seed))
        gpus, pool_gpus = hardware.profile.num_gpus, hardware.pool.num_gpus
        self.num_gpus = gpus * serving.replicas + pool_gpus * self._prefill.workers

    def start_in_mid_text(self, request: IntArray, row: IntArray) -> int:
        """Deal out requests whose earlier steps lie before the run; return how many found room."""
        count = len(self.replicas)
        dealt = [(request[i::count], row[i::count]) for i in range(count)]
        return sum(r.start_in_mid_text(*some) for r, some in zip(self.replicas, dealt, strict=True))

    def send(self, tickets: IntArray) -> None:
        """Let requests in at the front."""
        self._front.send(tickets)

    def run(self, source: Source, check: bool) -> None:
        """Serve what ``source`` sends until the recorder has what was wanted."""
        self._source = source
        over = self.env.event()
        for replica in self._compiled:
            replica.attach(source, alone=len(self._compiled) == 1)
        if len(self._compiled) == 1:
            self.run_ahead(self._compiled[0])
            return
        if self._is_alone:
            self.run_ahead(Alone(cast(Replica, self.replicas[0]), source, self._recorder, check))
            return
        for pool in dict.fromkeys((self._front, self._decode)):
            for g, group in enumerate(pool.groups):
                self.env.process(self._serve(pool, g, group, over, check))
        self.env.run(until=over)
        self._recorder.flush()

    @property
    def _is_alone(self) -> bool:
        """Whether one replica does everything: nobody else's event falls between its steps."""
        return len(self.replicas) == 1 and self._front is self._decode

    def run_ahead(self, engine: RunsAhead) -> None:
        """Run an engine that is alone: nobody else's event falls between its steps."""
        self.env.run(until=self.env.process(self._run_ahead(engine)))
        self._recorder.flush()

    def _run_ahead(self, engine: RunsAhead) -> Generator[simpy.Event, Any, None]:
        """Carry time for it: one event for every stretch that it runs ahead."""
        done = False
        while not done:
            done, now_s = engine.advance()
            yield self.env.timeout(max(0.0, now_s - self.env.now))

    def _serve(
        self,
        pool: Pool,
        number: int,
        group: Sequence[Replica | CompiledReplica],
        over: simpy.Event,
        check: bool,
    ) -> Generator[simpy.Event, Any, None]:
        """Carry time for one group: one event an engine step, or for each wait without work."""
        env, recorder, source = self.env, self._recorder, self._source
        assert source is not None
        source.let_in(env.now)
        while not recorder.done:
            start_s = env.now
            working = [replica for replica in group if replica.begin(start_s)]
            if not working:
                if not recorder.done:
                    yield pool.rest(number, source.next_s)
                    source.let_in(env.now)
                continue
            step_s = max([replica.decide() for replica in working])
            yield env.timeout(step_s)
            source.let_in(env.now)
            for replica in working:
                replica.commit(start_s, step_s, env.now)
                if check:
                    replica.check_laws()
        if not over.triggered:
            over.succeed()

    def _completed(self, count: int, now_s: float) -> None:
        assert self._source is not None
        self._source.completed(count, now_s)

    def _hand_over(self, ticket: int) -> None:
        prompt_tokens = int(self._requests.prompt_tokens_Q[self._tickets.request_K[ticket]])
        moved = self.env.timeout(self._hardware.transfer_s(self._prefill, prompt_tokens))
        moved.callbacks.append(lambda _: self._decode.send(np.array([ticket])))
