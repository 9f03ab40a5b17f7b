"""TETRIS: a fixed capacity for the whole batch."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import top_k
from dspark_sim.schema import IntArray


@policy(
    "tetris",
    source="TETRIS, arXiv 2502.15197",
    reads="fixed",
    verdict="lossless",
    basis="abstract",
    example="tetris:capacity=64",
)
def tetris(view: BatchView, *, capacity: Annotated[int, Ge(0)]) -> IntArray:
    """Verify the ``capacity`` draft tokens of the batch with the largest survival. No cost.

    Survival stands in for the product of draft probabilities. Lossless: the total is known beforehand,
    and the K largest of falling survivals are decided by the values 1..l_r + 1.
    """
    return top_k(view.survival_RG, min(capacity, view.survival_RG.size))
