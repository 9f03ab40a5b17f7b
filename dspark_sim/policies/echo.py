"""ECHO, reduced to chains: sparse gates, and a budget that flows to those who pass."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import top_k
from dspark_sim.schema import IntArray

GATES = (0, 2, 4)


@policy("echo", source="ECHO, arXiv 2604.09603", reads="current", verdict="lossless", basis="abstract")
def echo(
    view: BatchView, *, gate: Annotated[float, Ge(0), Le(1)] = 0.3, tokens: Annotated[float, Ge(0)] = 4.0
) -> IntArray:
    """Cut a block before draft position 1, 3 or 5 if its survival there is below ``gate``; share R *
    ``tokens`` among what is left, by survival, so that cut blocks leave their budget to others.

    Chains in place of trees. Lossless: a gate looks at position l + 1 at most, and the best K of the
    gated survivals are decided by the values 1..l_r + 1.
    """
    closed_RG = np.zeros(view.survival_RG.shape, dtype=bool)
    gates = [j for j in GATES if j < view.gamma]
    closed_RG[:, gates] = view.survival_RG[:, gates] < gate
    closed_RG = np.logical_or.accumulate(closed_RG, axis=1)
    shared = min(round(view.num_running * tokens), closed_RG.size)
    lengths: IntArray = np.minimum(
        top_k(np.where(closed_RG, 0.0, view.survival_RG), shared), view.gamma - closed_RG.sum(axis=1)
    )
    return lengths
