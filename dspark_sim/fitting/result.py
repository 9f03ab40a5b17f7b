"""What a fit found, as the content of its file, and as rows on both sides."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.fitting.arms import Arm
from dspark_sim.fitting.fitted_file import Estimated, Fitted, Provenance, sha256_of
from dspark_sim.fitting.predict import Predicted
from dspark_sim.fitting.sweep_fit import SweepFit, covariance
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.schema import FloatArray

#: Lower and upper bound of every row, each [X].
Bounds = tuple[FloatArray, FloatArray]


def fitted_of(found: SweepFit, arms: Mapping[str, Arm], sweep: str | os.PathLike[str]) -> Fitted:
    """Return a fit as its file has it.

    Args:
        found: the fit.
        arms: every arm of the sweep, by name.
        sweep: file or folder of the sweep.
    """
    unknowns = [
        Estimated(e.name, e.value, e.low, e.high, u.mode, u.spread, e.width, e.identified, u.why)
        for e, u in zip(found.fit.estimates, found.unknowns, strict=True)
    ]
    pct = 100 * np.expm1(found.fit.residuals)
    provenance = Provenance(
        sweep=Path(sweep).name,
        sha256=sha256_of(sweep),
        arms=tuple(dict.fromkeys(row.arm for row in found.used)),
        rows=tuple((row.arm, row.concurrency) for row in found.used),
        unknowns=tuple(unknowns),
        covariance=tuple(tuple(line) for line in covariance(found).tolist()),
        residual_pct=tuple((_or_none(rate), _or_none(user)) for rate, user in pct.tolist()),
    )
    specs = {name: arm.policy for name, arm in arms.items()}
    system = replace(found.system, profile=_named(found.system.profile, provenance))
    return Fitted(system, specs, provenance, "", system.workload.max_output_tokens)


def _named(profile: HardwareProfile, provenance: Provenance) -> HardwareProfile:
    """Return ``profile`` under a name of its own, saying where it comes from."""
    borrowed = any(unknown.name == "verify_scale" for unknown in provenance.unknowns)
    scaled = "another system's, scaled" if borrowed else "its own"
    words = (
        f"fitted to {', '.join(provenance.arms)} of {provenance.sweep}; curves of {profile.name}: {scaled}"
    )
    return replace(profile, name=f"fitted-{Path(provenance.sweep).stem}", description=words)


def fitted_rows(found: SweepFit) -> list[Predicted]:
    """Return the rows of a fit on both sides, without another simulation; NaN where nobody measured."""
    return [
        Predicted(row, row.tok_per_s * math.exp(rate), row.tok_per_s_per_user * math.exp(user))
        for row, (rate, user) in zip(found.used, found.fit.residuals.tolist(), strict=True)
    ]


def json_rows(
    predicted: Iterable[Predicted], used: Sequence[tuple[str, int]], bounds: Bounds | None = None
) -> list[dict[str, Any]]:
    """Return rows for JSON; ``bounds``: interval of tok/s, each [X]."""
    rows = []
    for i, p in enumerate(predicted):
        row = {
            "arm": p.measured.arm,
            "concurrency": p.measured.concurrency,
            "used": (p.measured.arm, p.measured.concurrency) in used,
            "measured_tok_per_s": p.measured.tok_per_s,
            "predicted_tok_per_s": p.tok_per_s,
            "measured_tok_per_s_per_user": p.measured.tok_per_s_per_user,
            "predicted_tok_per_s_per_user": p.tok_per_s_per_user,
        }
        if bounds is not None:
            low, high = bounds
            row |= {"low_tok_per_s": low[i], "high_tok_per_s": high[i]}
        rows.append(row)
    return rows


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
