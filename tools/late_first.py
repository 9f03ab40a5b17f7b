"""A rule that serves users who are behind: the lead (f) of docs/beat-the-paper.md, not shipped.

dspark-sim audit tools/late_first.py:late-first
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import best_budget, top_k, under_lag
from dspark_sim.schema import FloatArray

#: Rounds at the mean rate that a new request starts with.
_PRIOR = 4


@policy("late-first", source="our own", reads="lagged", default_lag=2, verdict=under_lag)
def late_first(
    view: BatchView, state: FloatArray | None, *, power: Annotated[float, Ge(0)] = 1.0
) -> Decision:
    """The budget of ``dspark-async``, given to the largest current survivals times (mean tokens a round / the
    request's own) ** ``power``. The weight is past, so the lengths are decided by values up to l_r + 1.
    """
    past = view.past
    before_P2 = np.zeros((len(past.accepted_P), 2)) if state is None else state
    seen_R2 = past.carried(before_P2 + np.column_stack([past.accepted_P + 1, np.ones(len(before_P2))]), 0.0)
    tokens, rounds = seen_R2.sum(axis=0)
    mean = tokens / rounds if rounds else 1.0
    rate_R = (seen_R2[:, 0] + _PRIOR * mean) / (seen_R2[:, 1] + _PRIOR)
    weighted_RG = view.survival_RG * ((mean / rate_R) ** power)[:, None]
    return Decision(top_k(weighted_RG, best_budget(view.lagged_RG, view.step_s_M)), seen_R2)
