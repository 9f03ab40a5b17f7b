"""Multi-token prediction with k serial passes."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.schema import IntArray


@policy(
    "mtp",
    source="MTP-k, the baseline of arXiv 2607.05147",
    reads="none",
    draft_kind="mtp",
    verdict="lossless",
    basis="paper",
    example="mtp:k=1",
)
def mtp(view: BatchView, *, k: Annotated[int, Ge(1)]) -> IntArray:
    """Verify k draft tokens of every request, and pay k serial draft passes for them.

    Acceptance is that of the first k positions of the recorded block unless the trace holds an
    autoregressive drafter. Lossless: lengths are known before anything is drafted.
    """
    return np.full(view.num_running, k, dtype=np.int64)
