"""A fixed budget a request, shared by the batch."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import top_k
from dspark_sim.schema import IntArray


@policy(
    "budget",
    source="sfllm dNtM, issue #53",
    reads="fixed",
    verdict="lossless",
    basis="page",
    example="budget:tokens=2.5",
)
def budget(view: BatchView, *, tokens: Annotated[float, Ge(0)]) -> IntArray:
    """Verify the round(R * ``tokens``) draft tokens of largest survival. Lossless as ``tetris`` is."""
    return top_k(view.survival_RG, min(round(view.num_running * tokens), view.survival_RG.size))
