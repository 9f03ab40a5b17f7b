"""AdaSpec-like: what a request may verify depends on whether it keeps its pace."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.uniform import Positions, uniform_step_s_K
from dspark_sim.schema import FloatArray, IntArray


class Pace(NamedTuple):
    """Counts by position, and each running request's time [s] and tokens so far."""

    counts: Positions
    elapsed_s_R: FloatArray
    tokens_R: FloatArray


@policy(
    "adaspec",
    source="AdaSpec (ex SpecServe), arXiv 2503.05096",
    reads="current",
    verdict="lossless",
    basis="abstract",
)
def adaspec(
    view: BatchView,
    state: Pace | None,
    *,
    tpot_ms: Annotated[float, Gt(0)] = 20.0,
    drop: Annotated[float, Ge(0), Le(1)] = 0.3,
) -> Decision:
    """Draft the k of best expected tokens / latency by past acceptance (adaptive drafter); verify the prefix
    of survivals >= ``drop`` (confidence-prior verifier); requests slower than ``tpot_ms`` a token so far
    verify all that was drafted (SLO-aware).

    The abstract's three modules in their simplest form. Lossless: k and the pace are past; a prefix is
    decided by the request's own values 1..l+1.
    """
    pace = _pace(view, state)
    tokens_K = 1.0 + np.concatenate([[0.0], np.cumsum(np.cumprod(pace.counts.conditional_G(prior=0.7)))])
    k = int((tokens_K / uniform_step_s_K(view)).argmax())
    late_R = pace.elapsed_s_R > tpot_ms * 1e-3 * pace.tokens_R
    sure_RG = np.logical_and.accumulate(view.survival_RG >= drop, axis=1)
    lengths: IntArray = np.where(late_R, k, np.minimum(sure_RG.sum(axis=1), k)).astype(np.int64)
    return Decision(lengths, pace, draft_R=np.full(view.num_running, k))


def _pace(view: BatchView, state: Pace | None) -> Pace:
    """Return the averages after the last step, for the requests that run now."""
    past, size = view.past, len(view.past.accepted_P)
    old = state or Pace(Positions.none(view.gamma), np.zeros(size), np.zeros(size))
    return Pace(
        old.counts.after(past, keep=0.99),
        past.carried(old.elapsed_s_R + past.step_s, 0.0),
        past.carried(old.tokens_R + past.accepted_P + 1.0, 0.0),
    )
