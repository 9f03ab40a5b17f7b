"""What a validation case returns: compared numbers, checks with tolerances, and what to draw."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.schema import FloatArray

#: name -> "module:function"; the function takes a seed and returns a :class:`CaseResult`.
CASES: dict[str, str] = {
    "paper": "dspark_sim.validation.paper:paper",
    "vllm-flash": "dspark_sim.validation.vllm:vllm_flash",
    "vllm-pro": "dspark_sim.validation.vllm:vllm_pro",
    "figure5": "dspark_sim.validation.figure5:figure5",
    "dcut": "dspark_sim.validation.dcut:dcut",
    "kv-capped": "dspark_sim.validation.kv_capped:kv_capped",
    "sglang-h200": "dspark_sim.validation.sglang_h200:sglang_h200",
}


Role = Literal["fitted", "predicted"]
Verdict = Literal["ok", "known miss", "broken"]


@dataclass(frozen=True, slots=True)
class Row:
    """One number on both sides. ``role``: fitted on, or predicted; ``bounds``: interval of the simulated.

    ``points``: the error is a difference in the unit itself (percentage points, ratios), not in percent.
    """

    what: str
    measured: float | None
    simulated: float
    unit: str
    role: Role
    bounds: tuple[float, float] | None = None
    points: bool = False

    @property
    def error(self) -> float | None:
        """Simulated over measured - 1 [%], or the difference if ``points``; None without a measurement."""
        if self.measured is None:
            return None
        difference = self.simulated - self.measured
        return difference if self.points else 100 * difference / self.measured


@dataclass(frozen=True, slots=True)
class Check:
    """One tolerance: holds if ``value`` <= ``limit``, or >= it if ``at_least``.

    ``known``: where the tolerance is known not to hold, the value that it had when the miss was written
    down. Such a check prints as a known miss, and breaks as soon as it is missed by more than then.
    """

    what: str
    value: float
    limit: float
    at_least: bool = False
    known: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the tolerance holds."""
        return self._within(self.limit)

    @property
    def verdict(self) -> Verdict:
        """``ok``, ``known miss`` or ``broken``."""
        if self.holds:
            return "ok"
        return "known miss" if self.known is not None and self._within(self.known) else "broken"

    @property
    def passed(self) -> bool:
        """Whether nothing got worse: the tolerance holds, or its known miss has not widened."""
        return self.verdict != "broken"

    @property
    def rule(self) -> str:
        """The tolerance in words."""
        rule = f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        return rule if self.known is None else f"{rule} (known miss: {self.known:g})"

    def _within(self, limit: float) -> bool:
        return bool(self.value >= limit if self.at_least else self.value <= limit)


@dataclass(frozen=True, slots=True)
class Line:
    """One curve to draw: simulated ones as lines with their band, measured ones as dots."""

    label: str
    policy: str
    x: FloatArray
    y: FloatArray
    measured: bool = False
    band: tuple[FloatArray, FloatArray] | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes of a case's picture."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Everything a case says.

    extra: further keys of the JSON document (for ``paper``: series and anchors).
    """

    name: str
    title: str
    sources: Sequence[str]
    rows: Sequence[Row]
    checks: Sequence[Check]
    panels: Sequence[Panel]
    notes: Sequence[str]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no tolerance is broken; a known miss that has not widened is not."""
        return all(check.passed for check in self.checks)

    @property
    def known_misses(self) -> list[Check]:
        """Tolerances that do not hold, and are known not to."""
        return [check for check in self.checks if check.verdict == "known miss"]

    def document(self) -> dict[str, Any]:
        """Return the case as one JSON document."""
        return {
            "schema": "dspark-sim/validate/1",
            "case": self.name,
            "title": self.title,
            "sources": list(self.sources),
            "passed": self.passed,
            "known_misses": [check.what for check in self.known_misses],
            **self.extra,
            "rows": [_row(row) for row in self.rows],
            "checks": [_check(check) for check in self.checks],
            "notes": list(self.notes),
        }


def _check(check: Check) -> dict[str, Any]:
    return {
        "what": check.what,
        "value": check.value,
        "rule": check.rule,
        "verdict": check.verdict,
        "passed": check.passed,
    }


def _row(row: Row) -> dict[str, Any]:
    low, high = row.bounds or (None, None)
    return {
        "what": row.what,
        "role": row.role,
        "unit": row.unit,
        "measured": row.measured,
        "simulated": row.simulated,
        "error": row.error,
        "error_unit": row.unit if row.points else "%",
        "low": low,
        "high": high,
    }


def run_case(name: str, seed: int = 0) -> CaseResult:
    """Run one case.

    Raises:
        InputError: there is none of that name.
    """
    if name not in CASES:
        raise InputError(
            f"no validation case '{name}'{did_you_mean(name, CASES)}; there are: all, {', '.join(CASES)}"
        )
    module, _, function = CASES[name].partition(":")
    case: Callable[[int], CaseResult] = getattr(importlib.import_module(module), function)
    return case(seed)
