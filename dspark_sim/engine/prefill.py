"""How prompts are computed: not here, in decode steps, in steps of their own, or in a pool of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from dspark_sim.hardware.forward import attention_pairs
from dspark_sim.specs import bind, choose

Kind = Literal["none", "mixed", "separate", "disaggregated"]
Tokens = Annotated[int, Ge(1)]

#: Tokens of a step, prompts included: max_num_batched_tokens of vLLM's server, chunked_prefill_size of
#: SGLang, on GPUs of 80 GB.
BUDGET = 8192


@dataclass(frozen=True, slots=True)
class Prefill:
    """What the modes below return.

    Attributes:
        kind: the mode's name.
        budget: tokens of a step that computes prompts.
        workers: engines of the prefill pool.
        hw: profile of such an engine; empty: that of the decode pool.
        gbit_per_s, latency_ms: of moving a prompt's KV from pool to pool.
        label: normalised spec.
    """

    kind: Kind
    budget: int = BUDGET
    workers: int = 0
    hw: str = ""
    gbit_per_s: float = 0.0
    latency_ms: float = 0.0
    label: str = ""


def none() -> Prefill:
    """A decode-only pool: a prompt's KV and its token 0 are there when a slot is."""
    return Prefill("none")


def mixed(*, budget: Tokens = BUDGET) -> Prefill:
    """Chunks of prompts ride in decode steps (vLLM): what the running requests leave of ``budget`` tokens."""
    return Prefill("mixed", budget)


def separate(*, budget: Tokens = BUDGET) -> Prefill:
    """Prompts have steps of their own, of up to ``budget`` tokens, and decodes wait (SGLang)."""
    return Prefill("separate", budget)


def disaggregated(
    *,
    workers: Tokens = 1,
    budget: Tokens = BUDGET,
    hw: str = "",
    gbit_per_s: Annotated[float, Gt(0)] = 400.0,
    latency_ms: Annotated[float, Ge(0)] = 1.0,
) -> Prefill:
    """A pool of ``workers`` engines computes prompts; their KV moves to the decode pool over a link."""
    return Prefill("disaggregated", budget, workers, hw, gbit_per_s, latency_ms)


MODES: dict[str, Callable[..., Prefill]] = {
    "none": none,
    "mixed": mixed,
    "separate": separate,
    "disaggregated": disaggregated,
}


def parse_prefill(spec: str) -> Prefill:
    """Return the mode of a spec such as ``mixed:budget=2048``.

    Raises:
        InputError: an unknown mode or option, or a value out of range.
    """
    mode = choose("prefill", spec.partition(":")[0], MODES)
    bound = bind("prefill", spec, mode)
    chosen: Prefill = mode(**bound.values)
    return replace(chosen, label=bound.label)


@dataclass(slots=True)
class Prompt:
    """An admitted request whose prompt is not computed yet.

    Attributes:
        ticket: the request.
        order: rank of its admission.
        blocks: KV blocks that it holds.
        context: tokens that stand in the cache.
        left: tokens to compute.
    """

    ticket: int
    order: int
    blocks: int
    context: int
    left: int


class Prompts:
    """The prompts under way on one replica, and their chunks in the present step, first come first served.

    Attributes:
        under_way: in order of admission.
        chunks: (prompt, tokens) of this step.
        tokens, pairs: their sums: tokens, and pairs that attention computes.
        room: tokens that this step could still compute.
    """

    def __init__(self) -> None:
        self.under_way: list[Prompt] = []
        self.open_step(0)

    def open_step(self, budget: int) -> None:
        """Plan the next step: the prompts under way share ``budget`` tokens."""
        self.chunks: list[tuple[Prompt, int]] = []
        self.tokens = self.pairs = 0
        self.room = budget
        for prompt in self.under_way:
            self._plan(prompt)

    def add(self, prompt: Prompt) -> None:
        """Take in a prompt, and plan what the step has room for."""
        self.under_way.append(prompt)
        self._plan(prompt)

    def close_step(self) -> list[Prompt]:
        """Note that the planned chunks are computed; return the prompts that are done."""
        done = []
        for prompt, tokens in self.chunks:
            prompt.context += tokens
            prompt.left -= tokens
            if not prompt.left:
                done.append(prompt)
        if done:
            self.under_way = [prompt for prompt in self.under_way if prompt.left]
        self.open_step(0)
        return done

    def _plan(self, prompt: Prompt) -> None:
        tokens = min(prompt.left, self.room)
        if tokens <= 0:
            return
        self.chunks.append((prompt, tokens))
        self.tokens += tokens
        self.pairs += attention_pairs(tokens, prompt.context)
        self.room -= tokens
