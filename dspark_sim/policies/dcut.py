"""D-Cut: four keep ratios of the whole batch's draft tokens."""

from __future__ import annotations

import numpy as np

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import expected_tokens_M, top_k
from dspark_sim.schema import IntArray

KEEP_RATIOS = np.array([0.25, 0.5, 0.75, 1.0])


def budgets(num_running: int, gamma: int) -> IntArray:
    """Return the draft tokens of a step at each keep ratio: ceil(ratio * R * gamma)."""
    budget_K: IntArray = np.ceil(KEEP_RATIOS * num_running * gamma).astype(np.int64)
    return budget_K


@policy("dcut", source="D-Cut (AngelSlim, docs/source/_extra/dcut.html)", reads="current", basis="page")
def dcut(view: BatchView) -> IntArray:
    """Keep the share of the draft tokens with the best (sum of kept survivals) / step_s.

    The bonus tokens are not in the score. Not lossless: the choice of the ratio reads survivals past
    the verified prefixes of this very step.
    """
    budget_K = budgets(view.num_running, view.gamma)
    accepted_K = expected_tokens_M(view.survival_RG)[budget_K] - view.num_running
    return top_k(view.survival_RG, int(budget_K[(accepted_K / view.step_s_M[budget_K]).argmax()]))
