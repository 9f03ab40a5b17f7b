"""vLLM's proposal of a threshold that follows the batch."""

from __future__ import annotations

import numpy as np

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.threshold import threshold
from dspark_sim.schema import IntArray


@policy("dflash-auto", source="vLLM, DFlash dynamic verify (PR #43522)", reads="current", basis="engine")
def dflash_auto(view: BatchView) -> IntArray:
    """Threshold on confidence at the batch's mean confidence, clamped to .1 to .8.

    Not lossless: the mean reads confidences behind the verified prefixes.
    """
    return threshold(view, on="confidence", at=float(np.clip(view.confidence_RG.mean(), 0.1, 0.8)))
