"""From a drafter to drafted tokens, one position at a time: what live decoding and the recorder share.

Shape suffixes: N blocks, B rows in flight (N, or N times the copies of each block), R running
requests, G gamma, W draft vocabulary, d hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dspark_sim.model.context import SequenceContext
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.layers import KVCache
from dspark_sim.model.sampling import draw, probabilities
from dspark_sim.model.serial import CachedPasses, SerialDrafter, SharedPasses


class Backbone(Protocol):
    """Hidden states of N blocks, asked for left to right."""

    def run(self, j: int, previous_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden states [B, d] of position ``j``, and base logits [1 or copies, N, W]."""


class ParallelBackbone:
    """One pass gave all positions; copies of a block share hidden states and base logits."""

    def __init__(self, drafter: Drafter, hidden_NGd: Tensor) -> None:
        self.hidden_NGd = hidden_NGd
        self.base_NGW = drafter.base_logits(hidden_NGd)

    def run(self, j: int, previous_B: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Backbone``."""
        copies = len(previous_B) // len(self.hidden_NGd)
        return self.hidden_NGd[:, j].repeat(copies, 1), self.base_NGW[None, :, j]


class SerialBackbone:
    """A pass per position, which reads the token drawn before it; copies differ from position 2 on."""

    def __init__(self, drafter: SerialDrafter, passes: SharedPasses | CachedPasses, count: int) -> None:
        self.drafter = drafter
        self.passes = passes
        self.count = count

    def run(self, j: int, previous_B: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Backbone``."""
        hidden_Bd = self.passes.run(j, previous_B)
        return hidden_Bd, self.drafter.base_logits(hidden_Bd).view(-1, self.count, self._width)

    @property
    def _width(self) -> int:
        return self.drafter.config.draft_vocab_size


def teacher_forced(drafter: Drafter, anchors_N: Tensor, ids_T: Tensor, context: SequenceContext) -> Backbone:
    """Blocks at many anchors (indices into ``ids_T``) of one text."""
    if isinstance(drafter, SerialDrafter):
        return SerialBackbone(drafter, SharedPasses(drafter, anchors_N, context), len(anchors_N))
    return ParallelBackbone(drafter, drafter.block_hidden_at(anchors_N, ids_T, context))


def cached(drafter: Drafter, anchor_R: Tensor, position_R: Tensor, cache: KVCache, row_R: Tensor) -> Backbone:
    """One block a running request, on the context in ``cache``."""
    if isinstance(drafter, SerialDrafter):
        return SerialBackbone(drafter, CachedPasses(drafter, position_R, cache, row_R), len(anchor_R))
    return ParallelBackbone(drafter, drafter.block_hidden(anchor_R, position_R, cache, row_R))


class BlockStep:
    """Draft distributions of N blocks, one position at a time, left to right (a ``DraftStep``).

    Confidences are noted on the way: each position's reads the token before it, never its own.
    """

    def __init__(self, drafter: Drafter, backbone: Backbone, temperature: float, top_p: float) -> None:
        """Start blocks on ``backbone``; ``temperature`` and ``top_p`` shape what is drawn."""
        self.drafter = drafter
        self.backbone = backbone
        self.temperature = temperature
        self.top_p = top_p
        self._state: Tensor | None = None
        self._confidence: list[Tensor] = []

    def __call__(self, j: int, previous_B: Tensor) -> Tensor:
        """Return q [B, W] of position ``j`` after the tokens ``previous_B``; B may grow after position 0."""
        if self._state is not None and len(self._state) < len(previous_B):
            # All copies share the anchor, and so the first state.
            self._state = self._state.repeat(len(previous_B) // len(self._state), 1)
        hidden_Bd, base = self.backbone.run(j, previous_B)
        bias, self._state = self.drafter.head_bias(j, previous_B, hidden_Bd, self._state)
        logits = base + bias.view(-1, base.shape[1], bias.shape[-1])
        if self.drafter.confidence is not None:
            told = self.drafter.confidence_logits(hidden_Bd, previous_B, logits.flatten(0, 1))
            self._confidence.append(told)
        return probabilities(logits.flatten(0, 1), self.temperature, self.top_p)

    def confidence_logits(self, copy: int = 0) -> Tensor | None:
        """Raw confidence logits [N, G] of one copy, when all positions are drafted; None without a head."""
        if not self._confidence:
            return None
        count = len(self._confidence[0])
        rows = [c if len(c) == count else c[copy * count : (copy + 1) * count] for c in self._confidence]
        return torch.stack(rows, 1)


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """One freely drafted block a row.

    Attributes:
        index_RG: draft-vocabulary indices.
        q_RGW: distributions they were drawn from.
        confidence_logit_RG: raw, float32; None without a confidence head.
    """

    index_RG: Tensor
    q_RGW: Tensor
    confidence_logit_RG: Tensor | None


def draft_freely(step: BlockStep, anchor_R: Tensor, uniform_RG: Tensor) -> DraftBlock:
    """Draw a block a row: x_j ~ q_j, each position conditioned on the token drawn before it."""
    previous, index, q = anchor_R, [], []
    for j in range(uniform_RG.shape[1]):
        q.append(step(j, previous))
        index.append(draw(q[-1], uniform_RG[:, j]))
        previous = step.drafter.to_full(index[-1])
    return DraftBlock(torch.stack(index, 1), torch.stack(q, 1), step.confidence_logits())
