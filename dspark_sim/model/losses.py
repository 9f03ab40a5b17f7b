"""The three training losses: cross-entropy and L1 fused in one pass, and the confidence loss.

L = 0.1 CE(q, text) + 0.9 ||q - p||_1 + 1.0 BCE(c, 1 - TV), each a mean weighted by
w_j = exp(-(j-1)/g) over draft positions j (arXiv 2607.05147, section 3; g = 4 in the reference
configuration). Both q and p are taken at the temperature the pair will serve at.
Shape suffixes: N positions, packed; d hidden; r Markov rank; V draft vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE = -100


@dataclass(frozen=True, slots=True)
class LossWeights:
    """Weights of the three parts, and g of the position weights (tokens)."""

    ce: float = 0.1
    l1: float = 0.9
    confidence: float = 1.0
    decay: float = 4.0


@dataclass(frozen=True, slots=True)
class Losses:
    """Loss terms (scalars, differentiable) and what they were made of.

    Attributes:
        total, ce, l1, confidence: weighted means; confidence is zero without a head.
        accept_N: 1 - TV(q, p) per position, no gradient.
    """

    total: Tensor
    ce: Tensor
    l1: Tensor
    confidence: Tensor
    accept_N: Tensor


def position_weights(gamma: int, decay: float, device: torch.device | None = None) -> Tensor:
    """exp(-j / decay) for j = 0 .. gamma-1."""
    return torch.exp(-torch.arange(gamma, device=device) / decay)


def log_normalizer(hidden: Tensor, lm_head_Vd: Tensor, temperature: float) -> Tensor:
    """Log sum exp(logits / temperature) [...] over the *full* vocabulary of final hidden states [..., d]."""
    return (F.linear(hidden, lm_head_Vd).float() / temperature).logsumexp(-1)


class _FusedCeL1(torch.autograd.Function):
    """sum_n a_n CE_n + b_n L1_n, its gradients computed in the forward pass.

    Keeps no [N, V] tensor for the backward pass: with 8,192 or more columns those dominate memory
    traffic. Out-of-vocabulary target mass is part of L1 (q is zero there), and a label outside the
    draft vocabulary has no CE term.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd passes positional arguments
        ctx: Any,
        hidden_Nd: Tensor,
        latent_Nr: Tensor | None,
        w2_Vr: Tensor | None,
        lm_head_Vd: Tensor,
        target_Nd: Tensor,
        lse_N: Tensor,
        labels_N: Tensor,
        ce_weight_N: Tensor,
        l1_weight_N: Tensor,
        temperature: float,
        fast: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits = hidden_Nd @ lm_head_Vd.t()
        if latent_Nr is not None and w2_Vr is not None:
            logits.addmm_(latent_Nr, w2_Vr.t())
        log_q = logits.div_(temperature).log_softmax(-1)
        p = (target_Nd @ lm_head_Vd.t()).div_(temperature).sub_(lse_N[:, None]).exp_()
        known = labels_N != IGNORE
        label = labels_N.clamp_min(0)[:, None]
        ce_N = -log_q.gather(1, label)[:, 0] * known
        q = log_q.exp_()
        sign = torch.sign(q - p)
        accept_N = torch.minimum(q, p).sum(-1)
        outside_N = 1 - p.sum(-1)
        l1_N = (q * sign).sum(-1) - (p * sign).sum(-1) + outside_N
        # dL1/dlogits = q (s - <q, s>), dCE/dlogits = q - onehot
        pull = (q * sign).sum(-1, keepdim=True)
        ce_scale = (ce_weight_N * known)[:, None]
        grad = q * (sign.sub_(pull).mul_(l1_weight_N[:, None]).add_(ce_scale))
        grad.scatter_add_(1, label, -ce_scale)
        grad.div_(temperature)
        product = _bf16_matmul if fast else torch.matmul
        saved = [product(grad, lm_head_Vd)]
        if latent_Nr is not None and w2_Vr is not None:
            saved += [product(grad, w2_Vr), product(grad.t(), latent_Nr)]
        ctx.save_for_backward(*saved)
        loss = (ce_weight_N * ce_N).sum() + (l1_weight_N * l1_N).sum()
        ctx.mark_non_differentiable(ce_N, l1_N, accept_N)
        return loss, torch.stack((ce_N, l1_N)), accept_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = [scale * grads[0] for scale in ctx.saved_tensors]
        hidden, latent, w2 = (*saved, None, None)[:3]
        return hidden, latent, w2, None, None, None, None, None, None, None, None


def _bf16_matmul(a: Tensor, b: Tensor) -> Tensor:
    """A @ b with bfloat16 factors, float32 result."""
    return (a.bfloat16() @ b.bfloat16()).float()


def draft_losses(
    *,
    hidden_Nd: Tensor,
    latent_Nr: Tensor | None,
    w2_Vr: Tensor | None,
    lm_head_Vd: Tensor,
    target_Nd: Tensor,
    lse_N: Tensor,
    labels_N: Tensor,
    weights_N: Tensor,
    confidence_N: Tensor | None,
    temperature: float = 1.0,
    loss: LossWeights | None = None,
    fast: bool = False,
) -> Losses:
    """All loss terms of N draft positions.

    Args:
        hidden_Nd: block hidden states.
        latent_Nr: head latents; None without a head.
        w2_Vr: the head's output matrix; None without a head.
        lm_head_Vd: rows of the frozen LM head in the draft vocabulary.
        target_Nd: the target's final hidden states at the token before (they predict this one).
        lse_N: its log-normaliser over the full vocabulary at ``temperature``.
        labels_N: the text's token as a draft index; ``IGNORE`` where it cannot be drafted.
        weights_N: position weights, 0 for positions past the end of the text.
        confidence_N: confidence logits, or None.
        temperature: both softmaxes are taken at it.
        loss: weights of the parts.
        fast: gradient products in bfloat16; losses themselves stay in float32.
    """
    loss = loss or LossWeights()
    share_N = weights_N / (weights_N.sum() + 1e-6)
    apply: Any = _FusedCeL1.apply
    fused, parts_2N, accept_N = apply(
        hidden_Nd, latent_Nr, w2_Vr, lm_head_Vd, target_Nd, lse_N, labels_N,
        loss.ce * share_N, loss.l1 * share_N, temperature, fast,
    )  # fmt: skip
    ce, l1 = parts_2N.detach() @ share_N
    confidence = fused.new_zeros(())
    if confidence_N is not None:
        bce_N = F.binary_cross_entropy_with_logits(confidence_N, accept_N.clamp(0, 1), reduction="none")
        confidence = (bce_N * share_N).sum()
    return Losses(fused + loss.confidence * confidence, ce, l1, confidence, accept_N)
