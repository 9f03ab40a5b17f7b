"""The picture of a study: curves with their intervals, the paper's numbers as dashed lines beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.results.canvas import new_figure, save_as, styled, write_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Look of a curve by what it is about; others take the next of ``_OTHERS``.
_COLOURS = {
    "dspark": "#009E73",
    "dflash": "#0072B2",
    "mtp": "#E69F00",
    "eagle3": "#E69F00",
    "ideal": "#999999",
}
_OTHERS = ("#CC79A7", "#D55E00", "#332288", "#56B4E9", "#882255")
_MARKERS = {"dspark": "o", "dflash": "s", "mtp": "^", "eagle3": "^"}


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: ``look`` decides colour and marker, ``paper`` draws it dashed; bounds are intervals."""

    label: str
    look: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    paper: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes; ``top`` fixes the upper end of y."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    top: float | None = None


def draw_study(title: str, panels: Sequence[Panel], path: Path) -> None:
    """Draw :func:`study_figure` into a .png or .svg file, replaced; same input, same bytes."""
    save_as(study_figure(title, panels), path)


def study_figure(title: str, panels: Sequence[Panel]) -> Figure:
    """Draw ``panels`` in rows of at most four, one legend each."""
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    with styled():
        figure, grid = new_figure(rows, columns, size=(4.2 * columns + 0.6, 3.6 * rows + 1.5), squeeze=False)
        figure.subplots_adjust(
            left=0.75 / (4.2 * columns + 0.6),
            right=0.985,
            top=1 - 0.95 / (3.6 * rows + 1.5),
            bottom=0.95 / (3.6 * rows + 1.5),
            hspace=0.45,
            wspace=0.24,
        )
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw(axes, panel)
        for axes in list(grid.flat)[len(panels) :]:
            axes.remove()
        paper = any(curve.paper for panel in panels for curve in panel.curves)
        bars = any(curve.low is not None for panel in panels for curve in panel.curves)
        said = "whole lines: this pair" + (", bars: 95 % intervals over prompts" if bars else "")
        write_edges(figure, title, "", said + ("; dashed: the paper" if paper else ""))
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    others: dict[str, str] = {}
    for curve in panel.curves:
        colour = _COLOURS.get(curve.look) or others.setdefault(
            curve.look, _OTHERS[len(others) % len(_OTHERS)]
        )
        marker = _MARKERS.get(curve.look, "o" if curve.look != "ideal" else "")
        style: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "ms": 4.5,
            "lw": 1.6,
            "label": curve.label,
        }
        if curve.paper or curve.look == "ideal":
            axes.plot(curve.x, curve.y, ls="--", mfc="none", alpha=0.75, **style)
        elif curve.low is None or curve.high is None:
            axes.plot(curve.x, curve.y, **style)
        else:
            y = np.asarray(curve.y, dtype=float)
            ends = np.nan_to_num(np.abs([y - np.asarray(curve.low), np.asarray(curve.high) - y]))
            axes.errorbar(curve.x, y, yerr=ends, capsize=2, elinewidth=1, **style)
    axes.set_title(panel.title, fontsize=11, pad=6)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    top = panel.top or 1.12 * max(float(np.nanmax(curve.y)) for curve in panel.curves)
    axes.set_ylim(0, top)
    axes.legend(frameon=False, fontsize=7.5)
