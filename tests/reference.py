"""A brute-force simulator in plain Python loops: what the engine must equal, token for token.

Users are objects with a request, a waiting queue is a queue, survivals are multiplied one by one,
lagged blocks are looked up in each request's own history, and the rules are written as the papers
have them. No vector operations, no SimPy, nothing shared with the engine but the named streams (the
same draws), the trace's calibrated confidences, and the step cost asked for one batch at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dspark_sim.hardware.cost import StepCost
from dspark_sim.rng import stream


@dataclass
class Request:
    row: int
    length: int
    prompt: int
    anchor: int
    start_s: float | None  # None: started in mid-text
    history: dict = field(default_factory=dict)  # step -> (anchor, verify_len)
    rounds: int = 0


@dataclass
class Records:
    steps: list = field(default_factory=list)  # start_s, step_s, R, B, verified, accepted, committed
    requests: list = field(default_factory=list)  # row, start_s, end_s, tokens, rounds
    completed: int = 0
    rounds: list = field(default_factory=list)  # verify_len, accepted


def grid(x: float) -> float:
    return round(x * 2**24) / 2**24


class Texts:
    """The trace as lists, cut at ``limit`` tokens."""

    def __init__(self, trace, drafter, limit) -> None:
        self.offset = trace.offset_Q1.tolist()
        self.prompt = trace.prompt_tokens_Q.tolist()
        self.length = [n if limit is None else min(n, limit) for n in trace.output_tokens_Q.tolist()]
        self.gamma = drafter.gamma
        self._accepted = drafter.accepted_N.tolist()
        self._confidence = drafter.confidence_NG().tolist() if drafter.has_confidence else None
        self._free = drafter.confidence_NG(free=True).tolist() if drafter.has_confidence else None

    def accepted(self, request: Request) -> int:
        return min(
            self._accepted[self.offset[request.row] + request.anchor], request.length - 1 - request.anchor
        )

    def visited(self, row: int) -> list[int]:
        """Anchors of text ``row`` from which rounds of a full-block verification start."""
        anchors, anchor = [], 0
        while anchor < self.length[row] - 1:
            anchors.append(anchor)
            anchor += self._accepted[self.offset[row] + anchor] + 1
        return anchors

    def confidence(self, request: Request) -> list[float]:
        return self._confidence[self.offset[request.row] + request.anchor]

    def survival(self, request: Request) -> list[float]:
        return products(self.confidence(request))

    def lagged(self, request: Request, step: int) -> list[float]:
        """What the step number ``step`` reveals: coupled up to verify_len + 1, free beyond, 1 if absent."""
        if step not in request.history:
            return [1.0] * self.gamma
        anchor, verified = request.history[step]
        place = self.offset[request.row] + anchor
        mixed = []
        for j in range(1, self.gamma + 1):
            source = self._confidence if j <= verified + 1 else self._free
            mixed.append(source[place][j - 1])
        return products(mixed)


def products(confidences: list[float]) -> list[float]:
    survivals, running = [], 1.0
    for c in confidences:
        running *= c
        survivals.append(grid(running))
    return survivals


def by_survival(survivals: list[list[float]]) -> list[tuple[int, int]]:
    """Candidates (request, position): survival descending, then position, then request."""
    candidates = [(r, j) for r in range(len(survivals)) for j in range(len(survivals[r]))]
    return sorted(candidates, key=lambda c: (-survivals[c[0]][c[1]], c[1], c[0]))


def lengths_of(admitted: list[tuple[int, int]], num_running: int) -> list[int]:
    lengths = [0] * num_running
    for r, j in admitted:
        assert lengths[r] == j, "admitted tokens are a prefix of every block"
        lengths[r] += 1
    return lengths


def algorithm_1(survivals: list[list[float]], step_s) -> list[int]:
    """The literal Algorithm 1; ``step_s(m)`` is the cost of verifying m draft tokens in all."""
    tau, admitted = float(len(survivals)), []
    best = tau / step_s(0)
    for r, j in by_survival(survivals):
        tau += survivals[r][j]
        theta = tau / step_s(len(admitted) + 1)
        if theta > best:
            best = theta
            admitted.append((r, j))
        else:
            break
    return lengths_of(admitted, len(survivals))


def asynchronous(survivals: list[list[float]], lagged: list[list[float]], step_s) -> list[int]:
    """The budget by global search over lagged survivals, its tokens by current ones."""
    tau, budget = float(len(lagged)), 0
    best = tau / step_s(0)
    for m, (r, j) in enumerate(by_survival(lagged), start=1):
        tau += lagged[r][j]
        if tau / step_s(m) > best:
            best, budget = tau / step_s(m), m
    return lengths_of(by_survival(survivals)[:budget], len(survivals))


def prefix_above(values: list[float], at: float) -> int:
    for j, value in enumerate(values):
        if value < at:
            return j
    return len(values)


class Reference:
    """One run. ``policy`` is a parsed policy: its name, options and lag are read, its code is not."""

    def __init__(
        self, trace, profile, policy, *, concurrency, output_tokens, seed, believed=None, requests=None,
        max_output_tokens=None, warmup_fraction=None,
    ) -> None:  # fmt: skip
        drafter = trace.drafter(None)
        self.texts = Texts(trace, drafter, max_output_tokens)
        self.policy = policy
        self.slots = min(concurrency, profile.max_num_seqs or concurrency)
        most = self.slots * (1 + drafter.gamma)
        self.cost = StepCost(profile, self.slots, most)
        self.believed = StepCost(believed or profile, self.slots, most)
        self.kind = policy.info.draft_kind or drafter.kind
        self.passes = (
            policy.options.get("k", drafter.gamma) if self.kind in ("mtp", "eagle") else drafter.gamma
        )
        self.finite = requests
        self.seed = seed
        self.wanted = None if requests else output_tokens
        if requests:
            self.warmup = 0
        elif warmup_fraction is None:
            self.warmup = self.slots * max(n - 1 for n in self.texts.length)
        else:
            self.warmup = warmup_fraction * output_tokens
        self.source = self.draw()
        self.running: list[Request | None] = [None] * self.slots
        self.waiting: deque[Request] = deque()
        self.records = Records()
        self.now = 0.0
        self.step = 0
        self.measured = 0
        self.measuring = self.warmup <= 0
        for user in range(concurrency):
            if requests is None and user < self.slots:
                continue
            self.send()
        if requests is None:
            self.start_in_mid_text()

    def draw(self):
        """The requests that users send, in order."""
        rng, sent = stream(self.seed, "requests"), 0
        while True:
            for row in rng.permutation(len(self.texts.length)).tolist():
                if self.finite is not None and sent == self.finite:
                    return
                sent += 1
                yield Request(row, self.texts.length[row], self.texts.prompt[row], 0, None)

    def send(self) -> None:
        request = next(self.source, None)
        if request is not None:
            self.waiting.append(request)

    def start_in_mid_text(self) -> None:
        places = [(q, i) for q in range(len(self.texts.length)) for i in self.texts.visited(q)]
        for slot, place in enumerate(stream(self.seed, "start").integers(len(places), size=self.slots)):
            row, anchor = places[place]
            self.running[slot] = Request(row, self.texts.length[row], self.texts.prompt[row], anchor, None)

    def admit(self) -> None:
        """Fill the empty slots in order; a text of one token is done at once and takes none."""
        while None in self.running and self.waiting:
            request = self.waiting.popleft()
            request.start_s = self.now
            if request.length == 1:
                self.finish(request)
            else:
                self.running[self.running.index(None)] = request
        self.running = [r for r in self.running if r is not None]

    def free_finished(self) -> None:
        for slot, request in enumerate(self.running):
            if request is not None and request.anchor == request.length - 1:
                self.running[slot] = None
                self.finish(request)

    def finish(self, request: Request) -> None:
        self.send()
        if self.measuring:
            self.records.completed += 1
            if request.start_s is not None:
                entry = (request.row, request.start_s, self.now, request.length, request.rounds)
                self.records.requests.append(entry)

    def cost_s(self, cost: StepCost, drafts: int) -> float:
        running = len(self.running)
        kv_tokens = sum(r.prompt + r.anchor + 1 for r in self.running)
        draft_s = cost.draft_s(self.kind, running, self.passes)
        return cost.step_s(running + drafts, running, kv_tokens, draft_s, self.policy.synchronous)

    def decide(self) -> list[int]:
        name, options, running = self.policy.info.name, self.policy.options, len(self.running)
        if name == "off":
            return [0] * running
        if name in ("static", "mtp"):
            return [options["k"]] * running
        if name == "full":
            return [self.texts.gamma] * running
        if name == "threshold":
            values = self.texts.survival if options["on"] == "survival" else self.texts.confidence
            return [prefix_above(values(r), options["at"]) for r in self.running]
        survivals = [self.texts.survival(r) for r in self.running]
        if name == "dspark":
            return algorithm_1(survivals, lambda m: self.cost_s(self.believed, m))
        lagged = survivals
        if self.policy.lag:
            lagged = [self.texts.lagged(r, self.step - self.policy.lag) for r in self.running]
        return asynchronous(survivals, lagged, lambda m: self.cost_s(self.believed, m))

    def one_step(self) -> None:
        lengths = self.decide()
        start_s, step_s = self.now, self.cost_s(self.cost, sum(lengths))
        self.now += step_s
        verified = accepted = committed = 0
        rounds = []
        for request, length in zip(self.running, lengths, strict=True):
            hit = min(length, self.texts.accepted(request))
            moved = min(hit + 1, request.length - 1 - request.anchor)
            request.history[self.step] = (request.anchor, length)
            request.anchor += moved
            request.rounds += 1
            verified, accepted, committed = verified + length, accepted + hit, committed + moved
            rounds.append((length, hit))
        self.step += 1
        self.free_finished()
        if self.measuring:
            entry = (start_s, step_s, len(lengths), len(lengths) + verified, verified, accepted, committed)
            self.records.steps.append(entry)
            self.records.rounds += rounds
            self.measured += committed
        else:
            self.warmup -= committed
            self.measuring = self.warmup <= 0

    def run(self) -> Records:
        while self.wanted is None or self.measured < self.wanted:
            self.admit()
            if not self.running:
                break
            self.one_step()
        return self.records
