"""The production form of DSpark's scheduler: an asynchronous budget."""

from __future__ import annotations

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import best_budget, top_k, under_lag
from dspark_sim.schema import IntArray


@policy(
    "dspark-async",
    source="arXiv 2607.05147, asynchronous scheduling",
    reads="lagged",
    default_lag=2,
    verdict=under_lag,
    basis="paper",
)
def dspark_async(view: BatchView) -> IntArray:
    """Budget: the best m of (R + sum of the m largest lagged survivals) / step_s, over all m, the
    smallest among equals. Allocation: the m largest current survivals.

    The whole list may be searched, past any stair, because the budget is fixed before this step's
    tokens are drawn, and the m largest of falling survivals are decided by the values 1..l_r + 1:
    lossless under lag. At lag 0 the budget reads this step's values past the verified prefixes: not
    lossless.
    """
    return top_k(view.survival_RG, best_budget(view.lagged_RG, view.step_s_M))
