"""Every row of a sweep, simulated on a fitted system; and how far the answer could move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.fitting.arms import Arm
from dspark_sim.fitting.bench import Bench, longest_text, serve_row
from dspark_sim.fitting.recost import row_of
from dspark_sim.fitting.system import System
from dspark_sim.measured import Measured
from dspark_sim.schema import FloatArray
from dspark_sim.workload.traces import Trace

#: Many users have few steps each; their rows are the mean over several orders of sending.
_USERS_AN_ORDER, _MOST_ORDERS = 64, 4


@dataclass(frozen=True, slots=True)
class Predicted:
    """One row on both sides: tok/s, and tok/s/user as 1 / median TPOT (NaN where nobody measured it)."""

    measured: Measured
    tok_per_s: float
    tok_per_s_per_user: float

    @property
    def error(self) -> float:
        """Simulated over measured tok/s, less 1."""
        return self.tok_per_s / self.measured.tok_per_s - 1.0

    @property
    def user_error(self) -> float:
        """The same for tok/s/user; NaN where nobody measured it."""
        return self.tok_per_s_per_user / self.measured.tok_per_s_per_user - 1.0


def predict(
    system: System,
    arms: Mapping[str, Arm],
    rows: Sequence[Measured],
    on_row: Callable[[int], None] = lambda done: None,
) -> list[Predicted]:
    """Simulate every row of a sweep.

    Args:
        system: fitted, with whatever was changed since.
        arms: of the sweep, by name.
        rows: what to simulate; their rates are carried along, not looked at.
        on_row: called with 1 after every row.

    Raises:
        InputError: profile or drafter cannot serve an arm.
    """
    workload, gamma = system.workload, len(system.acceptance.base_logits)
    used = {row.arm for row in rows}
    plain = {arm.block for name, arm in arms.items() if name in used and not _reads(arm)}
    reading = {arm.block for name, arm in arms.items() if name in used and _reads(arm)}
    bench = Bench(workload, gamma, max(longest_text(workload), min(workload.max_output_tokens, 512)))
    base_G = np.array(system.acceptance.base_logits)
    blocks = plain | reading
    trace = bench.trace(workload, base_G, blocks, confidences=bool(reading))
    predicted = []
    for row in rows:
        orders = range(min(_MOST_ORDERS, max(1, row.concurrency // _USERS_AN_ORDER)))
        rates = [_rates(trace, system, arms[row.arm], row.concurrency, order) for order in orders]
        predicted.append(Predicted(row, *np.mean(rates, axis=0).tolist()))
        on_row(1)
    return predicted


def _rates(trace: Trace, system: System, arm: Arm, concurrency: int, order: int) -> tuple[float, float]:
    log = serve_row(trace, system, arm, concurrency, order)
    asked, turnaround_s = system.workload.asked(concurrency), system.workload.turnaround_ms * 1e-3
    steps = row_of(log, arm.block, asked, turnaround_s)
    nothing_S: FloatArray = np.zeros(len(steps.step_s_S))
    return steps.rates(nothing_S, nothing_S, turnaround_s)


def _reads(arm: Arm) -> bool:
    return arm.policy.partition(":")[0] not in {"off", "static", "mtp", "full"}
