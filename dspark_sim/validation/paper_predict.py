"""DSpark-5 and MTP-k on the step cost of the paper's MTP-1 curves: expected values over draws of unknowns.

Shape legend: D draws of the unknowns, C concurrencies, L budgets (:class:`YieldLaw`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from dspark_sim.schema import FloatArray
from dspark_sim.validation.paper_cost import MtpStep, PaperStep
from dspark_sim.validation.priors import DSPARK_ACCEPTED_LEN, MTP_ACCEPTED_LEN, PAPER
from dspark_sim.validation.yields import YieldLaw, shifted_accepted_len, yield_law

GAMMA = len(DSPARK_ACCEPTED_LEN)
DSPARK = "dspark-async"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected throughput [tok/s per GPU] and verification budget [tokens a round]; both [D, C]."""

    tok_per_s_DC: FloatArray
    budget_DC: FloatArray


def predict(
    fit: MtpStep, unknowns: Mapping[str, FloatArray], concurrency_C: FloatArray, policy: str
) -> Prediction:
    """Return what ``policy`` does at each draw of the unknowns, by expectation.

    Args:
        fit: MTP-1 step.
        unknowns: draws [D] by name, as in :data:`~dspark_sim.validation.priors.PAPER`.
        concurrency_C: requests per GPU.
        policy: ``dspark-async`` or ``mtp:k=K``.
    """
    step = step_at(fit, {name: draws[:, None, None] for name, draws in unknowns.items()})
    running = concurrency_C[None, :, None]
    if policy != DSPARK:
        return _predict_mtp(step, unknowns, running, int(policy.removeprefix("mtp:k=")))
    law = dspark_law()
    shift = unknowns["traffic"] + unknowns["dspark_shift"]
    tokens_DL = 1 + law.accepted_DL(shift, unknowns["spread"])
    rest = step.requests_ms(running) + step.draft_ms(running, None) + step.waiting_ms(running)
    batch = running * (1 + law.verified_L)
    believed = rest + step.verify_ms(batch, unknowns["believed_slope"][:, None, None])
    best = np.argmax(tokens_DL[:, None, :] / believed, axis=2)[..., None]
    step_ms = np.take_along_axis(rest + step.verify_ms(batch), best, axis=2)[..., 0]
    tokens = np.take_along_axis(tokens_DL[:, None, :] + 0 * believed, best, axis=2)[..., 0]
    return Prediction(1e3 * concurrency_C * tokens / step_ms, 1 + law.verified_L[best[..., 0]])


def _predict_mtp(
    step: PaperStep, unknowns: Mapping[str, FloatArray], running: FloatArray, k: int
) -> Prediction:
    tokens = shifted_accepted_len(MTP_ACCEPTED_LEN[:k], unknowns["traffic"])[:, None]
    step_ms = step.requests_ms(running) + step.draft_ms(running, k) + step.verify_ms((1 + k) * running)
    tok_per_s = 1e3 * running[..., 0] * tokens / step_ms[..., 0]
    return Prediction(tok_per_s, np.full_like(tok_per_s, 1.0 + k))


def step_at(fit: MtpStep, unknowns: Mapping[str, FloatArray]) -> PaperStep:
    """Return the step cost at the unknowns, MTP-1's accepted length among them."""
    return PaperStep(fit, unknowns, shifted_accepted_len(MTP_ACCEPTED_LEN[:1], unknowns["traffic"]))


@cache
def dspark_law() -> YieldLaw:
    """Return DSpark's accepted tokens by budget over the range of the priors."""
    priors = PAPER["V4-Flash"]
    most = priors["traffic"].high + priors["dspark_shift"].high
    spread = priors["spread"]
    return yield_law(
        DSPARK_ACCEPTED_LEN, np.linspace(-most, most, 5), np.array([spread.low, spread.mode, spread.high])
    )
