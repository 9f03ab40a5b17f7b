"""Bounds in a picture, and axes of times: from zero, or logarithmic where they are far apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.results.canvas import height
from dspark_sim.schema import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR = 40.0  # times further apart than this are drawn on a logarithmic axis, here and in pages
_NEAR = 3.0  # bounds further above all times than this are not drawn
_LINE: dict[str, Any] = {"color": "#888888", "lw": 1, "ls": (0, (4, 3)), "zorder": 1}
_WORDS: dict[str, Any] = {"textcoords": "offset points", "va": "bottom", "fontsize": 9, "color": "#555555"}


def time_axis(axes: Axes, times: FloatArray, bounds: Iterable[float]) -> bool:
    """Set the upright axis for times and the bounds near them; return whether it is logarithmic."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = float(np.nanmin(times)), float(np.nanmax(times))
    near = [bound for bound in bounds if bound < _NEAR * high]
    if low <= 0 or high < _FAR * low:
        height(axes, [1.0, high, *near])
        return False
    axes.set_yscale("log")
    axes.set_ylim(min([low, *near]) / 1.3, 1.3 * max([high, *near]))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if high < 1e3 * low else (1.0,)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return True


def draw_level(axes: Axes, y: float, words: str) -> None:
    """Draw a bound across the axes, its words at the left; none where it lies above them."""
    if y <= axes.get_ylim()[1]:
        axes.axhline(y, **_LINE)
        axes.annotate(words, (0.006, y), xycoords=("axes fraction", "data"), xytext=(0, 2), **_WORDS)


def draw_upright(axes: Axes, x: float, words: str) -> None:
    """Draw a bound upright through the axes, its words above."""
    axes.axvline(x, **_LINE)
    axes.annotate(words, (x, 1.0), xycoords=("data", "axes fraction"), xytext=(-3, 4), **_WORDS)
