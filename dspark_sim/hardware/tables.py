"""Reading a measured table at any size: the look-up conventions of the engines, vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.hardware.profile import Beyond, Capture
from dspark_sim.schema import FloatArray


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


def pad(sizes_X: FloatArray, captured: Sequence[int]) -> FloatArray:
    """Round each size up to a captured one; past the largest captured one (eager) it stays. 0 stays 0.

    Args:
        sizes_X: tokens or requests, any shape.
        captured: ascending captured sizes.
    """
    ladder = np.array([0, *captured], dtype=np.float64)
    place = np.searchsorted(ladder, sizes_X)
    return np.where(sizes_X <= ladder[-1], ladder[np.minimum(place, len(ladder) - 1)], sizes_X)


@dataclass(frozen=True, slots=True)
class Table:
    """Values at measured sizes, and how to read between and past them.

    sizes: ascending, at least one.
    values: one per size, any unit.
    beyond: what holds past the last size; below the first its value holds.
    floor: read the largest size not above instead of interpolating linearly.
    """

    sizes: Sequence[int]
    values: Sequence[float]
    beyond: Beyond
    floor: bool = False

    @property
    def slope(self) -> float:
        """Slope past the last size [value per size]; see :data:`dspark_sim.hardware.profile.Beyond`.

        last_octave spans a factor of two, so that a tile step between the last two points (1,024 to
        1,025 tokens costs 1.1 ms on an H100) does not pass for the price of every further token. Never
        negative: a dip at the end of a measurement must not lead to steps that take no time.
        """
        if self.beyond == "hold":
            return 0.0
        last = len(self.sizes) - 1
        half = int(np.searchsorted(self.sizes, self.sizes[-1] / 2, side="right")) - 1
        start = last - 1 if self.beyond == "last_two" else min(max(half, 0), last - 1)
        rise = (self.values[last] - self.values[start]) / (self.sizes[last] - self.sizes[start])
        return max(rise, 0.0)

    def read(self, at_X: FloatArray) -> FloatArray:
        """Return the value at each size of ``at_X``, any shape; exact at the table's own sizes."""
        if self.floor:
            place = np.searchsorted(self.sizes, at_X, side="right") - 1
            inside = np.asarray(self.values, dtype=np.float64)[np.maximum(place, 0)]
        else:
            inside = np.interp(at_X, self.sizes, self.values)
        return inside + self.slope * np.maximum(at_X - self.sizes[-1], 0.0)
