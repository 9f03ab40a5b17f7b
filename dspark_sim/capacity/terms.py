"""What is asked about capacity, and what is answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dspark_sim.open_loop import Traffic
from dspark_sim.results.slo import Slo
from dspark_sim.sweeps.running import Task

FOUND, KNEE, BEYOND, NOT_MET = "found", "knee", "beyond", "not met"


@dataclass(frozen=True)
class Terms:
    """What is asked of every policy.

    Attributes:
        traffic: the shape of the arrivals, and how many requests a run serves.
        slos: the objectives; may be empty: then the knee is the answer.
        tolerance: between the rate that is found and one that is too high, as a share of it.
        max_rate_per_s: highest rate tried [1/s]; None: the load knee.
    """

    traffic: Traffic
    slos: tuple[Slo, ...]
    tolerance: float = 0.005
    max_rate_per_s: float | None = None


@dataclass(frozen=True)
class Question:
    """One policy under its replications, a task each."""

    tasks: tuple[Task, ...]
    terms: Terms


@dataclass(frozen=True)
class Probe:
    """All replications at one rate.

    Attributes:
        rate_per_s: the rate.
        margins: quantile over bound of each objective, pooled, in their order.
        margin: the largest of them; the objectives hold up to 1.
        left_out: ``margin`` without each replication in turn.
        figures: of each replication (:func:`~dspark_sim.results.serving.serving_figures`).
    """

    rate_per_s: float
    margins: tuple[float, ...]
    margin: float
    left_out: tuple[float, ...]
    figures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the objectives hold."""
        return self.margin <= 1


@dataclass(frozen=True)
class Check:
    """The rate that was found, on requests that the search had not seen.

    Attributes:
        requests: of a run; its second half is measured.
        margin: as in :class:`Probe`.
        interval: 95% interval of it; None with one replication.
    """

    requests: int
    margin: float
    interval: tuple[float, float] | None

    @property
    def misses(self) -> bool:
        """Whether it is above 1 by more than chance."""
        return self.interval is not None and self.interval[0] > 1


@dataclass(frozen=True)
class Found:
    """The answer for one policy.

    Attributes:
        status: ``found``; ``knee``: the objectives hold up to the load knee, which is the answer;
            ``beyond``: they hold at the highest rate tried; ``not met``: not even at the lowest.
        rate_per_s: the highest rate that was simulated and sustained; of ``not met`` the lowest tried.
        left_out: the rate without each replication in turn; empty with one.
        knee_per_s: the load knee; None where nothing limits how many run at once.
        at: the probe at that rate; of ``knee``, ``beyond`` and ``not met`` the one that says so.
        probes: all of the last search, by rate.
        requests: of a run in the last search.
        check: None where the workload has no more requests.
    """

    tasks: tuple[Task, ...]
    status: str
    rate_per_s: float
    left_out: tuple[float, ...]
    knee_per_s: float | None
    at: Probe
    probes: tuple[Probe, ...]
    requests: int
    check: Check | None
