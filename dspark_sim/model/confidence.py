"""The confidence head: how likely draft token j is accepted, said before it is drawn (MODEL.md).

Shape suffixes: d hidden, r Markov rank, V draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dspark_sim.errors import InputError

#: How many numbers ``draft_statistics`` gives.
STATISTICS = 5
_LEAST = 1e-6


def draft_statistics(logits: Tensor) -> Tensor:
    """How peaked a draft distribution is, [..., 5] from its logits [..., V]; no gradient.

    Of q = softmax(logits), at temperature 1 whatever the pair serves at: log-odds and value of the largest
    probability, log of the second, entropy [nats], log of the sum of squares. A linear map of the hidden
    state can compute none of them, and acceptance hangs on them more than on anything else. q_j is known
    before x_j is drawn, so a confidence that reads them looks at x_1 .. x_{j-1} and no further, as before.
    """
    with torch.no_grad():
        log_q = logits.float().log_softmax(-1)
        q = log_q.exp()
        first, second = log_q.topk(2, -1).values.unbind(-1)
        largest = first.exp().clamp(_LEAST, 1 - _LEAST)
        entropy = -(q * log_q.clamp_min(-1e4)).sum(-1)
        squares = q.square().sum(-1).log()
        return torch.stack((largest.logit(), largest, second.clamp_min(-14.0), entropy, squares), -1)


class ConfidenceHead(nn.Module):
    """logit c_j = w^T [h_j ; W_1[x_{j-1}]] + b; without Markov features w^T h_j + b.

    With ``statistics`` (an extension of ours) those of the draft distribution q_j are read as well.
    """

    def __init__(self, hidden_size: int, rank: int, statistics: bool = False) -> None:
        super().__init__()
        self.statistics = statistics
        self.proj = nn.Linear(hidden_size + rank + STATISTICS * statistics, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def features(self, hidden: Tensor, markov: Tensor | None, draft_logits: Tensor | None) -> Tensor:
        """What is read, [..., width].

        Args:
            hidden: h_j [..., d].
            markov: W_1[x_{j-1}] [..., r]; None for a head without Markov features.
            draft_logits: corrected logits of q_j [..., V]; read only with ``statistics``.

        Raises:
            InputError: statistics are to be read, and ``draft_logits`` is None.
        """
        parts = [hidden] if markov is None else [hidden, markov]
        if self.statistics:
            if draft_logits is None:
                raise InputError(
                    "drafter: its confidence head reads statistics of the draft distribution, which are "
                    "there when drafting, not when training: train without them, then refit the head"
                )
            parts.append(draft_statistics(draft_logits).to(hidden.dtype))
        return torch.cat(parts, -1) if len(parts) > 1 else hidden

    def forward(self, features: Tensor) -> Tensor:
        """[..., width] to logits [...]."""
        logits: Tensor = self.proj(features)
        return logits[..., 0]
