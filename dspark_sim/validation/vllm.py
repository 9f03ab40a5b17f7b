"""Cases ``vllm-flash`` and ``vllm-pro``: adaptive verification predicted from two static arms.

An engineer has measured no speculation and one fixed length. Unknowns of step cost, lengths and acceptance
are fitted to these two; every other arm of the sweep, vLLM's adaptive verification among them, is
predicted, and compared with what was measured. What is believed beforehand: ``priors_vllm.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.fit import Unknown
from dspark_sim.fitting.arms import Arm, parse_arms
from dspark_sim.fitting.predict import Predicted, predict
from dspark_sim.fitting.sweep_fit import Frame, SweepFit, fit_sweep
from dspark_sim.fitting.system import Workload
from dspark_sim.hardware.profile import load_profile
from dspark_sim.measured import Measured, read_measured
from dspark_sim.validation.cases import CaseResult, Check, Line, Panel, Role, Row
from dspark_sim.validation.priors_vllm import EXPERTS, PRO_DRAFT_SHARE, UNKNOWNS, USED_ARMS
from dspark_sim.validation.tables import path_of, source_of

BASE = "b300-tp4-dsv4-flash"
#: Eager kernels run at few tuned sizes: a step past the limit costs what the next profiled size does.
STAIRS = {"eager.lookup": "ceil"}
_BLOCK = 7
#: Shorter blocks than the drafter was trained for give invalid output; their cost is valid.
_TRAINED_BLOCK = 5
#: A fall between two loads that counts as a collapse.
_CHANGE = 0.05
_WITHIN = 12.0


@dataclass(frozen=True, slots=True)
class _Bars:
    """Tolerances [%]: adaptive, mean and worst; held rows, mean; share of these within 12%."""

    adaptive: float
    adaptive_worst: float
    held: float
    share: float


@dataclass(frozen=True, slots=True)
class Case:
    """One sweep: its file, model, and bars; ``best``: at how many loads the best arm must be right."""

    name: str
    model: str
    data: str
    gpus: int
    draft_share: float
    bars: _Bars
    best: int | None

    def rows(self) -> list[Measured]:
        """Return the published rows."""
        return read_measured(path_of(self.data))

    def frame(self, seed: int = 0) -> Frame:
        """Return what the fit starts from."""
        base = load_profile(BASE, {**STAIRS, "num_gpus": str(self.gpus)})
        workload = Workload(seed=seed)
        return Frame(base, workload, _BLOCK, EXPERTS[self.model], self.draft_share)

    def unknowns(self) -> tuple[Unknown, ...]:
        """Return the unknowns, with the priors that were written down before any fit."""
        return UNKNOWNS[self.model]


FLASH = Case("vllm-flash", "V4-Flash", "vllm_flash_sweep", 4, 1.0, _Bars(5, 9, 9, 0.70), None)
PRO = Case("vllm-pro", "V4-Pro", "vllm_pro_sweep", 8, PRO_DRAFT_SHARE, _Bars(6, 12, 8, 0.85), 5)


def vllm_flash(seed: int = 0) -> CaseResult:
    """V4-Flash on four B300, on its own measured curve."""
    return _run(FLASH, seed)


def vllm_pro(seed: int = 0) -> CaseResult:
    """V4-Pro on eight B300, on V4-Flash's curve, scaled."""
    return _run(PRO, seed)


def _run(case: Case, seed: int) -> CaseResult:
    rows = case.rows()
    arms = parse_arms([row.arm for row in rows], {})
    fitted = fit_sweep(case.frame(seed), case.unknowns(), arms, [row for row in rows if row.arm in USED_ARMS])
    predicted = predict(fitted.system, arms, rows)
    return CaseResult(
        name=case.name,
        title=f"vLLM's adaptive verification from two static arms: {case.model}, capture limit 1,024",
        sources=[source_of(case.data)],
        rows=[row for p in predicted for row in _both(p)],
        checks=checks(case, predicted, arms),
        panels=panels(predicted, arms),
        notes=_notes(fitted),
        extra={"fitted": fitted.fit.values},
    )


def _both(p: Predicted) -> list[Row]:
    what = f"{p.measured.arm} at {p.measured.concurrency}"
    role: Role = "fitted" if p.measured.arm in USED_ARMS else "predicted"
    user = p.measured.tok_per_s_per_user
    return [
        Row(what, p.measured.tok_per_s, p.tok_per_s, "tok/s", role),
        Row(what, None if np.isnan(user) else user, p.tok_per_s_per_user, "tok/s/user", role),
    ]


def checks(case: Case, predicted: Sequence[Predicted], arms: Mapping[str, Arm]) -> list[Check]:
    """Return the tolerances of a case, over rows that were not fitted."""
    held = [p for p in predicted if p.measured.arm not in USED_ARMS]
    adaptive = np.array([abs(100 * p.error) for p in held if p.measured.arm == "adaptive"])
    size = np.array([abs(100 * p.error) for p in held])
    user = np.array([abs(100 * p.user_error) for p in held])
    right, all_falls = collapses(predicted, arms)
    found = [
        Check("adaptive, tok/s, mean error [%]", adaptive.mean(), case.bars.adaptive),
        Check("adaptive, tok/s, largest error [%]", adaptive.max(), case.bars.adaptive_worst),
        Check("all held rows, tok/s, mean error [%]", size.mean(), case.bars.held),
        Check(
            "share of held rows within 12%", float(np.mean(size <= _WITHIN)), case.bars.share, at_least=True
        ),
        Check("all held rows, tok/s/user, mean error [%]", float(np.nanmean(user)), 10.0),
        Check(
            f"collapses of fixed lengths past 64 users, simulated of {all_falls}",
            right,
            all_falls,
            at_least=True,
        ),
    ]
    if case.best is not None:
        found.append(
            Check("best arm right, of 6 loads", best_right(predicted, arms), case.best, at_least=True)
        )
    return found


def collapses(predicted: Sequence[Predicted], arms: Mapping[str, Arm]) -> tuple[int, int]:
    """Return how many falls of fixed lengths as users double past 64 are simulated, and of how many."""
    at = {(p.measured.arm, p.measured.concurrency): p for p in predicted}
    right = total = 0
    for arm in (name for name, arm in arms.items() if arm.policy.startswith("static")):
        for before, after in ((64, 128), (128, 256)):
            if (arm, before) not in at or (arm, after) not in at:
                continue
            one, two = at[arm, before], at[arm, after]
            if two.measured.tok_per_s < (1 - _CHANGE) * one.measured.tok_per_s:
                total += 1
                right += two.tok_per_s < one.tok_per_s
    return right, total


def best_right(predicted: Sequence[Predicted], arms: Mapping[str, Arm]) -> int:
    """Return at how many loads the simulated best arm is the measured one, invalid outputs left out."""
    valid = [p for p in predicted if not 0 < arms[p.measured.arm].block < _TRAINED_BLOCK]
    right = 0
    for load in {p.measured.concurrency for p in valid}:
        here = [p for p in valid if p.measured.concurrency == load]
        best = max(here, key=lambda p: p.tok_per_s)
        right += best.measured.tok_per_s == max(p.measured.tok_per_s for p in here)
    return right


def panels(predicted: Sequence[Predicted], arms: Mapping[str, Arm]) -> list[Panel]:
    """Return throughput of every row on both sides, and the error of each, by load."""
    throughput, residual = [], []
    for arm in dict.fromkeys(p.measured.arm for p in predicted):
        mine = sorted((p for p in predicted if p.measured.arm == arm), key=lambda p: p.measured.concurrency)
        users = np.array([float(p.measured.concurrency) for p in mine])
        simulated = np.array([p.tok_per_s for p in mine])
        measured = np.array([p.measured.tok_per_s for p in mine])
        policy = arms[arm].policy
        throughput += [
            Line(arm, policy, users, simulated),
            Line(f"{arm}, measured", policy, users, measured, measured=True),
        ]
        residual.append(Line(arm, policy, users, 100 * (simulated / measured - 1)))
    return [
        Panel("", "users", "throughput [tok/s]", throughput),
        Panel("", "users", "simulated over measured, less 1 [%]", residual),
    ]


def _notes(fitted: SweepFit) -> list[str]:
    told = [e for e in fitted.fit.estimates if e.identified]
    kept = [e.name for e in fitted.fit.estimates if not e.identified]
    accepted = fitted.system.acceptance
    return [
        "fitted: " + "; ".join(f"{e.name} {e.value:.3g} ({e.low:.2g} to {e.high:.2g})" for e in told),
        f"left to their priors by the two arms: {', '.join(kept) or 'nothing'}",
        "acceptance by position "
        + " ".join(f"{c:.2f}" for c in accepted.conditional)
        + f": {accepted.accepted_len:.2f} tokens a round of a full block",
    ]
