"""vLLM's adaptive verification."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Gt, Le

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import best_budget, top_k, under_lag
from dspark_sim.schema import FloatArray


@policy(
    "vllm-adaptive",
    source="vLLM, enable_adaptive_verification (PR #47808)",
    reads="lagged",
    default_lag=1,
    verdict=under_lag,
    basis="engine",
)
def vllm_adaptive(
    view: BatchView, state: FloatArray | None, *, alpha: Annotated[float, Gt(0), Le(1)] = 1.0
) -> Decision:
    """B* = argmax_b (R + sum of the b largest lagged survivals) / (draft_cost[R] + verify_cost[T + b]),
    then the B* largest current survivals. Survivals one step old, 1.0 for new requests.

    ``alpha`` < 1 smooths each request's survivals by a moving average (weight of the newest view; an
    older draft of the change had .8, and which side it weighed is our reading). Simplified: no cap by
    the number of logits. Profiled costs frozen at one context are the believed profile's business.
    """
    smoothed = lagged = view.lagged_RG
    if alpha < 1.0:
        older = np.full_like(lagged, np.nan) if state is None else view.past.carried(state, np.nan)
        smoothed = np.where(np.isnan(older), lagged, alpha * lagged + (1.0 - alpha) * older)
    budget = best_budget(smoothed, view.step_s_M)
    return Decision(top_k(view.survival_RG, budget), smoothed if alpha < 1.0 else None)
