"""Two priors of the paper case, derived from measurements of V4 on other machines and from MTP-1's curves.

*Token share.* What a verify pass spends goes by tokens: GEMMs, attention (128 heads give 242 FLOP per byte
of KV and query, and MTP-1 has two queries a request: bound by arithmetic, not by bytes), all-to-all, rows of
the vocabulary. What goes by requests is bookkeeping: a time by request on one scheduler, whatever the GPU
and however many share a token. So the *time* is transferred, not the ratio: alpha, as refits of vLLM's two
sweeps to all their static arms find it, over the slope of this model's MTP-1 curve.

*Traffic.* The golden curves are of a coding set. The sweeps are of all eleven categories of the same
benchmark, and say what V4's DSpark accepts there. Live traffic lies somewhere about the two.

Nothing here reads an adaptive arm, an anchor, or a DSpark curve of the paper. ``tools/derive_priors.py``
makes the refits again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark_sim.validation.paper_cost import figure7, figure8, fit_mtp_step
from dspark_sim.validation.priors import (
    DSPARK_ACCEPTED_LEN,
    FIRST_DECLARED,
    MTP_ACCEPTED_LEN,
    MTP_PER_REQUEST,
    Prior,
)
from dspark_sim.validation.tables import read_rows
from dspark_sim.validation.yields import shifted_accepted_len

#: Active parameters [G], and layers times width: what the work of a token may go by.
ACTIVE = {"V4-Flash": 13.0, "V4-Pro": 49.0}
LAYER_WIDTH = {"V4-Flash": 43 * 4096, "V4-Pro": 61 * 7168}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all static arms of one vLLM sweep say of a model.

    Attributes:
        model: V4-Flash or V4-Pro.
        gpus: of the deployment.
        per_request_us: host time by request, with its 95% interval.
        verify_scale: forward pass over V4-Flash's on four GPUs.
        accepted_len: at five draft tokens, on all categories of SPEED-Bench.
    """

    model: str
    gpus: int
    per_request_us: float
    per_request_low: float
    per_request_high: float
    verify_scale: float
    accepted_len: float


def evidence() -> list[Evidence]:
    """Return the committed results of the refits."""
    return [
        Evidence(
            row["model"],
            int(row["gpus"]),
            float(row["per_request_us"]),
            float(row["per_request_low"]),
            float(row["per_request_high"]),
            float(row["verify_scale"]),
            float(row["accepted_len_5"]),
        )
        for row in read_rows("paper_evidence")
    ]


def per_request_us() -> Prior:
    """Return the time by request [us]: none if all of it is hidden, up to what the refits hold possible."""
    found = evidence()
    mode = float(np.exp(np.mean([np.log(one.per_request_us) for one in found])))
    high = max(one.per_request_high for one in found)
    return Prior(mode, 0.0, high, "refits of vLLM's sweeps; asynchronous scheduling may hide all of it")


def mtp_slope_us(model: str, share: float = 1.0) -> float:
    """Return what a request adds to an MTP-1 step of many requests [us], its draft taken out.

    The mean over figures 7 and 8, which differ by 6%.
    """
    per_token = [fit_mtp_step(figure(model)).linear_ms for figure in (figure7, figure8)]
    tau = float(shifted_accepted_len(MTP_ACCEPTED_LEN[:1], np.array([traffic().mode]))[0])
    draft = FIRST_DECLARED[model]["draft_per_request"].mode * share / 2
    return 1e3 * tau * float(np.mean(per_token)) / (1 + MTP_PER_REQUEST * draft)


def token_share(model: str) -> Prior:
    """Return the share of the variable cost of an MTP-1 step that goes by tokens."""
    alpha = per_request_us()

    def share(by_request_us: float) -> float:
        found = 1.0
        for _ in range(20):
            found = 1 - by_request_us / mtp_slope_us(model, found)
        return found

    return Prior(share(alpha.mode), share(alpha.high), share(alpha.low), alpha.why)


def traffic() -> Prior:
    """Return the logit shift of live traffic: between the coding set (0) and all categories, and about."""
    all_categories = float(np.mean([logit_shift(one.accepted_len) for one in evidence()]))
    distance = abs(all_categories)
    middle = all_categories / 2
    return Prior(middle, middle - distance, middle + distance, "coding set and all categories of SPEED-Bench")


def logit_shift(accepted_len: float) -> float:
    """Return the logit shift that takes DSpark's golden curve to an accepted length at five draft tokens."""
    from scipy.optimize import brentq

    def miss(shift: float) -> float:
        return float(shifted_accepted_len(DSPARK_ACCEPTED_LEN, np.array([shift]))[0]) - accepted_len

    return float(brentq(miss, -4, 4))


def per_request_by_sizes_us(ratio: float) -> float:
    """Return the time by request [us] at which both models' MTP-1 slopes agree, on any one GPU.

    With w the work of a token of V4-Pro over one of V4-Flash and a time by request common to both, the
    slopes are 2 w theta + alpha and 2 theta + alpha.

    Args:
        ratio: w; :func:`work_ratios` says what it can be.
    """
    flash, pro = mtp_slope_us("V4-Flash"), mtp_slope_us("V4-Pro")
    return flash - (pro - flash) / (ratio - 1)


def work_ratios() -> dict[str, float]:
    """Return the work of a token of V4-Pro over one of V4-Flash: by sizes, and as measured on B300."""
    by_model = {one.model: one for one in evidence()}
    flash, pro = by_model["V4-Flash"], by_model["V4-Pro"]
    return {
        "layers times width": LAYER_WIDTH["V4-Pro"] / LAYER_WIDTH["V4-Flash"],
        "active parameters": ACTIVE["V4-Pro"] / ACTIVE["V4-Flash"],
        "measured": pro.verify_scale * pro.gpus / flash.gpus,
    }
