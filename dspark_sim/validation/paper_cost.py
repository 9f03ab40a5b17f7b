"""The step cost behind the paper's MTP-1 curves, and what it says of steps that MTP-1 never made.

With tau tokens a round, a step of R requests lasts tau * R / throughput(R). The MTP-1 curves give that for
B = 2 R tokens only, as a constant and a variable part that may bend,

    T_1(R) = A + V_1(R),    V_1(R) = b R + E (1 - exp(-R / R_0)).

Both hold the draft pass of MTP-1. Taking it out leaves the target's constant a and variable part V; a
share s of V goes by tokens, the rest by requests:

    T(R, B) = a + (1 - s) V(R) + s V(B / 2) + draft(R)
    draft(R) = f a + g (s / 2) V(R)

f is the draft's constant over the target's, g its cost by request in tokens of the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dspark_sim.hardware.profile import FORMAT, HardwareProfile
from dspark_sim.schema import FloatArray
from dspark_sim.validation.priors import MTP_FIXED, MTP_PER_REQUEST, TOKENS_DEVIATION
from dspark_sim.validation.tables import read_rows, source_of

#: Below this many requests a GPU the two figures disagree on V4-Pro; those points count half.
_DOUBTED_BELOW = 100.0
#: The first of these is where figure 7's steep and thinly populated end is cut off.
_FIG7_CONCURRENCY = np.array([10, 15, 20, 30, 40, 50, 60, 80, 100, 125, 150, 175, 200, 250, 300], dtype=float)

Unknowns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Curve:
    """A published MTP-1 curve by requests per GPU: tok/s per GPU, with the weight of each point; [P]."""

    name: str
    concurrency_P: FloatArray
    tok_per_s_P: FloatArray
    weight_P: FloatArray


@dataclass(frozen=True, slots=True)
class MtpStep:
    """The fitted MTP-1 step per token of accepted length [ms]: multiply by tau for a duration.

    rms: relative residual of the fit.
    """

    constant_ms: float
    linear_ms: float
    bend_ms: float
    bend_requests: float
    rms: float

    def variable_ms(self, requests: FloatArray) -> FloatArray:
        """Return V_1 per token of accepted length [ms]."""
        bend = self.bend_ms * -np.expm1(-requests / self.bend_requests)
        return np.asarray(self.linear_ms * requests + bend, dtype=np.float64)


def figure8(model: str) -> Curve:
    """Return throughput by concurrency, figure 8."""
    rows = [row for row in read_rows("paper_fig8_mtp1") if row["model"] == model]
    concurrency = np.array([float(row["concurrency"]) for row in rows])
    throughput = np.array([float(row["tok_per_s_per_gpu"]) for row in rows])
    return Curve("figure 8", concurrency, throughput, _weights(model, concurrency))


def figure7(model: str) -> Curve:
    """Return the frontier of figure 7 by concurrency (throughput over speed), on round concurrencies."""
    user, throughput = frontier7(model)
    known = throughput / user
    concurrency = _FIG7_CONCURRENCY[known.max() >= _FIG7_CONCURRENCY]
    fine = np.linspace(user.min(), user.max(), 4001)
    line = np.interp(fine, user, throughput)
    return Curve(
        "figure 7",
        concurrency,
        np.interp(concurrency, (line / fine)[::-1], line[::-1]),
        _weights(model, concurrency),
    )


def frontier7(model: str) -> tuple[FloatArray, FloatArray]:
    """Return MTP-1's (tok/s/user, tok/s/GPU) vertices of figure 7, by rising speed."""
    rows = [row for row in read_rows("paper_fig7_mtp1") if row["model"] == model]
    points = sorted((float(row["tok_per_s_per_user"]), float(row["tok_per_s_per_gpu"])) for row in rows)
    user, throughput = np.array(points).T
    return user, throughput


def _weights(model: str, concurrency: FloatArray) -> FloatArray:
    doubted = (concurrency < _DOUBTED_BELOW) & (model == "V4-Pro")
    return np.where(doubted, 0.5, 1.0)


def fit_mtp_step(curve: Curve) -> MtpStep:
    """Fit the MTP-1 step to ``curve`` by robust least squares on the logarithm of the step time."""
    from scipy.optimize import least_squares

    step_ms = 1e3 * curve.concurrency_P / curve.tok_per_s_P
    last = float(curve.concurrency_P[-1])
    slope = (step_ms[-1] - step_ms[0]) / last

    def residual(x: FloatArray) -> FloatArray:
        ratio = np.log(_step(x, 0.0).constant_ms + _step(x, 0.0).variable_ms(curve.concurrency_P))
        return np.asarray(np.sqrt(curve.weight_P) * (ratio - np.log(step_ms)) / 0.01)

    start = np.log([step_ms[0], slope, 0.05 * step_ms[0], last / 10])
    bounds = (start - np.array([2, 2, 6, 2]), start + np.array([1, 1, 3, 2]))
    best = least_squares(residual, start, loss="soft_l1", bounds=bounds)
    return _step(best.x, float(np.sqrt(np.mean(residual(best.x) ** 2))) * 0.01)


def _step(log_parameters: FloatArray, rms: float) -> MtpStep:
    constant, linear, bend, requests = np.exp(log_parameters).tolist()
    return MtpStep(constant, linear, bend, requests, rms)


@dataclass(frozen=True, slots=True)
class PaperStep:
    """Step cost at given unknowns (numbers, or arrays of draws that broadcast against R and B).

    tau: accepted length of MTP-1 at the same unknowns.
    """

    fit: MtpStep
    unknowns: Unknowns
    tau: Any

    def verify_ms(self, tokens: FloatArray, slope: Any = 1.0) -> FloatArray:
        """Return the part that goes by batch tokens, the constant included; ``slope`` scales the rest."""
        return np.asarray(
            self._constant_ms + slope * self.unknowns["token_share"] * self._variable_ms(tokens / 2)
        )

    def requests_ms(self, requests: FloatArray) -> FloatArray:
        """Return the part of the target's step that goes by requests."""
        return np.asarray((1 - self.unknowns["token_share"]) * self._variable_ms(requests))

    def draft_ms(self, requests: FloatArray, passes: int | None) -> FloatArray:
        """Return the draft cost: DSpark's block if ``passes`` is None, else that many MTP-1 passes."""
        fixed, by_request = (1.0, 1.0) if passes is None else (passes * MTP_FIXED, passes * MTP_PER_REQUEST)
        token_ms = self.unknowns["token_share"] / 2 * self._variable_ms(requests)
        return np.asarray(
            fixed * self.unknowns["draft_fixed"] * self._constant_ms
            + by_request * self.unknowns["draft_per_request"] * token_ms
        )

    def waiting_ms(self, requests: FloatArray) -> FloatArray:
        """Return what DSpark's step waits for the rank with most tokens: its excess at a token's slope."""
        deviations = self.unknowns.get("slowest_rank", 0.0)
        token_ms = self.unknowns["token_share"] / 2 * self._scale * self.fit.linear_ms / self._drafting
        return np.asarray(deviations * TOKENS_DEVIATION * np.sqrt(requests) * token_ms)

    @property
    def _scale(self) -> Any:
        return self.tau * self.unknowns["curve"]

    @property
    def _constant_ms(self) -> Any:
        return self._scale * self.fit.constant_ms / (1 + MTP_FIXED * self.unknowns["draft_fixed"])

    @property
    def _drafting(self) -> Any:
        """MTP-1's variable cost over the target's."""
        return 1 + MTP_PER_REQUEST * self.unknowns["draft_per_request"] * self.unknowns["token_share"] / 2

    def _variable_ms(self, requests: FloatArray) -> Any:
        return self._scale * self.fit.variable_ms(requests) / self._drafting


def profile_of(
    step: PaperStep, model: str, max_requests: int, gamma: int, *, waits: bool = False
) -> HardwareProfile:
    """Return the step cost at single-valued unknowns as a hardware profile for the engine.

    Args:
        step: cost of a step.
        model: that it is of.
        max_requests: largest load.
        gamma: tokens of DSpark's block.
        waits: whether ranks hold different loads (DSpark), so that each waits for the slowest.
    """
    from dspark_sim.hardware.reading import parse_profile

    requests = np.arange(1.0, max_requests + 1)
    tokens = np.arange(1.0, (1 + gamma) * max_requests + 1)
    table = {"lookup": "linear", "requests": _whole(requests), "beyond": "last_octave"}
    by_request = step.requests_ms(requests) + (step.waiting_ms(requests) if waits else 0.0)
    note = f"MTP-1 curve of {source_of('paper_fig8_mtp1')}; split between tokens and requests by priors"
    document = {
        "format": FORMAT,
        "name": f"paper-{model.lower()}",
        "description": "one GPU's share of the paper's live deployment",
        "device": "undisclosed",
        "model": model,
        "num_gpus": 1,
        "sources": {
            path: {"how": "fitted", "source": note}
            for path in ("verify", "attention", "draft.dspark", "draft.mtp", "host.constant_ms")
        }
        | {"host.bubble_ms": {"how": "assumed", "source": "asynchronous scheduling hides it"}},
        "verify": {
            "lookup": "linear",
            "tokens": _whole(tokens),
            "ms": step.verify_ms(tokens).tolist(),
            "beyond": "last_octave",
        },
        "attention": {
            "requests": _whole(requests),
            "context_tokens": [1],
            "ms": by_request[:, None].tolist(),
            "beyond": "hold",
        },
        "draft": {
            "dspark": {**table, "gamma": gamma, "pass_ms": step.draft_ms(requests, None).tolist()},
            "mtp": {**table, "pass_ms": step.draft_ms(requests, 1).tolist()},
        },
        "host": {"constant_ms": 0.0, "bubble_ms": 0.0},
    }
    return parse_profile(document, f"paper {model}")


def _whole(sizes: FloatArray) -> list[int]:
    return [int(size) for size in sizes]
