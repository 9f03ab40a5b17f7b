"""What the profiler times: the parts of a step of live speculative decoding, each as a function.

Shape suffixes: R requests, T tokens a request, N = R * T, G gamma, V vocabulary, W draft vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.hardware.measure_plan import Point
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafting import BlockStep, cached, draft_freely
from dspark_sim.model.layers import KVCache, attend
from dspark_sim.model.sampling import probabilities
from dspark_sim.model.target import Target
from dspark_sim.model.verify import verify

Work = Callable[[], object]
#: Sampling temperature of target and drafter; the cost of a draw does not depend on it (but 0 is cheaper).
TEMPERATURE = 0.7


def refuse_what_does_not_fit(points: Sequence[Point], target: Target, gamma: int) -> None:
    """Refuse sizes that the target was not made for, or whose caches would take most of the memory.

    Args:
        points: to be timed.
        target: whose caches they fill.
        gamma: tokens of a block.

    Raises:
        InputError: a point past the target's positions, or one that takes more than half of a CPU's memory.
    """
    config = target.config
    longest = max(points, key=lambda p: p.context + p.tokens)
    if longest.context + longest.tokens + gamma + 1 > config.max_positions:
        raise InputError(
            f"{longest.context + longest.tokens} tokens of one request: {config.name} was made for "
            f"{config.max_positions}, a block of {gamma} included; give shorter --contexts"
        )
    if target.device.type != "cpu":
        return
    cached = 2 * config.num_layers * config.block.kv_width * target.dtype.itemsize
    logits = config.vocab_size * target.dtype.itemsize

    def needs(point: Point) -> int:
        own = point.requests * point.tokens
        return (own + point.requests * point.context) * cached + own * logits

    largest = max(points, key=needs)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needs(largest) > memory / 2:
        raise InputError(
            f"{largest.requests} requests of {largest.tokens} tokens after {largest.context}: KV cache and "
            f"logits take {needs(largest) / 2**30:.0f} GiB, this machine has {memory / 2**30:.0f}; give "
            "fewer --requests, --tokens or --contexts"
        )


@dataclass(frozen=True, slots=True)
class _Room:
    """Caches that a point runs in; what they hold does not matter for time."""

    target: KVCache
    context: KVCache | None


def _place(point: Point) -> str:
    """Return which caches a point runs in: many rows, one long row, or both in measure."""
    return {"verify": "wide", "own": "wide", "prefill": "long"}.get(point.part, "deep")


class Workbench:
    """Builds the work of a point. Caches are made once, as large as the largest of their points needs.

    Args:
        target: the target, on the device that is timed.
        drafter: bound to the target; None times the target alone.
        points: everything that will be asked for.
        seed: of the random tokens, states and uniform numbers.
        further: drafters of other kinds, by kind, whose blocks are timed.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        points: list[Point],
        seed: int,
        further: Mapping[str, Drafter] | None = None,
    ) -> None:
        self.target, self.drafter, self.further = target, drafter, dict(further or {})
        self._random = torch.Generator().manual_seed(seed)
        self._taps = list(drafter.config.target_layer_ids) if drafter else None
        self._rooms: dict[str, _Room] = {}
        for place in {_place(p) for p in points}:
            self._rooms[place] = self._room([p for p in points if _place(p) == place])

    def work(self, point: Point) -> Work:
        """Return the function to time at ``point``: nothing in it depends on an earlier call."""
        parts: dict[str, Callable[[Point], Work]] = {
            "verify": self._forward,
            "own": self._attention,
            "prefill": self._prefill,
            "attention": self._attention,
            "draft": self._draft,
            "sample": self._sample,
            "check": self._whole_step,
        }
        return parts[point.part](point)

    def graph_work(self, point: Point) -> Work:
        """Return the same as one captured CUDA graph (passes and attention); calling it replays."""
        body = self._forward(point, placed=True) if point.part == "verify" else self._attention(point)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                body()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        return graph.replay

    def _room(self, points: list[Point]) -> _Room:
        gamma = self.drafter.config.gamma if self.drafter else 0
        rows = max(p.requests for p in points)
        capacity = max(p.context + p.tokens for p in points) + gamma + 1
        context = self.drafter.new_cache(rows, capacity) if self.drafter else None
        return _Room(self.target.new_cache(rows, capacity), context)

    def _ids(self, *shape: int) -> Tensor:
        ids = torch.randint(self.target.config.vocab_size, shape, generator=self._random)
        return ids.to(self.target.device)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._random).to(self.target.device)

    def _positions(self, point: Point) -> Tensor:
        tokens = torch.arange(point.context, point.context + point.tokens, device=self.target.device)
        return tokens.expand(point.requests, -1)

    def _rows(self, point: Point) -> Tensor:
        return torch.arange(point.requests, device=self.target.device)

    def _cache(self, point: Point) -> _Room:
        return self._rooms[_place(point)]

    def _forward(self, point: Point, placed: bool = False) -> Work:
        """The target's pass over R x T tokens, LM head on each; ``placed`` leaves the host's part out."""
        ids, positions, rows = (
            self._ids(point.requests, point.tokens),
            self._positions(point),
            self._rows(point),
        )
        cache = self._cache(point).target
        at = self.target.place(positions, cache, rows)

        def work() -> Tensor:
            where = at if placed else self.target.place(positions, cache, rows)
            return self.target.logits(self.target.run(ids, where, cache, self._taps).hidden_RTd)

        return work

    def _prefill(self, point: Point) -> Work:
        """A prompt: states of all tokens, logits of the last, the drafter's context."""
        ids, positions, rows = (
            self._ids(point.requests, point.tokens),
            self._positions(point),
            self._rows(point),
        )
        room = self._cache(point)

        def work() -> Tensor:
            out = self.target(ids, positions, room.target, rows, self._taps)
            if self.drafter and room.context and out.taps_RTmd is not None:
                self.drafter.extend_context(out.taps_RTmd, positions, room.context, rows)
            return probabilities(self.target.logits(out.hidden_RTd[:, -1]), TEMPERATURE)

        return work

    def _attention(self, point: Point) -> Work:
        """Attention of every layer over that context and the T queries of a request themselves."""
        shape, cache, length = (
            self.target.config.block,
            self._cache(point).target,
            point.context + point.tokens,
        )
        size = (point.requests, point.tokens, shape.num_heads, shape.head_dim)
        q_RTHD = torch.randn(size, generator=self._random).to(self.target.device, self.target.dtype)
        rows = slice(0, point.requests)
        mask_RTL = torch.ones(point.requests, point.tokens, length, dtype=torch.bool, device=q_RTHD.device)

        def work() -> None:
            for layer in range(self.target.config.num_layers):
                attend(q_RTHD, *cache.read(layer, rows, length), mask_RTL)

        return work

    def _draft(self, point: Point) -> Work:
        """A block a request: the passes, the serial loop with its draws, the confidences."""
        rows = self._rows(point)
        drafter = self.further[point.drafter] if point.drafter else self.drafter
        assert drafter is not None
        gamma = drafter.config.gamma
        context = (
            drafter.new_cache(point.requests, point.context + gamma + 1)
            if point.drafter
            else self._cache(point).context
        )
        assert context is not None
        anchor, position = self._ids(point.requests), torch.full_like(rows, point.context)
        uniform = self._uniform(point.requests, gamma)

        def work() -> object:
            backbone = cached(drafter, anchor, position, context, rows)
            return draft_freely(BlockStep(drafter, backbone, TEMPERATURE, 1.0), anchor, uniform)

        return work

    def _sample(self, point: Point) -> Work:
        """What follows the pass: distributions, rejection sampling, the drafter's context of all tokens."""
        drafter, positions, rows = self.drafter, self._positions(point), self._rows(point)
        assert drafter is not None
        context, config = self._cache(point).context, self.target.config
        assert context is not None
        device, vocab = self.target.device, config.vocab_size
        logits = torch.randn(point.requests * point.tokens, vocab, generator=self._random).to(device)
        q_RGW = torch.rand(
            point.requests, drafter.config.gamma, len(drafter.draft_ids), generator=self._random
        )
        q_RGW = (q_RGW / q_RGW.sum(-1, keepdim=True)).to(device)
        drafted = torch.zeros(point.requests, drafter.config.gamma, dtype=torch.long, device=device)
        uniform, length = self._uniform(point.requests, point.tokens), torch.full_like(rows, point.tokens - 1)
        taps = torch.randn(point.requests, point.tokens, len(self._taps or ()), config.hidden_size)
        taps = taps.to(device, self.target.dtype)

        valid_RT = torch.ones(point.requests, point.tokens, dtype=torch.bool, device=device)

        def work() -> object:
            p_RTV = torch.zeros(point.requests, point.tokens, vocab, device=device)
            p_RTV[valid_RT] = probabilities(logits, TEMPERATURE)
            done = verify(p_RTV, q_RGW, drafted, length, draft_ids_W=drafter.draft_ids, uniform_RU=uniform)
            drafter.extend_context(taps, positions, context, rows)
            return done

        return work

    def _whole_step(self, point: Point) -> Work:
        """Everything above at once, as a step of live decoding runs it."""
        parts = [self._forward(point)]
        if self.drafter:
            parts = [self._draft(point), *parts, self._sample(point)]

        def work() -> None:
            for part in parts:
                part()

        return work
