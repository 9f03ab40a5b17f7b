"""A confidence head fitted anew, after the backbone, on texts that the backbone never saw.

A backbone knows the texts that it was trained on: there its acceptance is higher than it will ever be again,
and a head trained beside it learns that. So the head alone is fitted again: logistic regression on the soft
labels 1 - TV(q_j, p_j), as in training, over positions that a block reaches, everything else frozen. Shape
suffixes: N draft positions, packed; F features; G gamma.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.model.checkpoints import make_drafter
from dspark_sim.model.confidence import STATISTICS, draft_statistics
from dspark_sim.model.corpus import Text
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.losses import IGNORE
from dspark_sim.model.trainset import draw_anchors, make_blocks, run_blocks
from dspark_sim.rng import stream
from dspark_sim.workload.calibration import weighted_auc

_ANCHORS_AT_ONCE = 32  # [anchors, gamma, vocabulary] of more would not fit a small machine


@dataclass(frozen=True, slots=True)
class Examples:
    """What a confidence head is fitted on.

    Attributes:
        features_NF: h_j, W_1[x_{j-1}] where the head reads it, then the statistics of q_j.
        rate_N: 1 - TV(q_j, p_j), the label.
        weight_N: probability that the block reaches the position: all before it were accepted.
        position_N: j, from 0.
        domains: domain of each position.
        prompts: prompt of each position.
    """

    features_NF: Tensor
    rate_N: Tensor
    weight_N: Tensor
    position_N: Tensor
    domains: np.ndarray
    prompts: np.ndarray

    def take(self, rows: np.ndarray) -> Examples:
        """The positions at ``rows`` (a mask or indices)."""
        at = torch.from_numpy(np.flatnonzero(rows) if rows.dtype == bool else rows)
        return Examples(
            self.features_NF[at], self.rate_N[at], self.weight_N[at], self.position_N[at],
            self.domains[rows], self.prompts[rows],
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Examples:
        """All parts, one after the other."""
        return cls(
            torch.cat([part.features_NF for part in parts]),
            torch.cat([part.rate_N for part in parts]),
            torch.cat([part.weight_N for part in parts]),
            torch.cat([part.position_N for part in parts]),
            np.concatenate([part.domains for part in parts]),
            np.concatenate([part.prompts for part in parts]),
        )


@torch.no_grad()
def collect(
    drafter: Drafter,
    texts: Iterable[Text],
    temperature: float,
    *,
    anchors_per_text: int = 1_000,
    most_anchors: int = 20_000,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Examples:
    """Features and labels at anchors drawn from ``texts``.

    Args:
        drafter: bound to its target.
        texts: with features, whose log-normalisers are at ``temperature``; unseen in training.
        temperature: the pair's.
        anchors_per_text: anchors drawn from each text, at most.
        most_anchors: texts are read until so many are there.
        seed: of the draw.
        on_progress: told the anchors of each text.

    Raises:
        InputError: there is no text.
    """
    parts: list[Examples] = []
    anchors = 0
    for number, text in enumerate(texts):
        chosen = draw_anchors(text, anchors_per_text, stream(seed, "refit", number))
        if not len(chosen):
            continue
        parts.append(_text_examples(drafter, text, chosen, temperature))
        anchors += len(chosen)
        if on_progress is not None:
            on_progress(len(chosen))
        if anchors >= most_anchors:
            break
    if not parts:
        raise InputError("refit: no text that the drafter has not seen; name a corpus of others, or --all")
    return Examples.joined(parts)


def _text_examples(drafter: Drafter, text: Text, anchors_K: Tensor, temperature: float) -> Examples:
    blocks = make_blocks(drafter, [(text, anchors_K)])
    hidden_KGd, valid_KG = run_blocks(drafter, blocks), blocks.valid_KG
    kept, rates, accepted = [], [], []
    for part in torch.split(torch.arange(len(anchors_K), device=valid_KG.device), _ANCHORS_AT_ONCE):
        valid = valid_KG[part]
        first = int(valid_KG[: part[0]].sum())
        rows = slice(first, first + int(valid.sum()))
        logits = drafter.block_logits(hidden_KGd[part], blocks.previous_KG[part])[valid]
        q = (logits / temperature).softmax(-1)
        p = (blocks.target_Nd[rows] @ drafter.lm_head.t() / temperature - blocks.lse_N[rows, None]).exp()
        label = blocks.labels_N[rows]
        known = label != IGNORE
        q_of, p_of = (x.gather(1, label.clamp_min(0)[:, None])[:, 0] for x in (q, p))
        rates.append(torch.minimum(q, p).sum(-1))
        accepted.append((q_of / p_of.clamp_min(1e-12)).clamp_max(1) * known)
        kept.append(draft_statistics(logits))
    base = _base_features(drafter, hidden_KGd, blocks.previous_KG)[valid_KG]
    count = int(valid_KG.sum())
    return Examples(
        torch.cat((base, torch.cat(kept)), -1).float().cpu(),
        torch.cat(rates).clamp(0, 1).cpu(),
        _reach(torch.cat(accepted), valid_KG).cpu(),
        torch.arange(valid_KG.shape[1], device=valid_KG.device).expand_as(valid_KG)[valid_KG].cpu(),
        np.full(count, text.domain),
        np.full(count, text.prompt_id),
    )


def _base_features(drafter: Drafter, hidden_KGd: Tensor, previous_KG: Tensor) -> Tensor:
    """What the head reads besides the statistics."""
    if not drafter.config.confidence_statistics:
        return drafter.confidence_features(hidden_KGd, previous_KG)
    bare = hidden_KGd.new_zeros(*hidden_KGd.shape[:-1], 2)
    return drafter.confidence_features(hidden_KGd, previous_KG, bare)[..., :-STATISTICS]


def _reach(accept_N: Tensor, valid_KG: Tensor) -> Tensor:
    """Probability that each position is reached, from the acceptance of the text's own tokens."""
    accept_KG = torch.zeros(valid_KG.shape, device=valid_KG.device)
    accept_KG[valid_KG] = accept_N
    ones = torch.ones_like(accept_KG[:, :1])
    return torch.cat((ones, accept_KG.cumprod(1)[:, :-1]), 1)[valid_KG]


def fit_head(
    drafter: Drafter, examples: Examples, *, statistics: bool = True, ridge: float = 3e-3
) -> Drafter:
    """Return ``drafter`` with its confidence head fitted anew; the rest is shared with the one given.

    Weighted logistic regression on standardised features, by L-BFGS: convex, so no seed and no rate.

    Args:
        drafter: with a confidence head of any kind.
        examples: from ``collect`` with this drafter.
        statistics: whether the new head reads statistics of q_j.
        ridge: weight of the squared norm of the standardised coefficients.

    Raises:
        InputError: the drafter has no confidence head.
    """
    features = examples.features_NF if statistics else examples.features_NF[:, :-STATISTICS]
    mean, scale = features.mean(0), features.std(0).clamp_min(1e-6)
    weight, bias = logistic((features - mean) / scale, examples.rate_N, _weights(examples), ridge)
    fresh = make_drafter(replace(drafter.config, confidence_statistics=statistics))
    state = {name: value for name, value in drafter.state_dict().items() if "confidence." not in name}
    slope = weight / scale
    state["confidence.proj.weight"] = slope[None]
    state["confidence.proj.bias"] = (bias - slope @ mean)[None]
    fresh.load_state_dict(state)
    fresh.to(device=drafter.device, dtype=drafter.fc.weight.dtype)
    fresh.embed, fresh.lm_head = drafter.embed, drafter.lm_head
    return fresh.requires_grad_(False).eval()


def _weights(examples: Examples) -> Tensor:
    """Each position by how often blocks reach it, a little of everything kept; they sum to one."""
    weights = examples.weight_N.clamp_min(0.02)
    return weights / weights.sum()


def logistic(x_NF: Tensor, label_N: Tensor, weight_N: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Minimise sum_n w_n BCE(x_n . b + a, y_n) + ridge |b|^2; return b [F] and a []."""
    slope, shift = torch.zeros(x_NF.shape[1], requires_grad=True), torch.zeros((), requires_grad=True)
    solver = torch.optim.LBFGS([slope, shift], max_iter=100, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        with torch.enable_grad():
            logits = x_NF @ slope + shift
            bce = F.binary_cross_entropy_with_logits(logits, label_N, reduction="none")
            total = (weight_N * bce).sum() + ridge * slope.square().sum()
            total.backward()  # type: ignore[no-untyped-call]
        return total

    solver.step(loss)  # type: ignore[no-untyped-call]
    return slope.detach(), shift.detach()


def head_logits(drafter: Drafter, examples: Examples) -> Tensor:
    """Confidence logits [N] that ``drafter``'s head gives to examples of its own backbone."""
    assert drafter.confidence is not None
    statistics = drafter.config.confidence_statistics
    features = examples.features_NF if statistics else examples.features_NF[:, :-STATISTICS]
    weight, bias = drafter.confidence.proj.weight.detach()[0], drafter.confidence.proj.bias.detach()
    return features @ weight.float().cpu() + bias.float().cpu()


def split_by_prompt(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Split into (fit, score) so that a prompt falls on one side; ``share`` of the prompts are fitted on."""
    names: Sequence[str] = sorted(set(examples.prompts))
    order = stream(seed, "refit split").permutation(len(names))
    chosen = [names[n] for n in order[: max(1, round(share * len(names)))]]
    fits = np.isin(examples.prompts, chosen)
    return examples.take(fits), examples.take(~fits)


@dataclass(frozen=True, slots=True)
class Telling:
    """How well a head tells positions apart, by position [G]; all expectations, no outcome is drawn.

    Attributes:
        events_G: expected rounds that reach the position, over the anchors looked at.
        rate_G, confidence_G: their mean acceptance rate, and the mean confidence.
        auc_G, ceiling_G: of the confidence, and of the acceptance rate itself.
    """

    events_G: np.ndarray
    rate_G: np.ndarray
    confidence_G: np.ndarray
    auc_G: np.ndarray
    ceiling_G: np.ndarray

    @property
    def share_G(self) -> np.ndarray:
        """(AUC - .5) / (ceiling - .5)."""
        share: np.ndarray = (self.auc_G - 0.5) / (self.ceiling_G - 0.5)
        return share


def telling(drafter: Drafter, examples: Examples) -> Telling:
    """Score ``drafter``'s head on examples of its own backbone."""
    logits = head_logits(drafter, examples).double().numpy()
    rate, weight = examples.rate_N.double().numpy(), examples.weight_N.double().numpy()
    rows = []
    for j in range(drafter.config.gamma):
        at = examples.position_N.numpy() == j
        chance, w = rate[at], weight[at]
        said = 1 / (1 + np.exp(-logits[at]))
        rows.append(
            (
                w.sum(), np.average(chance, weights=w), np.average(said, weights=w),
                weighted_auc(logits[at], chance, w), weighted_auc(chance, chance, w),
            )
        )  # fmt: skip
    return Telling(*np.array(rows).T)
