"""Speculative sampling, forwards (decode) and backwards (record), on plain probability tables.

p: target, q: drafter, both already at their temperature and top-p; at temperature 0 both are one-hot
and every rule below turns into equality of argmaxes. A drafter may know only part of the
vocabulary: its tables have W columns, ``draft_ids_W`` gives the vocabulary id of each, and q is 0
elsewhere, so every formula holds unchanged.

Shape suffixes: R or N rows, G gamma, V vocabulary, W draft vocabulary. Uniform numbers come from the
caller, so that a request's randomness depends on its own named stream and not on its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_sim.model.sampling import draw


@dataclass(frozen=True, slots=True)
class Verified:
    """Outcome of one round per row.

    Attributes:
        accepted_R: draft tokens accepted, 0..verify_len (int64).
        next_R: the token that ends the round: the correction after a rejection, else the bonus.
    """

    accepted_R: Tensor
    next_R: Tensor


def verify(
    p_RTV: Tensor,
    q_RGW: Tensor,
    drafted_RG: Tensor,
    verify_len_R: Tensor,
    *,
    draft_ids_W: Tensor,
    uniform_RU: Tensor,
) -> Verified:
    """Exact rejection sampling of the first ``verify_len`` draft tokens of each row.

    Token j is accepted with probability min(1, p_j / q_j) of it; the first that is not gives way to
    a draw from max(p_j - q_j, 0), normalised over the full vocabulary; if all are accepted the bonus
    is drawn from the next p (Leviathan et al. 2023, algorithm 1). The output is then a sample of p.

    Args:
        p_RTV: target distributions [R, T, V]; [:, j] is conditioned on the anchor and j draft tokens;
            T - 1 >= every verify_len, entries past a row's verify_len are not read.
        q_RGW: draft distributions that ``drafted_RG`` was drawn from.
        drafted_RG: draft-vocabulary indices.
        verify_len_R: 0..T-1.
        draft_ids_W: vocabulary id of each draft index.
        uniform_RU: in [0, 1); U >= T: one per tested position, then one for the last draw.
    """
    tested = p_RTV.shape[1] - 1
    drafted, rows = drafted_RG[:, :tested], torch.arange(len(p_RTV), device=p_RTV.device)
    p_of_x = p_RTV[:, :tested].gather(-1, draft_ids_W[drafted][..., None])[..., 0]
    q_of_x = q_RGW[:, :tested].gather(-1, drafted[..., None])[..., 0]
    passed = uniform_RU[:, :tested] * q_of_x < p_of_x
    passed &= torch.arange(tested, device=p_RTV.device) < verify_len_R[:, None]
    accepted_R = passed.long().cumprod(-1).sum(-1)
    p_RV = p_RTV[rows, accepted_R]
    rejected = accepted_R < verify_len_R
    if bool(rejected.any()):
        q_RV = torch.zeros_like(p_RV)
        q_RV[:, draft_ids_W] = q_RGW[rows, accepted_R.clamp_max(q_RGW.shape[1] - 1)]
        p_RV = torch.where(rejected[:, None], residual(p_RV, q_RV), p_RV)
    return Verified(accepted_R, draw(p_RV, uniform_RU[:, tested]))


def residual(have: Tensor, used: Tensor) -> Tensor:
    """max(have - used, 0), unnormalised [..., V]; ``have`` itself where rounding leaves nothing of it."""
    left = (have - used).clamp_min_(0)
    return torch.where(left.sum(-1, keepdim=True) > 0, left, have)


@dataclass(frozen=True, slots=True)
class Coupled:
    """One position of blocks that are drawn backwards from the text.

    Attributes:
        accepted_N: the text's token is the draft token, and was accepted.
        drafted_N: draft-vocabulary index of the draft token.
    """

    accepted_N: Tensor
    drafted_N: Tensor


def posterior_step(
    q_NW: Tensor, p_NW: Tensor, text_N: Tensor, p_of_text_N: Tensor, uniform_N2: Tensor
) -> Coupled:
    """Draw draft tokens given the text token they were verified against; all before were accepted.

    The forward rule makes (draft token x accepted, text y = x) with probability min(q(y), p(y)), and
    (x rejected, text y) with probability max(q(x) - p(x), 0) max(p(y) - q(y), 0) / (1 - sum min(p, q)).
    Divided by the text's own p(y): given y, the draft token was accepted with probability
    min(1, q(y) / p(y)), else it is a draw from max(q - p, 0), whatever y is.

    Args:
        q_NW: draft distributions.
        p_NW: the target's, at the tokens of the draft vocabulary (its sum may be below 1).
        text_N: draft-vocabulary index of the text's token, W where the drafter does not know it.
        p_of_text_N: the target's probability of the text's token.
        uniform_N2: in [0, 1): one for the acceptance, one for the draw.
    """
    known = text_N < q_NW.shape[1]
    q_of_text = q_NW.gather(-1, text_N.where(known, 0)[:, None])[:, 0]
    accepted = known & (uniform_N2[:, 0] * p_of_text_N < q_of_text)
    drafted = text_N.clone()
    lost = ~accepted
    if bool(lost.any()):
        drafted[lost] = draw(residual(q_NW[lost], p_NW[lost]), uniform_N2[lost, 1])
    return Coupled(accepted, drafted)


@dataclass(frozen=True, slots=True)
class TextAhead:
    """What the text holds after each of N anchors, as the drafter sees it.

    Attributes:
        draft_index_NG: draft-vocabulary index of the j-th token after the anchor, W where the
            drafter does not know that token, PAST_END where the text has ended.
        p_of_text_NG: the target's probability of that token (anything past the end).
        place_N: row of ``p_TW`` that predicts the first token after the anchor.
        p_TW: target distributions along the whole text, at the tokens of the draft vocabulary.
    """

    draft_index_NG: Tensor
    p_of_text_NG: Tensor
    place_N: Tensor
    p_TW: Tensor


PAST_END = -1

#: (position j from 0, previous token ids [B]) -> draft distributions [B, W]. Called once per
#: position, left to right; B is N at position 0 and 2N after it (coupled rows, then free rows).
DraftStep = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Two blocks per anchor: coupled to the text, and free of it.

    Attributes:
        accepted_N: tokens of the coupled block that a full verification accepts, end of text respected.
        coupled_NG, free_NG: token ids.
        accept_rate_NG: 1 - TV(q, p) at the positions whose draft prefix was accepted; 0 past them,
            where the target was never asked.
    """

    accepted_N: Tensor
    coupled_NG: Tensor
    free_NG: Tensor
    accept_rate_NG: Tensor


def draft_blocks(
    step: DraftStep, anchor_N: Tensor, ahead: TextAhead, draft_ids_W: Tensor, uniform_NG3: Tensor
) -> Blocks:
    """Draw, for every anchor of a text, the block that led to the text and one that knows nothing of it.

    The coupled block follows ``posterior_step`` while it equals the text; after its first rejection,
    and past the end of the text, it goes on freely from q, conditioned on what it drafted. The token
    that ends a text is a token like any other.

    Args:
        step: the drafter, one position at a time.
        anchor_N: token ids of the anchors.
        ahead: the text after each anchor.
        draft_ids_W: vocabulary id of each draft index.
        uniform_NG3: in [0, 1): acceptance, coupled draw, free draw.
    """
    count, gamma = ahead.draft_index_NG.shape
    alive, accepted = torch.ones_like(anchor_N, dtype=torch.bool), torch.zeros_like(anchor_N)
    drafted = torch.empty(gamma, 2, count, dtype=torch.long, device=anchor_N.device)
    rate = torch.zeros(count, gamma, device=anchor_N.device)
    previous = anchor_N
    for j in range(gamma):
        q_BW = step(j, previous)
        q_NW, q_free_NW = (q_BW, q_BW) if j == 0 else (q_BW[:count], q_BW[count:])
        text_N = ahead.draft_index_NG[:, j]
        alive = alive & (text_N != PAST_END)
        on, off = alive.nonzero()[:, 0], (~alive).nonzero()[:, 0]
        index = drafted[j]
        if on.numel():
            q_on, p_on = q_NW[on], ahead.p_TW[ahead.place_N[on] + j]
            rate[on, j] = torch.minimum(q_on, p_on).sum(-1)
            got = posterior_step(q_on, p_on, text_N[on], ahead.p_of_text_NG[on, j], uniform_NG3[on, j, :2])
            index[0, on] = got.drafted_N
            alive = alive.index_put((on,), got.accepted_N)
        index[0, off] = draw(q_NW[off], uniform_NG3[off, j, 1])
        index[1] = draw(q_free_NW, uniform_NG3[:, j, 2])
        accepted += alive
        previous = draft_ids_W[index].flatten()
    tokens = draft_ids_W[drafted]
    return Blocks(accepted, tokens[:, 0].T, tokens[:, 1].T, rate)
