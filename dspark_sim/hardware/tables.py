"""Reading a measured table at any size: the look-up conventions of the engines, vectorised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dspark_sim.hardware.profile import Beyond, Capture
from dspark_sim.schema import FloatArray, IntArray


def vllm_capture_sizes(limit: int) -> list[int]:
    """Return vLLM's default CUDA-graph sizes up to ``limit`` [tokens].

    1, 2, 4, then every 8 up to 256, then every 16 (``VllmConfig._set_cudagraph_sizes``); the 83 sizes
    of the published B300 profile up to 1,024 are exactly these.
    """
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, limit + 1, 16)) if size <= limit]


def capture_sizes(capture: Capture | None, table: Sequence[int]) -> list[int]:
    """Return the sizes that are captured [tokens], ascending; empty if nothing is.

    Args:
        capture: the profile's section, None if it knows no graphs.
        table: sizes of the verify table, for ``sizes: table``.
    """
    if capture is None:
        return []
    if capture.sizes == "vllm":
        return vllm_capture_sizes(capture.limit)
    sizes = table if isinstance(capture.sizes, str) else capture.sizes
    return [size for size in sizes if size <= capture.limit]


def pad(sizes_X: IntArray, captured: Sequence[int]) -> IntArray:
    """Round each size up to a captured one; past the largest captured one (eager) it stays. 0 stays 0.

    Args:
        sizes_X: tokens or requests, any shape.
        captured: ascending captured sizes.
    """
    ladder = np.array([0, *captured])
    place = np.searchsorted(ladder, sizes_X)
    return np.where(sizes_X <= ladder[-1], ladder[np.minimum(place, len(ladder) - 1)], sizes_X)


def tail_slope(sizes: Sequence[int], values: Sequence[float], beyond: Beyond) -> float:
    """Return the slope past the last size [value per size]; see :data:`dspark_sim.hardware.profile.Beyond`.

    last_octave spans a factor of two, so that a tile step between the last two points (1,024 to 1,025
    tokens costs 1.1 ms on an H100) does not pass for the price of every further token.
    """
    if beyond == "hold":
        return 0.0
    half = int(np.searchsorted(sizes, sizes[-1] / 2, side="right")) - 1
    start = len(sizes) - 2 if beyond == "last_two" else min(max(half, 0), len(sizes) - 2)
    return (values[-1] - values[start]) / (sizes[-1] - sizes[start])


def read_table(
    at_X: FloatArray | IntArray, sizes: Sequence[int], values: Sequence[float], floor: bool, beyond: Beyond
) -> FloatArray:
    """Read a table at ``at_X``; equals the table at its own sizes exactly.

    Args:
        at_X: sizes to read at, any shape; below the first size of the table its value holds.
        sizes: ascending sizes of the table.
        values: one per size.
        floor: the largest size not above, instead of linear interpolation.
        beyond: what holds past the last size.
    """
    if floor:
        place = np.searchsorted(sizes, at_X, side="right") - 1
        inside = np.asarray(values, dtype=np.float64)[np.maximum(place, 0)]
    else:
        inside = np.interp(at_X, sizes, values)
    over = np.maximum(np.asarray(at_X, dtype=np.float64) - sizes[-1], 0.0)
    return inside + tail_slope(sizes, values, beyond) * over
