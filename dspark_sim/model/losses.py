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


#: Elements of a chunk of rows: its probabilities stay in a core's cache while they are worked on.
_CHUNK = 2**18


class _FusedCeL1(torch.autograd.Function):
    """sum_n a_n CE_n + b_n L1_n, its gradients computed in the forward pass.

    Keeps no [N, V] tensor for the backward pass: with 8,192 or more columns those dominate memory
    traffic. Out-of-vocabulary target mass is part of L1 (q is zero there), and a label outside the
    draft vocabulary has no CE term. L1 is 2 (1 - sum min(q, p)), as both sum to one over the full
    vocabulary. With ``fast`` the products take bfloat16 factors; what follows them is float32.
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
        d, dtype = hidden_Nd.shape[1], torch.bfloat16 if fast else hidden_Nd.dtype
        # Two columns take the target's log-normaliser off inside the products, so that likely tokens
        # stand near zero, where bfloat16 is fine: the first in bfloat16, the second what that leaves.
        high_N = lse_N.to(dtype)
        shift_N2 = -torch.stack((high_N, (lse_N - high_N).to(dtype)), 1)
        target = torch.cat(((target_Nd / temperature).to(dtype), shift_N2), 1)
        factors = [(hidden_Nd / temperature).to(dtype), shift_N2]
        matrices = [lm_head_Vd.to(dtype), lm_head_Vd.new_ones(len(lm_head_Vd), 2, dtype=dtype)]
        if latent_Nr is not None and w2_Vr is not None:
            factors.append((latent_Nr / temperature).to(dtype))
            matrices.append(w2_Vr.to(dtype))
        factor, matrix = torch.cat(factors, 1), torch.cat(matrices, 1)
        logits_NV = factor @ matrix.t()
        log_p_NV = target @ matrix[:, : d + 2].t()
        rows = len(logits_NV) if logits_NV.is_cuda else max(1, _CHUNK // logits_NV.shape[1])
        of_rows = zip(
            *(torch.split(x, rows) for x in (logits_NV, log_p_NV, labels_N, ce_weight_N, l1_weight_N)),
            strict=True,
        )
        done = [_replace_by_gradient(*x) for x in of_rows]
        ce_N, accept_N = (torch.cat(parts) for parts in zip(*done, strict=True))
        pulled = (logits_NV @ matrix).to(hidden_Nd.dtype).div_(temperature)
        saved = [pulled[:, :d]]
        if latent_Nr is not None:
            latent = factor[:, d + 2 :]
            saved += [pulled[:, d + 2 :], (logits_NV.t() @ latent).to(hidden_Nd.dtype)]
        ctx.save_for_backward(*saved)
        l1_N = 2 - 2 * accept_N
        loss = (ce_weight_N * ce_N).sum() + (l1_weight_N * l1_N).sum()
        ctx.mark_non_differentiable(ce_N, l1_N, accept_N)
        return loss, torch.stack((ce_N, l1_N)), accept_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = [scale * grads[0] for scale in ctx.saved_tensors]
        hidden, latent, w2 = (*saved, None, None)[:3]
        return hidden, latent, w2, None, None, None, None, None, None, None, None


def _replace_by_gradient(
    logits_NV: Tensor, log_p_NV: Tensor, labels_N: Tensor, ce_weight_N: Tensor, l1_weight_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Put the gradient of the weighted losses in place of the (tempered) logits; return CE and 1 - TV."""
    known = labels_N != IGNORE
    label = labels_N.clamp_min(0)[:, None]
    of_label = logits_NV.gather(1, label)[:, 0] - logits_NV.amax(-1)
    q = logits_NV.softmax(-1, dtype=ce_weight_N.dtype)
    p = log_p_NV.to(q.dtype).exp()
    # The largest logit's own probability is one over the sum of the exponentials.
    ce_N = -(of_label + q.amax(-1).log()) * known
    accept_N = torch.minimum(q, p).sum(-1)
    above = q * (q > p)
    # dL1/dlogits = q (s - <q, s>) with s = sign(q - p), dCE/dlogits = q - onehot.
    pull = 2 * above.sum(-1) - 1
    ce_scale = ce_weight_N * known
    q.mul_((ce_scale - l1_weight_N * (1 + pull))[:, None]).addcmul_(above, 2 * l1_weight_N[:, None])
    q.scatter_add_(1, label, -ce_scale[:, None])
    logits_NV.copy_(q)
    return ce_N, accept_N


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
        fast: products with the LM head in bfloat16; softmaxes, sums and weights stay in float32.
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
