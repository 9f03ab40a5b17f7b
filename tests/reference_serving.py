"""A brute-force service in plain Python loops: arrivals, prefill, KV blocks, preemption, replicas, pools.

Requests are objects that carry every anchor of theirs, blocks are counted anew from every request's
length in every step, time is the smallest of all that may happen next. Shared with the engine are
the trace's numbers, the step cost asked for one batch at a time, and the router's random stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from reference import algorithm_1, asynchronous, prefix_above, products

from dspark_sim.hardware.cost import StepCost
from dspark_sim.rng import stream


@dataclass(eq=False)
class Request:
    number: int
    arrival_s: float
    prompt: int
    cached: int
    length: int
    anchors: list  # (row, tokens left in its stretch) of every anchor but the last token
    made: int = 0  # output tokens
    compute: int = 0  # prompt tokens still to compute
    kv: int = 0  # tokens in the cache while it is computed
    admission_s: float = math.nan
    first_s: float = math.nan
    end_s: float = math.nan
    last_s: float = math.nan  # newest token
    rounds: int = 0
    preemptions: int = 0
    replica: int = -1
    order: int = -1
    history: dict = field(default_factory=dict)  # step of its replica -> (anchor, verify_len)

    @property
    def held(self) -> int:
        """KV tokens once it decodes: prompt and output, the anchor included; in prefill, those to come."""
        return self.prompt + self.made + (1 if self.compute else 0)


def requests_of(demand, arrivals, trace):
    made = []
    for q in range(len(demand)):
        anchors = []
        for s in range(demand.stretch_Q1[q], demand.stretch_Q1[q + 1]):
            first, last = int(demand.first_S[s]), int(demand.last_S[s])
            anchors += [(row, last - row) for row in range(first, last)]
        assert len(anchors) == demand.output_tokens_Q[q] - 1
        prompt = int(demand.prompt_tokens_Q[q])
        cached = 0 if demand.cached_prefix_tokens_Q is None else int(demand.cached_prefix_tokens_Q[q])
        made.append(
            Request(q, float(arrivals[q]), prompt, min(cached, prompt - 1), len(anchors) + 1, anchors)
        )
    return made


class Engine:
    """One replica, or one engine of a prefill pool (``moves``: done prompts leave)."""

    def __init__(self, service, index, mode, *, moves=False) -> None:
        self.service, self.index, self.mode, self.moves = service, index, mode, moves
        self.waiting, self.prompts, self.running = [], [], []
        self.step, self.admitted = 0, 0

    def live(self):
        return [r for r in self.running if r is not None]

    def load(self) -> int:
        return len(self.waiting) + len(self.prompts) + len(self.live())

    def need(self, request) -> int:
        return math.ceil((request.held + self.service.ahead) / self.service.block_tokens)

    def used(self) -> int:
        if self.moves or self.service.blocks is None:
            return 0
        return sum(self.need(r) for r in self.live() + self.prompts)

    def begin(self) -> bool:
        service = self.service
        if service.blocks is not None and not self.moves:
            while self.live() and self.used() > service.blocks:
                self.preempt()
        budget = service.prefill.budget
        if self.mode == "mixed":
            budget -= len(self.live()) * (1 + service.ahead)
        self.chunks = []
        for request in self.prompts:
            budget -= self.chunk(request, budget)
        joining = []
        while self.waiting and len(self.live()) + len(self.prompts) + len(joining) < service.slots:
            head = self.waiting[0]
            fresh = head.made == 0
            compute = (head.prompt + head.made - head.cached) if self.computes(head) else 0
            if compute and budget <= 0:
                break
            whole = not compute and head.length == 1
            if not whole and not self.fits(head, compute, joining):
                break
            self.waiting.pop(0)
            head.replica = self.index
            if math.isnan(head.admission_s):
                head.admission_s = service.now
            if fresh and not compute:
                head.made, head.first_s, head.last_s = 1, service.now, service.now
            if whole:
                service.finish(head)
                continue
            head.order, self.admitted = self.admitted, self.admitted + 1
            head.ready = False
            if compute:
                head.compute, head.kv = compute, head.cached
                self.prompts.append(head)
                budget -= self.chunk(head, budget)
            else:
                head.order = math.inf
                joining.append(head)
        for request in joining:  # ranked behind the prompts admitted in the same step
            request.order, self.admitted = self.admitted, self.admitted + 1
            self.place(request)
        self.running = self.live()
        return bool(self.running or self.chunks)

    def computes(self, request) -> bool:
        if request.made == 0 or request.ready:
            return self.mode in ("mixed", "separate") and not request.ready
        return True

    def fits(self, request, compute, joining) -> bool:
        service = self.service
        if service.blocks is None or self.moves:
            return True
        held = request.prompt + request.made + (1 if compute or request.made == 0 else 0)
        need = math.ceil((held + service.ahead) / service.block_tokens)
        used = self.used() + sum(self.need(r) for r in joining)
        return need <= service.blocks - used - service.kept_free or (not used and need <= service.blocks)

    def chunk(self, request, budget) -> int:
        tokens = max(0, min(request.compute, budget))
        if tokens:
            self.chunks.append((request, tokens))
        return tokens

    def place(self, request) -> None:
        request.joined = self.step
        request.history = {}
        if None in self.running:
            self.running[self.running.index(None)] = request
        else:
            self.running.append(request)

    def preempt(self) -> None:
        victim = max(self.live() + self.prompts, key=lambda r: r.order)
        if victim in self.prompts:
            self.prompts.remove(victim)
        else:
            self.running[self.running.index(victim)] = None
        victim.compute, victim.preemptions, victim.ready = 0, victim.preemptions + 1, False
        self.waiting.insert(0, victim)

    def decide(self) -> float:
        service = self.service
        tokens = sum(n for _, n in self.chunks)
        pairs = sum(sum(r.kv + i + 1 for i in range(n)) for r, n in self.chunks)
        self.state = (len(self.running) + len(self.prompts), len(self.waiting), self.used())
        self.decodes = bool(self.running) and (self.mode == "mixed" or not self.chunks)
        if not self.decodes:
            cost = service.pool_cost if self.moves else service.cost
            return cost.prefill_s(tokens, len(self.chunks), pairs)
        self.lengths = self.choose(lambda cost, m: service.step_s(cost, self.running, m, tokens, pairs))
        return service.step_s(service.cost, self.running, sum(self.lengths), tokens, pairs)

    def choose(self, step_s) -> list[int]:
        service, running = self.service, self.running
        name, options = service.policy.info.name, service.policy.options
        if name == "off":
            return [0] * len(running)
        if name in ("static", "mtp"):
            return [options["k"]] * len(running)
        if name == "full":
            return [service.gamma] * len(running)
        values = [service.confidence[self.row(r)] for r in running]
        survivals = [products(v) for v in values]
        if name == "threshold":
            return [
                prefix_above(s if options["on"] == "survival" else v, options["at"])
                for s, v in zip(survivals, values, strict=True)
            ]
        if name == "dspark":
            return algorithm_1(survivals, lambda m: step_s(service.believed, m))
        lag = service.policy.lag
        lagged = [self.lagged(r, self.step - lag) for r in running] if lag else survivals
        return asynchronous(survivals, lagged, lambda m: step_s(service.believed, m))

    def lagged(self, request, step) -> list[float]:
        if step not in request.history:
            return [1.0] * self.service.gamma
        row, verified = request.history[step]
        known, free = self.service.confidence[row], self.service.free[row]
        return products([(known if j <= verified else free)[j] for j in range(self.service.gamma)])

    def row(self, request) -> int:
        return request.anchors[request.made - 1][0]

    def commit(self, start_s, step_s) -> None:
        service, now = self.service, self.service.now
        tokens = sum(n for _, n in self.chunks)
        verified = accepted = committed = 0
        decoding = list(self.running) if self.decodes else []
        for slot, request in enumerate(decoding):
            length = self.lengths[slot]
            row, left = request.anchors[request.made - 1]
            hit = min(length, service.accepted[row], left)
            moved = min(hit + 1, left)
            request.history[self.step] = (row, length)
            request.made += moved
            request.rounds += 1
            service.gaps.append(now - request.last_s)
            request.last_s = now
            verified, accepted, committed = verified + length, accepted + hit, committed + moved
            if request.made == request.length:
                self.running[slot] = None
                service.finish(request)
        self.step += self.decodes
        done = self.advance()
        batch = len(decoding) + verified + tokens
        entry = (start_s, step_s, len(decoding), batch, committed + done, accepted,
                 tokens, done, *self.state, self.index)  # fmt: skip
        service.steps.append(entry)

    def advance(self) -> int:
        service, done = self.service, []
        for request, tokens in self.chunks:
            request.compute -= tokens
            request.kv += tokens
            if not request.compute:
                done.append(request)
        for request in done:
            self.prompts.remove(request)
            if request.made:
                service.gaps.append(service.now - request.last_s)
            else:
                request.first_s = service.now
            request.made, request.last_s = request.made + 1, service.now
            if request.made == request.length:
                service.finish(request)
            elif self.moves:
                service.move(request)
            else:
                self.place(request)
        return len(done)


class Service:
    """One run; ``prefill`` is a parsed mode, ``kv`` (blocks, tokens a block, watermark) or None."""

    def __init__(
        self, trace, demand, arrivals, profile, policy, *, seed, prefill, kv, replicas=1,
        router="round-robin", lockstep=False, believed=None,
    ) -> None:  # fmt: skip
        drafter = trace.drafter(None)
        self.policy, self.prefill, self.profile = policy, prefill, profile
        self.gamma = drafter.gamma
        self.accepted = drafter.accepted_N.tolist()
        self.confidence, self.free = (drafter.confidence_NG(free=f).tolist() for f in (False, True))
        self.kind = policy.info.draft_kind or drafter.kind
        self.passes = policy.options.get("k", self.gamma) if self.kind in ("mtp", "eagle") else self.gamma
        self.ahead = 0 if self.kind == "none" else self.passes
        self.blocks, self.block_tokens, watermark = kv or (None, 1, 0.0)
        self.kept_free = math.ceil(watermark * self.blocks) if kv else 0
        self.slots = min(len(demand), profile.max_num_seqs or len(demand))
        most = self.slots * (1 + self.gamma) + prefill.budget
        self.cost, self.believed = (StepCost(p, self.slots, most) for p in (profile, believed or profile))
        self.pool_cost = StepCost(profile, 1, 1)
        self.refused, self.coming = [], []
        for request in requests_of(demand, arrivals, trace):
            request.ready = False
            most_blocks = math.ceil((request.prompt + request.length - 1 + self.ahead) / self.block_tokens)
            fits = self.blocks is None or most_blocks <= self.blocks
            (self.coming if fits else self.refused).append(request)
        self.engines = [Engine(self, i, prefill.kind) for i in range(replicas)]
        self.pool = [
            Engine(self, replicas + w, "separate", moves=True) for w in range(prefill.workers)
        ]  # fmt: skip
        self.groups = [self.engines] if lockstep else [[e] for e in self.engines]
        self.groups += [[e] for e in self.pool]
        self.router, self.turns, self.random = router, {}, {}
        self.seed = seed
        self.moving, self.done, self.steps, self.gaps = [], [], [], []
        self.now = 0.0

    def route(self, request, engines) -> None:
        key = id(engines)
        if len(engines) == 1:
            chosen = engines[0]
        elif self.router == "round-robin":
            self.turns[key] = self.turns.get(key, -1) + 1
            chosen = engines[self.turns[key] % len(engines)]
        elif self.router == "least-loaded":
            chosen = min(engines, key=lambda e: e.load())
        else:
            random = self.random.setdefault(key, stream(self.seed, "router"))
            one = int(random.integers(len(engines)))
            two = (one + 1 + int(random.integers(len(engines) - 1))) % len(engines)
            chosen = engines[two] if engines[two].load() < engines[one].load() else engines[one]
        chosen.waiting.append(request)

    def move(self, request) -> None:
        kv = self.profile.kv
        size = request.prompt * (kv.bytes_per_token + kv.draft_bytes_per_token)
        delay = self.prefill.latency_ms / 1e3 + size * 8 / (self.prefill.gbit_per_s * 1e9)
        request.ready = True
        self.moving.append((self.now + delay, request))

    def finish(self, request) -> None:
        request.end_s = self.now
        self.done.append(request)

    def step_s(self, cost, running, drafts, tokens, pairs) -> float:
        count, held = len(running), sum(r.prompt + r.made for r in running)
        draft_s = cost.draft_s(self.kind, count, self.passes)
        return cost.step_s(
            count + drafts + tokens, count, held, draft_s, self.policy.synchronous,
            prefill_tokens=tokens, prefill_pairs=pairs,
        )  # fmt: skip

    def run(self):
        busy = {}  # group -> (end, start, duration, engines)
        resting = list(range(len(self.groups)))
        while self.coming or self.moving or busy or any(e.load() for e in self.engines + self.pool):
            times = [b[0] for b in busy.values()] + [t for t, _ in self.moving]
            times += [self.coming[0].arrival_s] if self.coming else []
            if times:
                self.now = min(times)
            while self.coming and self.coming[0].arrival_s <= self.now:
                self.route(self.coming.pop(0), self.pool or self.engines)
            for entry in [m for m in self.moving if m[0] <= self.now]:
                self.moving.remove(entry)
                self.route(entry[1], self.engines)
            for g in [g for g, b in busy.items() if b[0] <= self.now]:  # in the order in which they began
                _, start_s, step_s, engines = busy.pop(g)
                for engine in engines:
                    engine.commit(start_s, step_s)
                if not self.begin(g, busy):
                    resting.append(g)
            resting = [
                g for g in resting if not self.begin(g, busy)
            ]  # in the order in which they came to rest
        return self

    def begin(self, group, busy) -> bool:
        working = [engine for engine in self.groups[group] if engine.begin()]
        if working:
            step_s = max([engine.decide() for engine in working])
            busy[group] = (self.now + step_s, self.now, step_s, working)
        return bool(working)
