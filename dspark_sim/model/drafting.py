"""From block hidden states to drafted tokens: what live decoding and the recorder share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_sim.model.drafter import Drafter
from dspark_sim.model.sampling import draw, probabilities


class BlockStep:
    """Draft distributions of N blocks, one position at a time, left to right (a ``DraftStep``).

    The base logits of a position are shared by all copies of a block that are drafted at once (the
    recorder's coupled and free ones); only the head's bias differs between them.
    """

    def __init__(self, drafter: Drafter, hidden_NGd: Tensor, temperature: float, top_p: float) -> None:
        """Start blocks whose hidden states are ``hidden_NGd``."""
        self.drafter = drafter
        self.hidden_NGd = hidden_NGd
        self.base_NGW = drafter.base_logits(hidden_NGd)
        self.temperature = temperature
        self.top_p = top_p
        self._state: Tensor | None = None

    def __call__(self, j: int, previous_B: Tensor) -> Tensor:
        """Return q [B, W] of position ``j`` after the tokens ``previous_B``; B is N or a multiple of it."""
        count = len(self.hidden_NGd)
        copies = len(previous_B) // count
        if self._state is not None and len(self._state) < len(previous_B):
            self._state = self._state.repeat(copies, 1)  # all copies share the anchor, and so the first state
        hidden_Bd = self.hidden_NGd[:, j].repeat(copies, 1)
        bias, self._state = self.drafter.head_bias(j, previous_B, hidden_Bd, self._state)
        logits = self.base_NGW[:, j] + bias.view(copies, count, -1)
        return probabilities(logits.flatten(0, 1), self.temperature, self.top_p)


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


def draft_freely(
    drafter: Drafter,
    hidden_RGd: Tensor,
    anchor_R: Tensor,
    uniform_RG: Tensor,
    *,
    temperature: float,
    top_p: float,
) -> DraftBlock:
    """Draw a block a row: x_j ~ q_j, each position conditioned on the token drawn before it."""
    step = BlockStep(drafter, hidden_RGd, temperature, top_p)
    previous, index, q = anchor_R, [], []
    for j in range(drafter.config.gamma):
        q.append(step(j, previous))
        index.append(draw(q[-1], uniform_RG[:, j]))
        previous = drafter.to_full(index[-1])
    index_RG = torch.stack(index, 1)
    logits = confidence_logits(drafter, hidden_RGd, anchor_R, drafter.to_full(index_RG))
    return DraftBlock(index_RG, torch.stack(q, 1), logits)


def confidence_logits(
    drafter: Drafter, hidden_NGd: Tensor, anchor_N: Tensor, tokens_NG: Tensor
) -> Tensor | None:
    """Raw confidence logits [N, G] of whole blocks; position j reads the token before it, never its own."""
    if drafter.confidence is None:
        return None
    return drafter.confidence_logits(hidden_NGd, torch.cat([anchor_N[:, None], tokens_NG[:, :-1]], 1))
