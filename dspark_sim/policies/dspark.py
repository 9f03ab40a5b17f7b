"""Algorithm 1 of the DSpark paper: greedy admission with an early stop."""

from __future__ import annotations

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import expected_tokens_M, top_k
from dspark_sim.schema import IntArray


@policy("dspark", source="arXiv 2607.05147, Algorithm 1", reads="current", verdict="lossless", basis="paper")
def dspark(view: BatchView) -> IntArray:
    """Admit draft tokens by falling survival while (R + sum a) / step_s improves; stop at the first
    that does not improve it.

    Lossless: whether the rule stops at a token is decided by the tokens before it in the order and
    by itself, the largest among the values l_r + 1 of all requests; what lies behind those can
    neither come earlier in the order nor be looked at. The early stop is what makes it so, and what
    holds it at the first stair of a jagged cost.
    """
    theta_M = expected_tokens_M(view.survival_RG) / view.step_s_M
    worse = theta_M[1:] <= theta_M[:-1]
    stop = int(worse.argmax()) if worse.any() else len(worse)
    return top_k(view.survival_RG, stop)
