"""Unknowns of a profile from a measured sweep: robust least squares over simulations, with log priors.

Every unknown is positive and fitted as its logarithm, shifted so that the prior's mode is 1: a relative
finite-difference step on a variable near zero would freeze it silently. The residuals are

    log(simulated / measured) / error          for tok/s and for tok/s/user of every row used,
    log(value / mode) / spread                 for every unknown (its prior),

under a soft absolute loss, so that one bad row does not decide. The simulations must use common random
numbers (the same seed whatever the unknowns), which makes the residuals smooth enough to differentiate
by steps of a few percent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.measured import Measured
from dspark_sim.schema import FloatArray

#: Relative step of the finite differences, far above the noise of common random numbers.
STEP = 0.04
#: An unknown whose posterior is wider than this share of its prior was not identified by the sweep.
IDENTIFIED_BELOW = 0.7


@dataclass(frozen=True, slots=True)
class Unknown:
    """A positive unknown with a log-normal prior.

    Attributes:
        name: key in the mapping of values.
        mode: most likely value.
        spread: standard deviation of its logarithm.
        why: where the two come from.
    """

    name: str
    mode: float
    spread: float
    why: str


#: (values by name, row) -> simulated (tok/s, tok/s/user).
Simulate = Callable[[Mapping[str, float], Measured], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One fitted unknown: value, 95% interval, and how much narrower it is than its prior (1: not at all)."""

    name: str
    value: float
    low: float
    high: float
    width: float

    @property
    def identified(self) -> bool:
        """Whether the sweep said something of it."""
        return self.width < IDENTIFIED_BELOW


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit found.

    Attributes:
        estimates: one an unknown, in order.
        correlation: of their logarithms, [U, U].
        residuals: log(simulated / measured) of (tok/s, tok/s/user), row by row, [N, 2]; NaN where unmeasured.
        simulations: how many rows were simulated.
    """

    estimates: Sequence[Estimate]
    correlation: FloatArray
    residuals: FloatArray
    simulations: int

    @property
    def values(self) -> dict[str, float]:
        """Fitted values by name."""
        return {estimate.name: estimate.value for estimate in self.estimates}


def fit(
    unknowns: Sequence[Unknown],
    rows: Sequence[Measured],
    simulate: Simulate,
    *,
    error: float = 0.03,
    user_error: float = 0.05,
    most_rounds: int = 8,
) -> Fit:
    """Fit ``unknowns`` to ``rows``.

    Args:
        unknowns: what to fit, with priors.
        rows: rows that may be used.
        simulate: deterministic, under common random numbers.
        error: relative error of tok/s that counts as one, measurement and model together.
        user_error: the same for tok/s/user.
        most_rounds: Gauss-Newton rounds; each simulates every row once an unknown.

    Raises:
        InputError: no unknown, no row, a mode or spread that is not above 0, or a row that cannot be taken a
            logarithm of.
    """
    from scipy.optimize import least_squares

    _check(unknowns, rows)
    problem = _Problem(unknowns, rows, simulate, np.array([error, user_error]))
    start = np.ones(len(unknowns))
    found = least_squares(
        problem.residuals,
        start,
        loss="soft_l1",
        diff_step=STEP,
        max_nfev=most_rounds,
        xtol=1e-3,
        ftol=1e-3,
        bounds=(start - 4, start + 4),
    )
    return problem.report(found.x, found.jac)


def _check(unknowns: Sequence[Unknown], rows: Sequence[Measured]) -> None:
    if not unknowns or not rows:
        raise InputError("fit: needs at least one unknown and one measured row")
    for unknown in unknowns:
        if not (unknown.mode > 0 and unknown.spread > 0):
            raise InputError(
                f"fit: unknown {unknown.name}: mode {unknown.mode} and spread {unknown.spread} "
                "must be above 0"
            )
    for row in rows:
        if not (row.tok_per_s > 0 and not row.tok_per_s_per_user <= 0):
            raise InputError(f"fit: arm {row.arm} at concurrency {row.concurrency}: rates must be above 0")


@dataclass(slots=True)
class _Problem:
    unknowns: Sequence[Unknown]
    rows: Sequence[Measured]
    simulate: Simulate
    error: FloatArray
    simulations: int = 0

    def values(self, x: FloatArray) -> dict[str, float]:
        """Return the values at ``x``: 1 is the mode, 1 more is e times it."""
        return {u.name: u.mode * float(np.exp(v - 1)) for u, v in zip(self.unknowns, x, strict=True)}

    def logs(self, x: FloatArray) -> FloatArray:
        """Return log(simulated / measured), [N, 2]."""
        values = self.values(x)
        self.simulations += len(self.rows)
        simulated = np.array([self.simulate(values, row) for row in self.rows])
        measured = np.array([(row.tok_per_s, row.tok_per_s_per_user) for row in self.rows])
        return np.asarray(np.log(simulated / measured), dtype=np.float64)

    def residuals(self, x: FloatArray) -> FloatArray:
        """Return the residuals in units of their errors, those of the priors last."""
        data = (self.logs(x) / self.error).ravel()
        spread = np.array([unknown.spread for unknown in self.unknowns])
        return np.concatenate([data[~np.isnan(data)], (x - 1) / spread])

    def report(self, x: FloatArray, jacobian: FloatArray) -> Fit:
        """Return the fit at ``x``, with the Gaussian posterior that the Jacobian there implies."""
        covariance = np.linalg.inv(jacobian.T @ jacobian)
        width = np.sqrt(np.diag(covariance))
        half = 1.96 * width
        estimates = [
            Estimate(name, value, value * float(np.exp(-h)), value * float(np.exp(h)), float(w / u.spread))
            for (name, value), h, w, u in zip(self.values(x).items(), half, width, self.unknowns, strict=True)
        ]
        return Fit(estimates, covariance / np.outer(width, width), self.logs(x), self.simulations)
