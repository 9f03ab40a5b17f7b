"""No speculation."""

from __future__ import annotations

import numpy as np

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.schema import IntArray


@policy("off", source="plain decoding", reads="none", draft_kind="none", verdict="lossless")
def off(view: BatchView) -> IntArray:
    """Draft nothing, verify nothing. Lossless: the target alone decides."""
    return np.zeros(view.num_running, dtype=np.int64)
