"""A pair small enough that every law about it can be written out: categorical tables, five tokens.

The target is a second-order chain; the drafter knows four of the five tokens, and like a DSpark block
with a Markov head it sees the anchor, the position in the block, and its previous draft token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from dspark_sim.model.sampling import draw, probabilities
from dspark_sim.model.verify import PAST_END, TextAhead, verify

V = 5
GAMMA = 3
START = 0

#: (confidences [N, G], draft indices [N, G]) -> verify_len [N]
Rule = Callable[[Tensor, Tensor], Tensor]


def full(confidence_NG: Tensor, drafted_NG: Tensor) -> Tensor:
    return torch.full((len(confidence_NG),), GAMMA)


@dataclass
class TablePair:
    p_VVV: Tensor  # [before, previous, next]
    q_GVVW: Tensor  # [position, anchor, previous, draft index]
    confidence_GVV: Tensor  # [position, anchor, previous]
    draft_ids_W: Tensor
    index_V: Tensor

    def text(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        """``count`` texts of the target alone: START, then ``length`` tokens [N, 1 + length]."""
        y = torch.full((count, length + 1), START)
        before = y[:, 0]
        for j in range(length):
            y[:, j + 1] = draw(self.p_VVV[before, y[:, j]], torch.rand(count, generator=generator))
            before = y[:, j]
        return y

    def block(self, anchor_N: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draft freely: draft indices [N, G], their distributions [N, G, W], confidences [N, G]."""
        x, q, c, previous = [], [], [], anchor_N
        for j in range(GAMMA):
            q.append(self.q_GVVW[j, anchor_N, previous])
            c.append(self.confidence_GVV[j, anchor_N, previous])
            x.append(draw(q[-1], torch.rand(len(anchor_N), generator=generator)))
            previous = self.draft_ids_W[x[-1]]
        return torch.stack(x, 1), torch.stack(q, 1), torch.stack(c, 1)

    def targets(self, before_N: Tensor, anchor_N: Tensor, drafted_NG: Tensor) -> Tensor:
        """Target distributions [N, G + 1, V] after the anchor and after each draft token."""
        seen = torch.cat([before_N[:, None], anchor_N[:, None], self.draft_ids_W[drafted_NG]], 1)
        return self.p_VVV[seen[:, :-1], seen[:, 1:]]

    def ahead(self, y_NL: Tensor, anchor: int) -> TextAhead:
        """What follows token ``anchor`` of texts ``y_NL``, as the recorder lays it out."""
        count, length = y_NL.shape
        before = torch.cat([torch.full((count, 1), START), y_NL], 1)
        p_NLV = self.p_VVV[before[:, :-1], y_NL]
        index = torch.full((count, GAMMA), PAST_END)
        p_of_text = torch.zeros(count, GAMMA)
        for j in range(min(GAMMA, length - 1 - anchor)):
            token = y_NL[:, anchor + 1 + j]
            index[:, j] = self.index_V[token]
            p_of_text[:, j] = p_NLV[torch.arange(count), anchor + j, token]
        place = torch.arange(count) * length + anchor
        return TextAhead(index, p_of_text, place, p_NLV[..., self.draft_ids_W].flatten(0, 1))

    def decode(
        self, count: int, length: int, rule: Rule, generator: torch.Generator, verifier: Callable = verify
    ) -> Tensor:
        """Speculative decoding of ``count`` texts in lockstep: START, then ``length`` tokens."""
        y = torch.full((count, length + GAMMA + 2), START)
        at = torch.ones(count, dtype=torch.long)  # column of the anchor; column 0 is what is before START
        while bool((run := at < length + 1).any()):
            rows = run.nonzero()[:, 0]
            before, anchor = y[rows, at[rows] - 1], y[rows, at[rows]]
            x, q, c = self.block(anchor, generator)
            done = verifier(
                self.targets(before, anchor, x), q, x, rule(c, x), draft_ids_W=self.draft_ids_W,
                uniform_RU=torch.rand(len(rows), GAMMA + 1, generator=generator),
            )  # fmt: skip
            for j in range(GAMMA):
                keep = (done.accepted_R > j) & (at[rows] + 1 + j <= length + 1)
                y[rows[keep], at[rows[keep]] + 1 + j] = self.draft_ids_W[x[keep, j]]
            at[rows] += done.accepted_R + 1
            y[rows, at[rows].clamp_max(length + GAMMA + 1)] = done.next_R
            y[:, length + 2 :] = START
        return y[:, 1 : length + 2]

    def text_law(self, length: int) -> np.ndarray:
        """Exact probability of each text, flat over V ** length cells."""
        p = self.p_VVV.double().numpy()
        p = p / p.sum(-1, keepdims=True)
        law = np.zeros((V,) * length)
        for y in product(range(V), repeat=length):
            seen = (START, START, *y)
            law[y] = np.prod([p[seen[i], seen[i + 1], seen[i + 2]] for i in range(length)])
        return law.ravel()


def cells(y: Tensor, base: int = V) -> np.ndarray:
    """Each row of ``y`` [N, L] as one number in mixed radix ``base``."""
    code = torch.zeros(len(y), dtype=torch.long)
    for column in y.T:
        code = code * base + column
    return code.numpy()


def make_pair(seed: int, temperature: float) -> TablePair:
    g = torch.Generator().manual_seed(seed)
    draft_ids = torch.tensor([0, 1, 3, 4])
    index = torch.full((V,), len(draft_ids))
    index[draft_ids] = torch.arange(len(draft_ids))
    p = torch.randn(V, V, V, generator=g)
    q = torch.randn(GAMMA, V, V, len(draft_ids), generator=g)
    q = q + p[:, :, draft_ids].mean(0)  # a drafter that has learned something
    return TablePair(
        probabilities(p, temperature), probabilities(q, temperature),
        torch.rand(GAMMA, V, V, generator=g), draft_ids, index,
    )  # fmt: skip


Round = tuple[tuple[int, ...], int, tuple[int, ...], float]


def forward_law(pair: TablePair, length: int) -> Iterator[Round]:
    """Every (draft block, accepted, text) of one live full-block round from START, with its probability.

    Written out from the rule of rejection sampling alone, in plain loops; the text goes on from the
    target after the round. ``accepted`` respects the end of the text.
    """
    p, q = pair.p_VVV.double().numpy(), pair.q_GVVW.double().numpy()
    ids = pair.draft_ids_W.tolist()
    for x in product(range(len(ids)), repeat=GAMMA):
        tokens = [ids[i] for i in x]
        seen = [START, START, *tokens]
        q_of = [q[j, START, seen[j + 1], x[j]] for j in range(GAMMA)]
        draft = np.prod(q_of)
        passed = 1.0
        for accepted in range(GAMMA + 1):
            here = p[seen[accepted], seen[accepted + 1]]
            if accepted < GAMMA:
                q_V = np.zeros(V)
                q_V[ids] = q[accepted, START, seen[accepted + 1]]
                take = min(1.0, here[tokens[accepted]] / q_of[accepted])
                left = np.maximum(here - q_V, 0)
                here, weight = (left / left.sum() if take < 1 else here), passed * (1 - take)
                passed *= take
            else:
                weight = passed
            if weight > 0:
                yield from _texts(p, x, accepted, tokens, here, draft * weight, length)


def _texts(p, x, accepted, tokens, next_V, weight, length):
    known = tokens[:accepted][:length]
    for rest in product(range(V), repeat=length - len(known)):
        y, mass = [START, START, *known], weight
        for n, token in enumerate(rest):
            mass *= next_V[token] if n == 0 else p[y[-2], y[-1], token]
            y.append(token)
        yield x, min(accepted, length), tuple(y[2:]), mass
