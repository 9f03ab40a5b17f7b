"""A sweep as a fit sees it: rows whose user speed was cut off by an axis have none."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.measured import Measured, read_measured


def read_sweep(path: str | os.PathLike[str], cut: float | None = None) -> tuple[list[Measured], list[str]]:
    """Read a sweep; return its rows, and what was left out, one line each.

    Figures clamp an axis: a smallest tok/s/user that two rows share to the last digit is taken for the
    clamp, and theirs count as not measured.

    Args:
        path: as :func:`~dspark_sim.measured.read_measured`.
        cut: values of tok/s/user up to this one are clamped; 0: none is; None: found as above.

    Raises:
        InputError: no such file, or two rows of one arm and load.
        DataError: the content breaks the format.
    """
    rows = read_measured(path)
    twice = [at for at, n in Counter((row.arm, row.concurrency) for row in rows).items() if n > 1]
    if twice:
        arm, load = twice[0]
        raise InputError(f"{path}: arm {arm} at concurrency {load} is there twice; keep one")
    clamp = _clamp(rows) if cut is None else cut
    notes = []
    for i, row in enumerate(rows):
        if row.tok_per_s_per_user <= clamp:
            rows[i] = replace(row, tok_per_s_per_user=math.nan)
            notes.append(
                f"{row.arm} at {row.concurrency}: tok/s/user {row.tok_per_s_per_user:g} "
                "is where the axis was cut; not used"
            )
    return rows, notes


def _clamp(rows: Sequence[Measured]) -> float:
    speeds = [row.tok_per_s_per_user for row in rows if not math.isnan(row.tok_per_s_per_user)]
    least = min(speeds, default=0.0)
    return least if speeds.count(least) > 1 else 0.0


def used_rows(rows: Sequence[Measured], arms: Sequence[str]) -> list[Measured]:
    """Return the rows of the named arms.

    Raises:
        InputError: an arm that the sweep lacks.
    """
    known = list(dict.fromkeys(row.arm for row in rows))
    for arm in arms:
        if arm not in known:
            raise InputError(
                f"--arms {arm}: the sweep has no such arm{did_you_mean(arm, known)}; "
                f"it has: {', '.join(known)}"
            )
    return [row for row in rows if row.arm in arms]
