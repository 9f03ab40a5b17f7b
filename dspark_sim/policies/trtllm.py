"""TensorRT-LLM's DSpark planner: uniform tiers and a guard."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import expected_tokens_M, floored_top_k, under_lag
from dspark_sim.schema import IntArray


@policy(
    "trtllm",
    source="TensorRT-LLM, dspark_planner.py (PR #17056)",
    reads="lagged",
    default_lag=1,
    verdict=under_lag,
    basis="engine",
)
def trtllm(
    view: BatchView, *, min_len: Annotated[int, Ge(0)] = 0, gain: Annotated[float, Ge(0)] = 0.04
) -> IntArray:
    """Best tau / cost over the totals that are captured, R * (t + 1) tokens; whole blocks unless the best
    beats them by more than ``gain`` (confidence_min_predicted_gain); then the best tokens, ``min_len``
    of each request at least.

    tau counts the survivals of the mandatory positions. The description does not say how old the
    confidences of the budget are; a global search must not see this step's, so one step is assumed.
    """
    running, gamma = view.num_running, view.gamma
    floor = min(min_len, gamma)
    base = running + float(view.lagged_RG[:, :floor].sum())
    tau_T = expected_tokens_M(view.lagged_RG[:, floor:], base)[::running]
    theta_T = tau_T / view.step_s_M[running * floor :: running]
    best = int(theta_T.argmax())
    if theta_T[best] < theta_T[-1] * (1.0 + gain):
        best = len(theta_T) - 1
    lengths: IntArray = floored_top_k(view.survival_RG, floor, best * running)
    return np.asarray(lengths)
