"""Sequential heads: what makes a parallel block depend on the tokens drawn before (MODEL.md).

A head turns the previous token and the block's hidden state into a latent vector z_j in R^r; the
bias on the logits is B_j = W_2 z_j. Shape suffixes: see layers.py; r is the Markov rank.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dspark_sim.errors import InputError

HEAD_KINDS = ("none", "vanilla", "gated", "rnn")


class SequentialHead(nn.Module):
    """The vanilla Markov head, and the base of the others: z_j = W_1[x_{j-1}].

    ``previous`` arguments are rows of W_1: token ids, or with a reduced draft vocabulary the
    indices that ``Drafter.previous_index`` gives (the last row stands for every other token).
    """

    kind = "vanilla"

    def __init__(self, previous_size: int, draft_size: int, rank: int, hidden_size: int) -> None:
        super().__init__()
        self.rank = rank
        self.w1 = nn.Embedding(previous_size, rank)
        self.w2 = nn.Linear(rank, draft_size, bias=False)
        # Starts as no head at all: the backbone learns first, the bias grows from zero.
        nn.init.normal_(self.w1.weight, std=rank**-0.5)
        nn.init.zeros_(self.w2.weight)

    def latent(
        self, j: int, previous: Tensor, hidden_d: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Latent [..., r] of draft position ``j`` (from 0) and the state for the next one."""
        return self.w1(previous), state

    def step(
        self, j: int, previous: Tensor, hidden_d: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Logit bias [..., draft vocabulary] of position ``j`` and the next state.

        Args:
            j: draft position, from 0; positions are taken in order.
            previous: [...] rows of W_1 of the tokens before (the anchor at j = 0).
            hidden_d: [..., d] block hidden states of position ``j``.
            state: what the step before returned; None at j = 0.
        """
        z, state = self.latent(j, previous, hidden_d, state)
        return self.w2(z), state

    def block_latent(self, previous_KG: Tensor, hidden_KGd: Tensor) -> Tensor:
        """Latents [K, G, r] of whole blocks whose tokens are given (teacher forcing)."""
        latents, state = [], None
        for j in range(hidden_KGd.shape[1]):
            z, state = self.latent(j, previous_KG[:, j], hidden_KGd[:, j], state)
            latents.append(z)
        return torch.stack(latents, 1)


class GatedHead(SequentialHead):
    """z_j = sigmoid(W_g [h_j ; W_1[x_{j-1}]] + b_g) * W_1[x_{j-1}]."""

    kind = "gated"

    def __init__(self, previous_size: int, draft_size: int, rank: int, hidden_size: int) -> None:
        super().__init__(previous_size, draft_size, rank, hidden_size)
        self.gate = nn.Linear(hidden_size + rank, rank)

    def latent(
        self, j: int, previous: Tensor, hidden_d: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See the base class."""
        w = self.w1(previous)
        return torch.sigmoid(self.gate(torch.cat((hidden_d, w), -1))) * w, state


class RnnHead(SequentialHead):
    """A gated recurrent state s_j; z_j = tanh(output part of one linear map of [s ; W_1[x] ; h])."""

    kind = "rnn"

    def __init__(self, previous_size: int, draft_size: int, rank: int, hidden_size: int) -> None:
        super().__init__(previous_size, draft_size, rank, hidden_size)
        self.joint = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def latent(
        self, j: int, previous: Tensor, hidden_d: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See the base class."""
        w = self.w1(previous)
        state = torch.zeros_like(w) if state is None else state
        gate, candidate, output = self.joint(torch.cat((state, w, hidden_d), -1)).chunk(3, -1)
        gate = torch.sigmoid(gate)
        return torch.tanh(output), gate * state + (1 - gate) * torch.tanh(candidate)


class NoHead(nn.Module):
    """DFlash: positions of a block do not see each other's tokens; the bias is zero."""

    kind = "none"
    rank = 0

    def step(
        self, j: int, previous: Tensor, hidden_d: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """A zero that broadcasts over the draft vocabulary, [..., 1]."""
        return hidden_d.new_zeros(*previous.shape, 1), None

    def block_latent(self, previous_KG: Tensor, hidden_KGd: Tensor) -> None:
        """None: there is no latent."""
        return


Head = SequentialHead | NoHead


def make_head(kind: str, previous_size: int, draft_size: int, rank: int, hidden_size: int) -> Head:
    """Build a head.

    Raises:
        InputError: unknown kind, or a rank that does not fit it.
    """
    if kind == "none":
        return NoHead()
    classes = {c.kind: c for c in (SequentialHead, GatedHead, RnnHead)}
    if kind not in classes or rank < 1:
        raise InputError(
            f"head {kind!r} of rank {rank}: kinds are {', '.join(HEAD_KINDS)}, all but none need rank >= 1"
        )
    return classes[kind](previous_size, draft_size, rank, hidden_size)
