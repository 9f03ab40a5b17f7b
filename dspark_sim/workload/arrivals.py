"""Open-loop arrivals: processes by spec, drawn from named streams.

A process is a function (count, random stream) -> times of the first ``count`` arrivals [s]. The times
of n arrivals are the first n of any larger count, so a longer run meets the same traffic and more of
it. Specs joined by ``+`` superpose: ``poisson:rate=5+burst:n=1000,at=60``. Shape legend: Q arrivals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from dspark_sim.errors import InputError
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.specs import bind, choose
from dspark_sim.workload.tables import NumberTable

Process = Callable[[int, np.random.Generator], FloatArray]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]

#: More arrivals than this in one call is taken for a mistake in the rate or the horizon.
MAX_ARRIVALS = 50_000_000


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One or several processes at once; ``label`` is the normalised spec."""

    label: str
    parts: tuple[Process, ...]

    def times(self, count: int, seed: int) -> FloatArray:
        """Return the first ``count`` arrival times [s], sorted; fewer where all processes end before.

        Raises:
            InputError: ``count`` is below 1 or above :data:`MAX_ARRIVALS`.
        """
        if not 1 <= count <= MAX_ARRIVALS:
            raise InputError(f"arrivals '{self.label}': {count} arrivals; must be 1 to {MAX_ARRIVALS:,}")
        drawn = [part(count, stream(seed, "arrivals", i)) for i, part in enumerate(self.parts)]
        return np.sort(np.concatenate(drawn), kind="stable")[:count]

    def until(self, horizon_s: float, seed: int) -> FloatArray:
        """Return all arrival times [s] before ``horizon_s``: the same as those of ``times``.

        Raises:
            InputError: the horizon is no finite time above 0, or there are more than
                :data:`MAX_ARRIVALS` before it.
        """
        if not 0 < horizon_s < np.inf:
            raise InputError(f"arrivals '{self.label}': horizon {horizon_s} s; must be a finite time above 0")
        count = 1024
        while True:
            times = self.times(count, seed)
            if len(times) < count or times[-1] >= horizon_s:
                return times[: np.searchsorted(times, horizon_s)]
            if count == MAX_ARRIVALS:
                many = f"more than {MAX_ARRIVALS:,} before {horizon_s:g} s"
                raise InputError(f"arrivals '{self.label}': {many}; lower the rate or the horizon")
            count = min(4 * count, MAX_ARRIVALS)


def gamma(*, rate: Positive, cv: NotNegative) -> Process:
    """Independent gamma gaps of mean 1 / ``rate`` [1/s] and coefficient of variation ``cv``."""

    def draw(count: int, random: np.random.Generator) -> FloatArray:
        return np.cumsum(unit_gaps(count, cv, random)) / rate

    return draw


def poisson(*, rate: Positive) -> Process:
    """A Poisson process of ``rate`` [1/s]: gamma gaps of CV 1."""
    return gamma(rate=rate, cv=1.0)


def deterministic(*, rate: Positive) -> Process:
    """Arrivals at 1/rate, 2/rate, ...: CV 0."""
    return gamma(rate=rate, cv=0.0)


def burst(*, n: Annotated[int, Gt(0)], at: NotNegative = 0.0) -> Process:
    """``n`` arrivals at the one instant ``at`` [s], and then none."""

    def draw(count: int, random: np.random.Generator) -> FloatArray:
        return np.full(min(count, n), at)

    return draw


def piecewise(path: Path, *, cv: NotNegative = 1.0, scale: Positive = 1.0) -> Process:
    """Rates that hold for a while each, such as a day's shape, over and over.

    The file (CSV or parquet) has the columns ``duration_s`` (above 0) and ``rate_per_s`` (0 or more).
    Unit-rate gaps of coefficient of variation ``cv`` run on the integral of the rate: cv 1 is the
    inhomogeneous Poisson process. ``scale`` multiplies the rates.
    """
    duration_s, rate = _pieces(path)
    rate = rate * scale
    start_s = np.concatenate([[0.0], np.cumsum(duration_s)])
    mass = np.concatenate([[0.0], np.cumsum(duration_s * rate)])

    def draw(count: int, random: np.random.Generator) -> FloatArray:
        cycle, rest = np.divmod(np.cumsum(unit_gaps(count, cv, random)), mass[-1])
        piece = np.searchsorted(mass, rest, side="right") - 1
        times: FloatArray = cycle * start_s[-1] + start_s[piece] + (rest - mass[piece]) / rate[piece]
        return times

    return draw


def _pieces(path: Path) -> tuple[FloatArray, FloatArray]:
    table = NumberTable(path)
    columns = ("duration_s", "rate_per_s")
    table.check_columns(columns, columns)
    duration_s, rate = (table.floats(column) for column in columns)
    long = np.isfinite(duration_s) & (duration_s > 0)
    table.refuse_where("duration_s", duration_s, ~long, "must be a finite time above 0")
    fine = np.isfinite(rate) & (rate >= 0)
    table.refuse_where("rate_per_s", rate, ~fine, "must be a finite rate, 0 or more")
    table.refuse_where("rate_per_s", rate, np.full(len(rate), not rate.any()), "some rate must be above 0")
    return duration_s, rate


PROCESSES: dict[str, Callable[..., Process]] = {
    "poisson": poisson,
    "gamma": gamma,
    "deterministic": deterministic,
    "piecewise": piecewise,
    "burst": burst,
}


def unit_gaps(count: int, cv: float, random: np.random.Generator) -> FloatArray:
    """Return ``count`` independent gamma gaps of mean 1 and coefficient of variation ``cv``."""
    if cv == 0:
        return np.ones(count)
    return random.standard_gamma(cv**-2, count) * cv**2


def parse_arrivals(spec: str) -> Arrivals:
    """Return the arrivals of a spec such as ``poisson:rate=5`` or ``piecewise:day.csv,scale=2``.

    Raises:
        InputError: an unknown process or option, a value out of range.
        DataError: a file of rates that breaks a rule.
    """
    labels, parts = [], []
    for word in spec.split("+"):
        name = word.strip().partition(":")[0]
        process = choose("arrivals", name, PROCESSES)
        bound = bind("arrivals", word.strip(), process, bare=["path"] if process is piecewise else [])
        labels.append(bound.label)
        parts.append(process(**bound.values))
    return Arrivals("+".join(labels), tuple(parts))


def spread_batches(arrival_s_Q: FloatArray, spread_s: float, seed: int) -> FloatArray:
    """Return arrivals whose equal times are spread, for traces that a clock has quantised.

    The arrivals of one instant fall uniformly, in their order, into the ``spread_s`` seconds after it,
    and never past the next instant: what a Poisson process does, given how many came.
    """
    instant, group_Q, size = np.unique(arrival_s_Q, return_inverse=True, return_counts=True)
    room = np.minimum(spread_s, np.append(np.diff(instant), np.inf))
    drawn = stream(seed, "spread").random(len(arrival_s_Q)) * np.where(size > 1, room, 0.0)[group_Q]
    spread: FloatArray = np.sort(arrival_s_Q + drawn, kind="stable")
    return spread


def batch_sizes(arrival_s_Q: FloatArray) -> IntArray:
    """Return how many arrive at each distinct instant."""
    counts: IntArray = np.unique(arrival_s_Q, return_counts=True)[1].astype(np.int64)
    return counts
