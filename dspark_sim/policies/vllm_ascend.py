"""vllm-ascend's verification budget."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import floored_top_k, under_lag


@policy(
    "vllm-ascend",
    source="vllm-ascend, spec_decode/utils.py",
    reads="lagged",
    default_lag=1,
    verdict=under_lag,
    basis="engine",
)
def vllm_ascend(
    view: BatchView,
    state: tuple[int, int] | None,
    *,
    at: Annotated[float, Ge(0), Le(1)] = 0.3,
    every: Annotated[int, Ge(1)] = 1,
) -> Decision:
    """K = ceil(mean number of survivals >= ``at`` per request), the next odd number if even, refreshed
    ``every`` steps; R * k tokens go to the best survivals, one of each request at least. No cost.

    The description does not say how old the counted survivals are; one step is assumed.
    """
    age, k = state or (0, 0)
    if age == 0:
        mean = np.count_nonzero(view.lagged_RG >= at) / view.num_running
        k = min(int(np.ceil(mean)) // 2 * 2 + 1 if mean else 1, view.gamma)
    lengths = floored_top_k(view.survival_RG, 1, view.num_running * max(k - 1, 0))
    return Decision(lengths, ((age + 1) % every, k))
