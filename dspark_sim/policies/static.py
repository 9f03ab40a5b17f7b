"""A fixed number of draft tokens."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.schema import IntArray


@policy(
    "static",
    source="every engine's num_speculative_tokens",
    reads="none",
    verdict="lossless",
    basis="engine",
    example="static:k=3",
)
def static(view: BatchView, *, k: Annotated[int, Ge(0)]) -> IntArray:
    """Verify the first k draft tokens of every request. k = 0 still pays the drafter.

    Lossless: lengths are known before anything is drafted.
    """
    return np.full(view.num_running, k, dtype=np.int64)
