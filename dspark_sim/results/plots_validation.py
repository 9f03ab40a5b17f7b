"""The picture of a validation case: simulated curves with their intervals, measured points over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dspark_sim.results.canvas import new_figure, save_as, styled, write_edges
from dspark_sim.results.labels import Label, label_ends
from dspark_sim.results.plots_load import load_axis
from dspark_sim.results.style import Look, looks
from dspark_sim.schema import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEASURED = "hollow marks: measured"
USERS = "users"  # the x label of panels against load
_MOST_TICKS = 12  # loads that an axis can name
_LEFT = 0.95  # inches that numbers and words left of the axes take
_CHARACTER = 0.092  # inches of a name's character


class LineLike(Protocol):
    """One curve: a line with its band if simulated, dots if measured; it looks like ``policy``."""

    @property
    def label(self) -> str:
        """Name in the legend."""

    @property
    def policy(self) -> str:
        """Policy spec whose colour it takes."""

    @property
    def x(self) -> FloatArray:
        """Positions."""

    @property
    def y(self) -> FloatArray:
        """Values at them."""

    @property
    def measured(self) -> bool:
        """Whether somebody measured it."""

    @property
    def band(self) -> tuple[FloatArray, FloatArray] | None:
        """Lower and upper bound of the values, if it has them."""


class PanelLike(Protocol):
    """One pair of axes."""

    @property
    def title(self) -> str:
        """Title over the axes."""

    @property
    def x_label(self) -> str:
        """Quantity and unit along x."""

    @property
    def y_label(self) -> str:
        """Quantity and unit along y."""

    @property
    def lines(self) -> Sequence[LineLike]:
        """Curves, in order."""


def draw_case(title: str, panels: Sequence[PanelLike], path: Path, source: str = "") -> None:
    """Draw :func:`case_figure` into a .png or .svg file, replaced; same input, same bytes."""
    save_as(case_figure(title, panels, source), path)


def case_figure(title: str, panels: Sequence[PanelLike], source: str = "") -> Figure:
    """Draw ``panels`` side by side: simulated lines with names and bands, measured points as hollow marks.

    A measured mark has the shape of its line's own.

    Args:
        title: of the whole picture.
        panels: one or more.
        source: whose measurements they are.
    """
    with styled():
        width = max(9.6, 6.6 * len(panels))
        figure, grid = new_figure(1, len(panels), size=(width, 6.0), squeeze=False)
        names = [line.label for panel in panels for line in panel.lines if not line.measured]
        beside = 0.3 + _CHARACTER * max(map(len, names), default=0)
        each = (width - len(panels) * (beside + _LEFT)) / len(panels)
        figure.subplots_adjust(
            left=_LEFT / width,
            right=1 - beside / width,
            wspace=(beside + _LEFT) / each,
            top=0.85,
            bottom=0.15,
        )
        styles = looks(line.policy for panel in panels for line in panel.lines)
        for axes, panel in zip(grid[0], panels, strict=True):
            _draw_panel(axes, panel, styles)
        banded = any(line.band is not None for panel in panels for line in panel.lines)
        measured = any(line.measured for panel in panels for line in panel.lines)
        parts = ["lines: simulated", "bands: 95 % intervals" if banded else "", _MEASURED if measured else ""]
        write_edges(figure, title, "; ".join(part for part in parts if part), source)
    return figure


def _draw_panel(axes: Axes, panel: PanelLike, styles: Mapping[str, Look]) -> None:
    from matplotlib.ticker import StrMethodFormatter

    labels = []
    for line in panel.lines:
        style = styles[line.policy]
        if line.band is not None:
            axes.fill_between(line.x, *line.band, color=style.colour, alpha=0.15, lw=0)
        if line.measured:
            axes.plot(line.x, line.y, style.marker, ms=6, mfc="none", mew=1.3, color=style.colour, zorder=3)
        else:
            axes.plot(line.x, line.y, style.marker, ls="-", ms=3.5, color=style.colour, lw=1.8)
            rightmost_last = np.argsort(line.x, kind="stable")
            labels.append(Label(line.label, style.text, np.column_stack([line.x, line.y])[rightmost_last]))
    axes.set_title(panel.title, fontsize=12, pad=8)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    tops = [np.nanmax(line.y if line.band is None else line.band[1]) for line in panel.lines]
    lowest = min(float(np.nanmin(line.y)) for line in panel.lines)
    axes.set_ylim(min(0.0, 1.2 * lowest), 1.08 * float(max(tops)))
    loads = sorted({float(x) for line in panel.lines for x in line.x})
    if panel.x_label == USERS and loads[0] > 0 and 1 < len(loads) <= _MOST_TICKS:
        load_axis(axes, loads)
    else:
        axes.set_xlim(*axes.get_xlim())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if max(tops) > 20 else "{x:g}"))
    label_ends(axes, labels)
