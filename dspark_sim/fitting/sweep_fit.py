"""Unknowns of step cost, lengths and acceptance from the rows of a sweep that may be used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from dspark_sim.engine.prefill import parse_prefill
from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.fit import Fit, Unknown, fit
from dspark_sim.fitting.arms import Arm
from dspark_sim.fitting.bench import Bench, realised, serve_row, shifted
from dspark_sim.fitting.recost import CostAt, Row, row_of
from dspark_sim.fitting.system import (
    COST,
    KNOWN,
    LENGTHS,
    Acceptance,
    System,
    Workload,
    odds_conditional,
    profile_at,
    with_sources,
)
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.measured import Measured
from dspark_sim.schema import FloatArray
from dspark_sim.workload.traces import Trace

T = TypeVar("T")
#: Simulated rows that are kept per row of the sweep, and traces.
_KEPT_ROWS, _KEPT_TRACES = 4, 3
#: Gauss-Newton rounds: after that many the fit moves by less than its intervals.
_MOST_ROUNDS = 6
#: Value of ``odds`` where nothing that speculates may be used: acceptance is then not asked.
_ANY_ODDS = {"first_odds": 3.0, "deeper_odds": 0.75}


@dataclass(frozen=True, slots=True)
class Frame:
    """What a fit starts from.

    Attributes:
        base: profile whose curves are the system's own, or another's to be scaled.
        workload: of the benchmark; its lengths and turnaround are replaced where they are unknowns.
        gamma: tokens of the longest block.
        experts: (active, total) where ``base`` does not say.
        draft_share: scale of the drafter's cost over that of the verify table.
    """

    base: HardwareProfile
    workload: Workload
    gamma: int
    experts: tuple[int, int] | None = None
    draft_share: float = 1.0

    def profile(self, values: Mapping[str, float]) -> HardwareProfile:
        """Return the profile at ``values``."""
        return profile_at(self.base, values, experts=self.experts, draft_share=self.draft_share)

    def workload_at(self, values: Mapping[str, float]) -> Workload:
        """Return the workload at ``values``."""
        lengths: dict[str, Any] = {name: values[name] for name in LENGTHS if name in values}
        return replace(self.workload, **lengths)


@dataclass(frozen=True, slots=True)
class SweepFit:
    """A fitted system, the rows that it was fitted to, and how well each unknown is known."""

    system: System
    fit: Fit
    unknowns: Sequence[Unknown]
    used: Sequence[Measured]


@dataclass
class Simulator:
    """(values, row) -> rates, simulating only where something else than the cost changed.

    Attributes:
        frame: what is fixed.
        arms: of the sweep, by name.
        modes: most likely values, around which base logits are found.
        most_users: largest concurrency.
        simulated: rows that were simulated so far.
    """

    frame: Frame
    arms: Mapping[str, Arm]
    modes: Mapping[str, float]
    most_users: int
    simulated: int = 0
    _rows: dict[
        tuple[str, int], OrderedDict[tuple[float, ...], tuple[Row, FloatArray, Mapping[str, float]]]
    ] = field(default_factory=dict)
    _traces: OrderedDict[tuple[float, ...], Trace] = field(default_factory=OrderedDict)
    _costs: OrderedDict[tuple[float, ...], CostAt] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        """Draw the texts, and find base logits at the modes."""
        gamma, workload = self.frame.gamma, self.frame.workload_at(self.modes)
        self._bench = Bench(workload, gamma, workload.max_output_tokens)
        self._mode_G = odds_conditional({**_ANY_ODDS, **self.modes}, gamma)
        self._base_G = self._bench.base(self._mode_G)
        budget = parse_prefill(workload.prefill).budget
        self._tokens = self.most_users * (1 + gamma) + 4 * budget

    def __call__(self, values: Mapping[str, float], measured: Measured) -> tuple[float, float]:
        """Return tok/s and tok/s/user of a row at ``values``."""
        arm, at = self.arms[measured.arm], (measured.arm, measured.concurrency)
        key = self._shape(values, arm)
        kept = self._rows.setdefault(at, OrderedDict())
        if key not in kept:
            kept[key] = self._simulate(values, arm, measured.concurrency)
            if len(kept) > _KEPT_ROWS:
                kept.popitem(last=False)
        kept.move_to_end(key)
        row, before_S, then = kept[key]
        scale = values.get("prompt_tokens", 1.0) / then.get("prompt_tokens", 1.0)
        after_S = self._cost(values).steps_s(row, scale)
        turnaround_s = self.frame.workload_at(values).turnaround_ms * 1e-3
        return row.rates(before_S, after_S, turnaround_s)

    def system(self, values: Mapping[str, float]) -> System:
        """Return the system at ``values``, with the acceptance that its rounds really have."""
        workload, base_G = self.frame.workload_at(values), self.base(values)
        acceptance = realised(self._trace(values), base_G)
        return System(with_sources(self.frame.profile(values), values), workload, acceptance)

    def base(self, values: Mapping[str, float]) -> FloatArray:
        """Return the base logits at ``values``."""
        wanted_G = odds_conditional({**_ANY_ODDS, **values}, self.frame.gamma)
        return shifted(self._base_G, self._mode_G, wanted_G)

    def _simulate(
        self, values: Mapping[str, float], arm: Arm, concurrency: int
    ) -> tuple[Row, FloatArray, Mapping[str, float]]:
        self.simulated += 1
        system = System(self.frame.profile(values), self.frame.workload_at(values), Acceptance((), ()))
        log = serve_row(self._trace(values), system, arm, concurrency)
        workload = system.workload
        row = row_of(log, arm.block, workload.asked(concurrency), workload.turnaround_ms * 1e-3)
        return row, self._cost(values).steps_s(row, 1.0), dict(values)

    def _shape(self, values: Mapping[str, float], arm: Arm) -> tuple[float, ...]:
        """Return what, beside the cost, decides the steps of a row."""
        names = ("output_tokens", "first_odds", "deeper_odds") if arm.block else ("output_tokens",)
        return tuple(values.get(name, 0.0) for name in names)

    def _trace(self, values: Mapping[str, float]) -> Trace:
        names = ("prompt_tokens", "output_tokens", "first_odds", "deeper_odds")
        key = tuple(values.get(name, 0.0) for name in names)

        def made() -> Trace:
            plans = any(arm.block and "static" not in arm.policy for arm in self.arms.values())
            blocks = {arm.block for arm in self.arms.values()}
            workload = self.frame.workload_at(values)
            return self._bench.trace(workload, self.base(values), blocks, confidences=plans)

        return _kept(self._traces, key, made)

    def _cost(self, values: Mapping[str, float]) -> CostAt:
        key = tuple(values.get(name, 0.0) for name in COST)
        return _kept(
            self._costs, key, lambda: CostAt.of(self.frame.profile(values), self.most_users, self._tokens)
        )


def _kept(store: OrderedDict[tuple[float, ...], T], key: tuple[float, ...], make: Callable[[], T]) -> T:
    """Return what ``store`` has at ``key``, made if it is not there; the newest few are kept."""
    if key not in store:
        store[key] = make()
        if len(store) > _KEPT_TRACES:
            store.popitem(last=False)
    return store[key]


def fit_sweep(
    frame: Frame, unknowns: Sequence[Unknown], arms: Mapping[str, Arm], used: Sequence[Measured]
) -> SweepFit:
    """Fit ``unknowns`` to the rows of a sweep that may be used.

    Args:
        frame: what is fixed.
        unknowns: of :data:`~dspark_sim.fitting.system.KNOWN`, with priors.
        arms: of the rows, by name.
        used: rows to fit.

    Raises:
        InputError: an unknown that nothing depends on, no row, or a row that cannot be simulated.
    """
    for unknown in unknowns:
        if unknown.name not in KNOWN:
            hint = did_you_mean(unknown.name, KNOWN)
            raise InputError(f"unknown '{unknown.name}': no such unknown{hint}; known: {', '.join(KNOWN)}")
    if not used:
        raise InputError("no row may be used: the arms to fit have none in this sweep")
    mine = {name: arm for name, arm in arms.items() if any(row.arm == name for row in used)}
    modes = {unknown.name: unknown.mode for unknown in unknowns}
    simulator = Simulator(frame, mine, modes, max(row.concurrency for row in used))
    found = fit(unknowns, used, simulator, most_rounds=_MOST_ROUNDS)
    return SweepFit(simulator.system(found.values), found, unknowns, used)


def covariance(found: SweepFit) -> FloatArray:
    """Return the covariance of the logarithms of the unknowns, [U, U]."""
    deviation = np.array(
        [e.width * u.spread for e, u in zip(found.fit.estimates, found.unknowns, strict=True)]
    )
    return np.asarray(found.fit.correlation * np.outer(deviation, deviation))
