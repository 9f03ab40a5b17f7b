"""From logits to tokens: temperature, top-p, and a draw from one uniform number a token."""

from __future__ import annotations

import torch
from torch import Tensor


def probabilities(logits: Tensor, temperature: float, top_p: float = 1.0) -> Tensor:
    """Next-token distribution [..., V] in float32.

    Args:
        logits: [..., V].
        temperature: 0 puts all mass on the argmax (the lowest index among ties).
        top_p: keep the smallest set of most likely tokens whose mass reaches it, then renormalise.
    """
    if temperature == 0:
        return torch.zeros_like(logits, dtype=torch.float32).scatter_(
            -1, logits.argmax(-1, keepdim=True), 1.0
        )
    probs = (logits.float() / temperature).softmax(-1)
    return probs if top_p >= 1 else nucleus(probs, top_p)


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Restrict ``probs`` [..., V] to the top-p set (the token that crosses it stays) and renormalise."""
    ranked, order = torch.sort(probs, dim=-1, descending=True, stable=True)
    kept = ranked * (ranked.cumsum(-1) - ranked < top_p)
    return torch.zeros_like(probs).scatter_(-1, order, kept / kept.sum(-1, keepdim=True))


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Inverse-CDF draw: token ids [...] from weights [..., V] and ``uniform`` numbers [...] in [0, 1).

    The weights need not be normalised. One uniform number a token, so that a text is a function of
    its own random stream whatever batch it is computed in. Summed in float64: in float32 the tail
    of 49,152 terms is lost.
    """
    cdf = weights.double().cumsum(-1)
    aim = uniform.to(cdf)[..., None] * cdf[..., -1:]
    # A draw that rounds onto the end of the sum belongs to the last token with mass.
    top = torch.nextafter(cdf[..., -1:], torch.zeros_like(cdf[..., -1:]))
    return torch.searchsorted(cdf, torch.minimum(aim, top), right=True)[..., 0]
