"""Where a fit starts: which unknowns apply, and how a borrowed curve is scaled before anything is fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.fit import Unknown
from dspark_sim.fitting.arms import Arm
from dspark_sim.fitting.sweep_fit import Frame
from dspark_sim.fitting.system import ACCEPTANCE, KNOWN
from dspark_sim.hardware.forward import forward_ms
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.measured import Measured

#: A scale that one row of measurements tells: spread of its logarithm.
_BORROWED_SPREAD = 0.3
_LEAST_SCALE = 0.05


def applicable(unknowns: Sequence[Unknown], frame: Frame, arms: Mapping[str, Arm]) -> list[Unknown]:
    """Return the unknowns that some row depends on.

    Args:
        unknowns: with priors.
        frame: what the fit starts from.
        arms: of the rows that may be used.
    """
    missing: set[str] = set()
    if frame.base.eager is None:
        missing |= {"eager_scale", "eager_far"}
    if frame.base.experts is None and frame.experts is None:
        missing.add("experts_ms")
    if frame.workload.prefill.partition(":")[0] != "mixed":
        missing.add("mixed_ms")
    if not any(arm.block for arm in arms.values()):
        missing |= {"speculating_ms", *ACCEPTANCE}
    return [unknown for unknown in unknowns if unknown.name not in missing]


def scaled_to(
    unknowns: Sequence[Unknown], base: HardwareProfile, rows: Sequence[Measured], arms: Mapping[str, Arm]
) -> list[Unknown]:
    """Return ``unknowns`` with the scales of a borrowed curve centred on one row without speculation.

    The least loaded one: there a step is the forward pass of as many tokens as users, and host time. The
    scale of the eager tail, bound by launches, keeps its ratio to that of the verify table. Without such a
    row, priors stay.
    """
    plain = [row for row in rows if not arms[row.arm].block and not math.isnan(row.tok_per_s_per_user)]
    if not plain:
        return list(unknowns)
    row = min(plain, key=lambda r: r.concurrency)
    modes = {unknown.name: unknown.mode for unknown in unknowns}
    captured = capture_sizes(base.capture, base.verify.tokens)
    forward = float(forward_ms(base, np.array([float(row.concurrency)]), captured)[0])
    rest = modes.get("host_constant_ms", base.host.constant_ms) + modes.get("verify_fixed_ms", 0.0)
    scale = max((1e3 / row.tok_per_s_per_user - rest) / forward, _LEAST_SCALE)
    ratio = modes.get("eager_scale", 1.0) / modes.get("verify_scale", 1.0)
    why = f"{row.arm} at {row.concurrency}: measured step less host time, over the borrowed curve's"
    centred = {
        "verify_scale": Unknown("verify_scale", scale, _BORROWED_SPREAD, why),
        "eager_scale": Unknown("eager_scale", scale * ratio, _BORROWED_SPREAD, f"{why}; launches scale less"),
    }
    return [centred.get(unknown.name, unknown) for unknown in unknowns]


def with_priors(unknowns: Sequence[Unknown], words: Sequence[str]) -> list[Unknown]:
    """Return ``unknowns`` with priors replaced, or added, by ``NAME=MODE:SPREAD`` words; spread 0 holds it.

    Raises:
        InputError: a word that is not of that form, or a name that nothing depends on.
    """
    found = {unknown.name: unknown for unknown in unknowns}
    for word in words:
        name, _, law = word.partition("=")
        mode, colon, spread = law.partition(":")
        if name not in KNOWN:
            raise InputError(
                f"--unknown {word}: no unknown '{name}'{did_you_mean(name, KNOWN)}; known: {', '.join(KNOWN)}"
            )
        try:
            prior = Unknown(name, float(mode), float(spread), "given on the command line")
        except ValueError:
            prior = Unknown(name, -1.0, -1.0, "")
        if not colon or not (0 < prior.mode < math.inf and 0 <= prior.spread < math.inf):
            form = "NAME=MODE:SPREAD, a mode above 0 and the spread of its logarithm"
            raise InputError(f"--unknown {word}: expected {form}, as in host_constant_ms=0.8:0.4")
        found[name] = replace(prior, spread=max(prior.spread, _HELD))
    return list(found.values())


#: Spread of an unknown that is held.
_HELD = 1e-6
