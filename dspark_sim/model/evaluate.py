"""How good a drafter is on held-out texts: exactly what a full-block replay would see, without sampling.

Given the text y, position j of a block is accepted with probability min(1, q_j(y_j) / p_j(y_j)) once
those before it were (the backward form of speculative sampling). So the law of the accepted run
is known at every anchor, and with it, by one pass over the text, how likely each anchor is to be
visited. Sums over visited anchors are exact expectations: no random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark_sim.model.corpus import Text
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.losses import IGNORE
from dspark_sim.model.trainset import Blocks, all_anchors, make_blocks, run_blocks


@dataclass(frozen=True, slots=True)
class DraftQuality:
    """Full-block replay of some texts, in expectation.

    Attributes:
        rounds: expected number of rounds.
        tokens: tokens committed (the first output token comes from prefill and is not counted).
        reached_G, accepted_G: expected number of times that position j was reached, and accepted.
    """

    rounds: float
    tokens: int
    reached_G: np.ndarray
    accepted_G: np.ndarray

    @property
    def accepted_len(self) -> float:
        """tau: tokens a round, bonus included."""
        return self.tokens / self.rounds

    @property
    def conditional_G(self) -> np.ndarray:
        """Conditional acceptance by position."""
        rate: np.ndarray = self.accepted_G / np.maximum(self.reached_G, 1e-12)
        return rate

    def __add__(self, other: DraftQuality) -> DraftQuality:
        """Both sets of texts together."""
        return DraftQuality(
            self.rounds + other.rounds,
            self.tokens + other.tokens,
            self.reached_G + other.reached_G,
            self.accepted_G + other.accepted_G,
        )


@torch.no_grad()
def text_quality(drafter: Drafter, text: Text, temperature: float) -> DraftQuality:
    """Replay one text (with features whose log-normalisers are at ``temperature``)."""
    blocks = make_blocks(drafter, [(text, all_anchors(text))])
    hidden_KGd = run_blocks(drafter, blocks)
    log_q_N = _log_q(drafter, hidden_KGd, blocks, temperature)
    label_rows = drafter.lm_head[blocks.labels_N.clamp_min(0)]
    log_p_N = (blocks.target_Nd * label_rows).sum(-1) / temperature - blocks.lse_N
    accept_KG = torch.zeros(blocks.valid_KG.shape, device=hidden_KGd.device)
    accept_KG[blocks.valid_KG] = (log_q_N - log_p_N).clamp_max(0).exp()
    return replay_quality(accept_KG.double().cpu().numpy(), blocks.valid_KG.cpu().numpy())


def _log_q(drafter: Drafter, hidden_KGd: Tensor, blocks: Blocks, temperature: float) -> Tensor:
    """Log q of the text's own tokens, -inf where they cannot be drafted."""
    valid_KG, labels_N = blocks.valid_KG, blocks.labels_N
    log_q_KG = torch.zeros(valid_KG.shape, device=hidden_KGd.device)
    label_KG = torch.zeros(valid_KG.shape, dtype=torch.long, device=hidden_KGd.device)
    label_KG[valid_KG] = labels_N.clamp_min(0)
    # A few anchors at a time: [K, G, V] of a whole text would not fit a small machine.
    for start in range(0, len(hidden_KGd), 32):
        part = slice(start, start + 32)
        logits = drafter.block_logits(hidden_KGd[part], blocks.previous_KG[part]) / temperature
        log_q_KG[part] = logits.log_softmax(-1).gather(-1, label_KG[part][..., None])[..., 0]
    return log_q_KG[valid_KG].masked_fill(labels_N == IGNORE, float("-inf"))


def replay_quality(accept_KG: np.ndarray, valid_KG: np.ndarray) -> DraftQuality:
    """Expected full-block replay of one text from its conditional acceptance at every anchor.

    Args:
        accept_KG: probability that position j is accepted given that those before it were.
        valid_KG: False for positions past the end of the text.
    """
    anchors, gamma = accept_KG.shape
    survival = np.cumprod(np.where(valid_KG, accept_KG, 0.0), axis=1)
    reach = np.concatenate((np.ones((anchors, 1)), survival[:, :-1]), 1) * valid_KG
    # P(run length = a): survive a positions, then not the next.
    run = np.concatenate((np.ones((anchors, 1)), survival), 1)
    length = run - np.concatenate((survival, np.zeros((anchors, 1))), 1)
    visits = np.zeros(anchors + gamma + 2)
    visits[0] = 1.0
    for i in range(anchors):
        visits[i + 1 : i + gamma + 2] += visits[i] * length[i]
    visited = visits[:anchors, None]
    return DraftQuality(
        float(visited.sum()), anchors, (visited * reach).sum(0), (visited * survival * valid_KG).sum(0)
    )


def evaluate_texts(drafter: Drafter, texts: Iterable[Text], temperature: float) -> dict[str, DraftQuality]:
    """Quality by domain, and over all texts under the key ``all``."""
    found: dict[str, DraftQuality] = {}
    for text in texts:
        quality = text_quality(drafter, text, temperature)
        for key in (text.domain, "all"):
            found[key] = found[key] + quality if key in found else quality
    return found


def macro_accepted_len(found: Mapping[str, DraftQuality]) -> float:
    """Mean over domains of tau."""
    return float(np.mean([q.accepted_len for domain, q in found.items() if domain != "all"]))
