"""SGLang's DSpark planner."""

from __future__ import annotations

from bisect import bisect_left
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import best_budget, floored_top_k, under_lag

_SURVIVAL_EPS = 1e-6


@policy(
    "sglang",
    source="SGLang, dspark_planner.py (PR #30261)",
    reads="lagged",
    default_lag=2,
    verdict=under_lag,
    basis="engine",
)
def sglang(
    view: BatchView,
    *,
    mode: Literal["compact", "cap-accept", "static"] = "compact",
    min_len: Annotated[int, Ge(0)] = 0,
    fill: bool = False,
) -> Decision:
    """argmax_n (R + sum of the n largest lagged survivals above 1e-6) * sps(R + n); the best current ones.

    Modes: ``compact`` runs the verified rows; ``cap-accept`` runs whole blocks and accepts no more than
    the window (a diagnosis that saves nothing); ``static`` verifies whole blocks. ``min_len`` draft
    tokens are verified of every request (the engine's min_verify_len - 1). ``fill`` (the engine's
    align-verify-tokens-to-graph-tier) keeps admitting until the captured size that is paid anyway is
    full. Floor and additive cost tables are believed profiles. Simplified: one rank.
    """
    running, gamma = view.num_running, view.gamma
    if mode == "static":
        return Decision(np.full(running, gamma, dtype=np.int64))
    floor = min(min_len, gamma)
    rest_RG = view.lagged_RG[:, floor:]
    alive = int(np.count_nonzero(rest_RG >= _SURVIVAL_EPS))
    base = running + float(view.lagged_RG[:, :floor].sum())
    budget = min(best_budget(rest_RG, view.step_s_M[running * floor :], base), alive)
    if fill:
        budget = min(budget + _paid_for(view, running * (1 + floor) + budget), alive)
    lengths = floored_top_k(view.survival_RG, floor, budget)
    unused = running * gamma - int(lengths.sum())
    return Decision(lengths, padding=unused if mode == "cap-accept" else 0)


def _paid_for(view: BatchView, batch_tokens: int) -> int:
    """Return the tokens that padding to the next captured size pays for in vain."""
    tokens = batch_tokens + view.prefill_tokens
    place = bisect_left(view.captured, tokens)
    return view.captured[place] - tokens if place < len(view.captured) else 0
