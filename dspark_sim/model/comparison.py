"""Drafters against each other on the same texts: exact full-block replay, intervals from resampling prompts.

Shape suffixes: P prompts of a domain, B resamples, G gamma.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dspark_sim.errors import InputError
from dspark_sim.model.corpus import CorpusInfo, Text
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.evaluate import DraftQuality, text_quality
from dspark_sim.model.features import text_features
from dspark_sim.model.target import Target
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class PromptScores:
    """What one drafter does on the texts of each prompt of a domain.

    Attributes:
        rounds_P, tokens_P: expected rounds, and tokens they commit.
        reached_PG, accepted_PG: expected times that a position is reached, and accepted.
    """

    rounds_P: FloatArray
    tokens_P: FloatArray
    reached_PG: FloatArray
    accepted_PG: FloatArray


def score_texts(
    target: Target,
    drafters: Mapping[str, Drafter],
    info: CorpusInfo,
    texts: Sequence[Text],
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, dict[str, PromptScores]]:
    """Replay every text with every drafter, the target's features computed once; by drafter and domain.

    Args:
        target: the model that wrote the texts.
        drafters: by name, bound to the target.
        info: how the texts were made; both softmaxes are taken at its temperature.
        texts: each with at least two output tokens; shorter ones are left out.
        on_progress: told 1 after each text.

    Raises:
        InputError: greedy texts (record them instead: nothing is random), or no text.
    """
    if info.temperature == 0:
        raise InputError("evaluate: texts at temperature 0 have no acceptance probabilities; record them")
    texts = [text for text in texts if text.response_len >= 2]
    if not texts:
        raise InputError("evaluate: no text with two output tokens or more")
    taps = sorted({layer for d in drafters.values() for layer in d.config.target_layer_ids})
    normalized = all(d.config.normalize_taps for d in drafters.values())
    asked = replace(info, taps=tuple(taps), normalize_taps=normalized)
    found: dict[str, dict[str, dict[str, DraftQuality]]] = {name: {} for name in drafters}
    for text in texts:
        (features,) = text_features(target, asked, [text])
        for name, drafter in drafters.items():
            mine = torch.tensor([taps.index(layer) for layer in drafter.config.target_layer_ids])
            seen = replace(text, features=replace(features, taps_Fmd=features.taps_Fmd[:, mine]))
            quality = text_quality(drafter, seen, info.temperature)
            prompts = found[name].setdefault(text.domain, {})
            known = prompts.get(text.prompt_id)
            prompts[text.prompt_id] = quality if known is None else known + quality
        if on_progress is not None:
            on_progress(1)
    return {
        name: {domain: _stack(list(domains[domain].values())) for domain in sorted(domains)}
        for name, domains in found.items()
    }


def _stack(qualities: Sequence[DraftQuality]) -> PromptScores:
    return PromptScores(
        np.array([q.rounds for q in qualities]),
        np.array([q.tokens for q in qualities], dtype=np.float64),
        np.stack([q.reached_G for q in qualities]),
        np.stack([q.accepted_G for q in qualities]),
    )


def compare(
    scores: Mapping[str, Mapping[str, PromptScores]], resamples: int = 2000, seed: int = 0
) -> dict[str, Any]:
    """Summarise ``score_texts``: every number with its 95% interval.

    Prompts are drawn with replacement within each domain, the same draws for all drafters, so that
    differences are paired.

    Returns:
        ``drafters``: per name, ``domains`` (accepted length, conditional acceptance by position, how
        often each was reached), ``mean`` (accepted length averaged over domains), ``conditional`` (all
        domains together) and ``slope`` (its change a position, least squares weighted by how often a
        position is reached). ``against_first``: gain in mean accepted length over each other drafter,
        for the first one.
    """
    first = next(iter(scores.values()))
    prompts = {domain: len(part.rounds_P) for domain, part in first.items()}
    draws = {
        # Row 0: every prompt once, the estimate itself.
        domain: np.vstack(
            [np.ones(n), stream(seed, "prompts", domain).multinomial(n, np.ones(n) / n, resamples)]
        )
        for domain, n in prompts.items()
    }
    drawn = {
        name: {domain: _Drawn.of(part, draws[domain]) for domain, part in domains.items()}
        for name, domains in scores.items()
    }
    means = {name: np.mean([d.length_B for d in domains.values()], axis=0) for name, domains in drawn.items()}
    own = next(iter(means))
    return {
        "prompts": prompts,
        "resamples": resamples,
        "drafters": {name: _summary(domains, means[name]) for name, domains in drawn.items()},
        "against_first": {
            name: _interval(means[own] / mean - 1) for name, mean in means.items() if name != own
        },
    }


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A domain's sums in every resample; row 0 is the estimate."""

    length_B: FloatArray
    rounds_B: FloatArray
    reached_BG: FloatArray
    accepted_BG: FloatArray

    @classmethod
    def of(cls, part: PromptScores, weight_BP: FloatArray) -> _Drawn:
        rounds = weight_BP @ part.rounds_P
        return cls(
            weight_BP @ part.tokens_P / rounds,
            rounds,
            weight_BP @ part.reached_PG,
            weight_BP @ part.accepted_PG,
        )


def _summary(domains: Mapping[str, _Drawn], mean_B: FloatArray) -> dict[str, Any]:
    reached, accepted = (
        np.sum([getattr(d, field) for d in domains.values()], axis=0)
        for field in ("reached_BG", "accepted_BG")
    )
    return {
        "domains": {
            domain: {
                "accepted_len": _interval(d.length_B),
                "conditional": _intervals(_rate(d.accepted_BG, d.reached_BG)),
                "reached": d.reached_BG[0].round(1).tolist(),
            }
            for domain, d in domains.items()
        },
        "mean": _interval(mean_B),
        "conditional": _intervals(_rate(accepted, reached)),
        "reached": reached[0].round(1).tolist(),
        "slope": _interval(_slope(_rate(accepted, reached), reached)),
    }


def _rate(accepted_BG: FloatArray, reached_BG: FloatArray) -> FloatArray:
    rate: FloatArray = accepted_BG / np.maximum(reached_BG, 1e-12)
    return rate


def _slope(rate_BG: FloatArray, weight_BG: FloatArray) -> FloatArray:
    """Change of ``rate_BG`` a position, weighted least squares, per row."""
    position_G = np.arange(rate_BG.shape[1], dtype=np.float64)
    total = weight_BG.sum(1, keepdims=True)
    away = position_G - (weight_BG * position_G).sum(1, keepdims=True) / total
    spread = np.maximum((weight_BG * away**2).sum(1), 1e-12)  # zero where there is one position
    slope: FloatArray = (weight_BG * away * rate_BG).sum(1) / spread
    return slope


def _interval(value_B: FloatArray) -> dict[str, float]:
    low, high = np.quantile(value_B[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": float(value_B[0]), "low": float(low), "high": float(high)}


def _intervals(value_BG: FloatArray) -> list[dict[str, float]]:
    return [_interval(column) for column in value_BG.T]
