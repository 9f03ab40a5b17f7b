"""Static confidence threshold."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.schema import IntArray


@policy(
    "threshold",
    source="static threshold of arXiv 2607.05147; SpecDec++ (arXiv 2405.19715) without its training",
    reads="current",
    verdict="lossless",
    basis="paper",
    example="threshold:on=survival,at=0.4",
)
def threshold(
    view: BatchView, *, on: Literal["survival", "confidence"], at: Annotated[float, Ge(0), Le(1)]
) -> IntArray:
    """Verify the prefix of each block before its first value below ``at``.

    Lossless: a request's length l is decided by its own values 1..l+1, which read the draft tokens
    1..l only. (The last value above ``at`` would not do: it reads tokens that are then not verified.)
    """
    values_RG = view.survival_RG if on == "survival" else view.confidence_RG
    prefix_RG = np.logical_and.accumulate(values_RG >= at, axis=1)
    verify_len: IntArray = np.add.reduce(prefix_RG, axis=1, dtype=np.int64)
    return verify_len
