"""How far a prediction could move: the system drawn again from what is known of its unknowns.

Unknowns are drawn from the Gaussian posterior of their logarithms. What no row of the sweep could say is
drawn from a law of its own: the slope of the verify table past its last size, and the spread of output
lengths beyond the cut of the benchmark. The error that the fit leaves on the rows it knows comes on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dspark_sim.fitting.fitted_file import Fitted
from dspark_sim.fitting.system import (
    ACCEPTANCE,
    COST,
    LENGTHS,
    System,
    Workload,
    odds_conditional,
    profile_at,
)
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray
from dspark_sim.workload.synthetic import logit

#: Spread of the logarithm of the verify table's slope past its last measured size.
BEYOND_SPREAD = 0.2
#: Spread of the logarithm of the shape of output lengths, drawn where texts may be longer than was seen.
SHAPE_SPREAD = 0.35
#: Standard deviations in half of a 95% interval.
_HALF = 1.96


def draws(fitted: Fitted, count: int, seed: int) -> Iterator[System]:
    """Yield ``count`` systems that the sweep allows as well.

    Args:
        fitted: the system, overrides applied.
        count: how many.
        seed: of the draws.
    """
    names = list(fitted.values)
    best_U = np.log(np.array([fitted.values[name] for name in names]))
    random = stream(seed, "fit", "draws")
    log_U = random.multivariate_normal(best_U, fitted.covariance, count, method="eigh")
    beyond = np.exp(BEYOND_SPREAD * random.standard_normal(count))
    shape = np.exp(SHAPE_SPREAD * random.standard_normal(count))
    for i in range(count):
        values = dict(zip(names, np.exp(log_U[i]).tolist(), strict=True))
        system = moved(fitted.system, fitted.values, values)
        workload = system.workload
        if workload.max_output_tokens > fitted.seen_tokens:
            workload = replace(workload, output_shape=workload.output_shape * float(shape[i]))
        profile = with_slope_beyond(system.profile, float(beyond[i]))
        yield System(profile, workload, system.acceptance)


def moved(system: System, before: Mapping[str, float], after: Mapping[str, float]) -> System:
    """Return ``system``, which stands at the unknowns ``before``, at ``after``."""
    cost = {name: after[name] for name in COST if name in after}
    for name in ("verify_scale", "eager_scale", "eager_far"):
        if name in after:
            cost[name] = after[name] / before[name]
    if "verify_fixed_ms" in after:
        cost["verify_fixed_ms"] = (
            after["verify_fixed_ms"] - cost.get("verify_scale", 1.0) * before["verify_fixed_ms"]
        )
    acceptance = system.acceptance
    if any(name in after for name in ACCEPTANCE):
        gamma = len(acceptance.base_logits)
        shift_G = logit(odds_conditional(after, gamma)) - logit(odds_conditional(before, gamma))
        acceptance = replace(
            acceptance, base_logits=tuple((np.array(acceptance.base_logits) + shift_G).tolist())
        )
    return System(profile_at(system.profile, cost), _workload(system.workload, before, after), acceptance)


def _workload(workload: Workload, before: Mapping[str, float], after: Mapping[str, float]) -> Workload:
    scaled = {name: getattr(workload, name) * after[name] / before[name] for name in LENGTHS if name in after}
    return replace(workload, **scaled)


def with_slope_beyond(profile: HardwareProfile, scale: float) -> HardwareProfile:
    """Return ``profile`` with the slope past its last verify size multiplied by ``scale``."""
    from dspark_sim.hardware.tables import Table

    verify = profile.verify
    last, far = verify.tokens[-1], 8 * verify.tokens[-1]
    if verify.beyond == "hold":
        return profile
    end, further = Table(verify.tokens, verify.ms, verify.beyond).read(
        np.array([last, far], dtype=np.float64)
    )
    ms = float(end + scale * (further - end))
    return replace(
        profile, verify=replace(verify, tokens=(*verify.tokens, far), ms=(*verify.ms, ms), beyond="last_two")
    )


def interval(best: FloatArray, drawn: FloatArray, left_over: float) -> tuple[FloatArray, FloatArray]:
    """Return the 95% interval around ``best`` [X] from ``drawn`` [D, X] and the error of the fit.

    Args:
        best: at the fitted values.
        drawn: at other draws.
        left_over: standard deviation of the logarithm that the fit leaves.
    """
    spread = np.log(drawn / best)
    half = _HALF * np.sqrt((spread**2).mean(axis=0) + left_over**2)
    return best * np.exp(-half), best * np.exp(half)


def left_over(fitted: Fitted) -> float:
    """Return the root mean square of the fit's own residuals of tok/s, as a share, robustly."""
    errors = np.array([pair[0] for pair in fitted.provenance.residual_pct if pair[0] is not None]) / 100
    return float(1.4826 * np.median(np.abs(errors))) if errors.size else 0.0
