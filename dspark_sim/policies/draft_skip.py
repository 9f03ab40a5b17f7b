"""Draft-skip: requests whose acceptance cannot repay a draft do without."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import best_budget, top_k, under_lag
from dspark_sim.schema import FloatArray, IntArray


class Record(NamedTuple):
    """What is remembered of each running request.

    gained_R: moving average of accepted draft tokens of the rounds that drafted.
    idle_R: rounds since it last drafted.
    drafted_RS: whether it drafted in each of the last ``lag`` steps, the oldest first (1.0 or 0.0).
    """

    gained_R: FloatArray
    idle_R: FloatArray
    drafted_RS: FloatArray


@policy(
    "draft-skip",
    source="arXiv 2607.05147, difficulty-aware early exit (named as future work)",
    reads="lagged",
    default_lag=2,
    verdict=under_lag,
)
def draft_skip(
    view: BatchView,
    state: Record | None,
    *,
    alpha: Annotated[float, Gt(0), Le(1)] = 0.1,
    retry: Annotated[int, Ge(1)] = 16,
) -> Decision:
    """Requests, best past acceptance first, draft as long as (R + sum of their mean accepted tokens) / step
    improves on every smaller number; one that has not for ``retry`` rounds does. Then ``dspark-async``
    among those who draft.

    The believed step of n drafting requests verifies, of each, its mean accepted tokens and one more. A
    request that did not draft ``lag`` steps ago has no lagged block and counts as new, 1.0. Lossless under
    lag: who drafts is decided by the past, and the rest as in ``dspark-async``.
    """
    record = _record(view, state, alpha)
    draws_R = _drafting(view, record.gained_R) | (record.idle_R >= retry)
    draft_R: IntArray = np.where(draws_R, view.gamma, 0)
    seen_R = record.drafted_RS[:, :1] > 0 if view.lag else np.ones((view.num_running, 1), dtype=bool)
    lagged_RG = np.where(draws_R[:, None], np.where(seen_R, view.lagged_RG, 1.0), 0.0)
    count = int(np.count_nonzero(draws_R))
    saved_s = view.draft_s(view.num_running, view.gamma) - view.draft_s(count, view.gamma)
    budget = min(best_budget(lagged_RG, view.step_s_M - saved_s), count * view.gamma)
    lengths = top_k(view.survival_RG[draws_R], budget) if count else np.zeros(0, dtype=np.int64)
    verify_len_R = np.zeros(view.num_running, dtype=np.int64)
    verify_len_R[draws_R] = lengths
    drafted_RS = np.concatenate([record.drafted_RS[:, 1:], draws_R[:, None]], axis=1)
    return Decision(verify_len_R, record._replace(drafted_RS=drafted_RS), draft_R=draft_R)


def _drafting(view: BatchView, gained_R: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return who drafts by the best number of drafting requests."""
    running, most = view.num_running, len(view.step_s_M) - 1
    order = np.argsort(-gained_R, kind="stable")
    gained_N = np.concatenate([[0.0], np.cumsum(gained_R[order])])
    verified_N = np.minimum(np.ceil(gained_N + np.arange(running + 1)), most).astype(np.int64)
    drafting_s = [view.draft_s(n, view.gamma) for n in range(running + 1)]
    step_s_N = view.step_s_M[verified_N] - drafting_s[-1] + np.array(drafting_s)
    draws = np.zeros(running, dtype=bool)
    draws[order[: int(((running + gained_N) / step_s_N).argmax())]] = True
    return draws


def _record(view: BatchView, state: Record | None, alpha: float) -> Record:
    """Return the record after the last step, for the requests that run now; new ones are promising."""
    past, size, hope = view.past, len(view.past.accepted_P), view.gamma / 2
    old = state or Record(np.full(size, hope), np.zeros(size), np.zeros((size, max(view.lag, 1))))
    drew = old.drafted_RS[:, -1] > 0
    tested = drew & (past.verify_len_P > 0)
    gained = np.where(tested, old.gained_R + alpha * (past.accepted_P - old.gained_R), old.gained_R)
    return Record(
        past.carried(gained, hope),
        past.carried(np.where(drew, 0.0, old.idle_R + 1.0), 0.0),
        past.carried(old.drafted_RS, 0.0),
    )
