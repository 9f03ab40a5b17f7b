"""TensorRT-LLM's planner on its exact table of (requests, tokens): a drain guard."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import expected_tokens_M, top_k, under_lag
from dspark_sim.schema import IntArray


@policy(
    "trtllm-exact",
    source="TensorRT-LLM, select_exact_sps_candidate (PR #18392)",
    reads="lagged",
    default_lag=1,
    verdict=under_lag,
    basis="engine",
)
def trtllm_exact(
    view: BatchView,
    *,
    gain: Annotated[float, Ge(0)] = 0.01,
    loss: Annotated[float, Ge(0)] = 1.0,
    least_ms: Annotated[float, Ge(0)] = 0.0,
) -> IntArray:
    """Best yield / step over uniform tiers t < gamma, if it beats native (whole blocks) by ``gain`` and
    T(native) - T(t) - loss * (Y_native - Y_t) / R * T(native) / (Y_native / R) > least_ms: what a shorter
    step saves must exceed what its lost tokens cost when the batch drains. Else native.

    Simplified: one rank, every t is a candidate (the engine keeps four a group), the drained batch's
    step is taken to last as long as this one's.
    """
    running = view.num_running
    yield_T = expected_tokens_M(view.lagged_RG)[::running]
    step_s_T = view.step_s_M[::running]
    lost_s_T = loss * (yield_T[-1] - yield_T) / yield_T[-1] * step_s_T[-1]
    theta_T = yield_T / step_s_T
    drains_T = step_s_T[-1] - step_s_T - lost_s_T > least_ms * 1e-3
    fits_T = drains_T & (theta_T >= theta_T[-1] * (1.0 + gain))
    best = int(np.where(fits_T, theta_T, -np.inf).argmax()) if fits_T.any() else view.gamma
    return top_k(view.survival_RG, best * running)
