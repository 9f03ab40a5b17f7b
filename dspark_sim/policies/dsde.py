"""DSDE-like: a length for each request by how steady it has been."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.schema import FloatArray, IntArray

_SHORT, _LONG = 0.5, 0.1
_START = 0.3


class Steadiness(NamedTuple):
    """Moving mean of each request's rejected share, and its short and long moving variances [R each]."""

    mean_R: FloatArray
    short_R: FloatArray
    long_R: FloatArray


@policy("dsde", source="DSDE, arXiv 2509.01083", reads="none", verdict="lossless", basis="abstract")
def dsde(view: BatchView, state: Steadiness | None, *, least: Annotated[int, Ge(0)] = 1) -> Decision:
    """SL_r = least + (gamma - least) * (1 - min(1, SF * WVIR)), SF = exp(2 * mean) - 1, WVIR = short
    variance / long variance; all capped by the batch's mean length.

    The paper's signal is the divergence of past tokens, which no trace holds: the rejected share of past
    rounds stands in for it. Its formula was not read in full. Lossless: chosen before drafting.
    """
    seen = _seen(view, state)
    ratio_R = np.divide(seen.short_R, seen.long_R, out=np.ones(view.num_running), where=seen.long_R > 0)
    share_R = 1.0 - np.minimum(1.0, np.expm1(2.0 * seen.mean_R) * ratio_R)
    floor = min(least, view.gamma)
    wanted_R = floor + (view.gamma - floor) * share_R
    lengths: IntArray = np.minimum(np.rint(wanted_R), np.ceil(wanted_R.mean())).astype(np.int64)
    return Decision(lengths, seen, draft_R=lengths)


def _seen(view: BatchView, state: Steadiness | None) -> Steadiness:
    """Return the averages after the last step's rounds, for the requests that run now."""
    past = view.past
    size = len(past.verify_len_P)
    old = state or Steadiness(np.full(size, _START), np.zeros(size), np.zeros(size))
    verified = past.verify_len_P > 0
    rejected = 1.0 - past.accepted_P / np.maximum(past.verify_len_P, 1)
    off = np.where(verified, rejected - old.mean_R, 0.0)
    squares = off * off
    return Steadiness(
        past.carried(old.mean_R + _LONG * off, _START),
        past.carried(np.where(verified, old.short_R + _SHORT * (squares - old.short_R), old.short_R), 0.0),
        past.carried(np.where(verified, old.long_R + _LONG * (squares - old.long_R), old.long_R), 0.0),
    )
