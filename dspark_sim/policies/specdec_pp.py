"""SpecDec++'s stop rule."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.threshold import threshold
from dspark_sim.schema import IntArray


@policy(
    "specdec-pp", source="SpecDec++, arXiv 2405.19715", reads="current", verdict="lossless", basis="abstract"
)
def specdec_pp(view: BatchView, *, h: Annotated[float, Ge(0), Le(1)] = 0.7) -> IntArray:
    """Stop before the first draft token with P(some token so far is rejected) = 1 - prod c_i > ``h``.

    A block drafter has drafted the rest already, so only verification stops. The paper trains its own
    acceptance head; the drafter's confidences stand in. Lossless as ``threshold`` is.
    """
    return threshold(view, on="survival", at=1.0 - h)
