"""What a run left beside its one row of numbers: distributions, small enough to keep with every point.

Everything that a report draws and a comparison explains, so that neither simulates again: which batch
sizes a policy lived at, what each draft position was verified and accepted, and how times spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.hardware.cost import verify_ms
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.hardware.tables import capture_sizes, pad
from dspark_sim.results.metrics import MS_PER_S, Point, tpot_s
from dspark_sim.schema import FloatArray, IntArray, RunLog

DETAIL = "detail"  # key of a point that holds its detail; no column of the table
#: Shares at which quantiles of times are kept.
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_BINS_PER_OCTAVE = 16


def detail(run: RunLog, profile: HardwareProfile) -> dict[str, Any]:
    """Return the detail of a run; all values are JSON's own.

    Keys: ``batch`` ([smallest, largest, steps] by bin of batch tokens that occurs, ascending; 16 bins
    make an octave), ``batch_tokens``, ``padded_tokens`` (means over steps), ``most_tokens`` (largest
    step), ``verify_ms`` (mean forward pass), ``eager`` (share of steps past the largest captured size),
    ``running`` (mean requests in a step), ``verify_len`` (rounds by verify length 0..G), ``verified``
    and ``accepted`` (rounds by draft position 1..G), ``tpot_ms`` and ``step_ms`` (quantiles at
    :data:`SHARES`; no TPOT where no text of two tokens began and ended in the window).
    """
    tokens = run.steps.batch_tokens
    sizes, steps = np.unique(tokens, return_counts=True)
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    padded = pad(sizes.astype(np.float64), captured)
    forward_ms = verify_ms(profile, int(sizes[-1]), captured)[sizes]
    return {
        "batch": _binned(sizes, steps),
        "batch_tokens": _short(tokens.mean()),
        "padded_tokens": _short((padded * steps).sum() / steps.sum()),
        "most_tokens": int(sizes[-1]),
        "verify_ms": _short((forward_ms * steps).sum() / steps.sum()),
        "eager": _short(steps[sizes > captured[-1]].sum() / steps.sum()) if captured else 0.0,
        "running": _short(run.steps.num_running.mean()),
        "verify_len": run.verify_len_counts.tolist(),
        "verified": run.position_verified.tolist(),
        "accepted": run.position_accepted.tolist(),
        "tpot_ms": _quantiles(tpot_s(run)),
        "step_ms": _quantiles(run.steps.step_s),
    }


def has_details(points: Sequence[Point]) -> bool:
    """Whether every point comes with its detail; folders of older versions have none."""
    return all(DETAIL in p for p in points)


def bin_start(size: int) -> int:
    """Return the lowest size [tokens] of the bin that ``size`` falls in."""
    width = max(1, 2 ** (size.bit_length() - _BINS_PER_OCTAVE.bit_length()))
    return size // width * width if size >= _BINS_PER_OCTAVE else size


def _binned(sizes: IntArray, steps: IntArray) -> list[list[int]]:
    """Return [smallest, largest, steps] of every bin that occurs, ascending."""
    first = np.flatnonzero(np.diff([bin_start(int(size)) for size in sizes], prepend=-1))
    last = np.append(first[1:], len(sizes)) - 1
    count = np.add.reduceat(steps, first)
    return np.column_stack([sizes[first], sizes[last], count]).tolist()  # type: ignore[no-any-return]


def _quantiles(seconds: FloatArray) -> list[float]:
    if not seconds.size:
        return []
    found: NDArray[np.float64] = np.quantile(seconds * MS_PER_S, SHARES)
    return [_short(value) for value in found]


def _short(value: Any) -> float:
    """Return ``value`` to seven significant digits: nobody reads more, and files stay small."""
    return float(f"{float(value):.7g}")
