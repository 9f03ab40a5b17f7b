"""The picture of a study: curves with their intervals, the paper's numbers as dashed lines beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.results.canvas import new_figure, save_as, styled, write_edges
from dspark_sim.results.style import DOMAINS, LOOKS, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Look of a curve that is about no drafter: domains, and methods of calibration. Others take ``_OTHERS``.
_SUBJECTS = DOMAINS | {
    "raw": ("#AA3377", "v"),
    "sts": ("#CCA000", "D"),
    "bias": ("#1B7F9C", "o"),
    "ideal": ("#888888", ""),
}
_OTHERS = (("#AA3377", "v"), ("#B15928", "D"), ("#4D4D9F", "P"), ("#7F3C8D", "X"), ("#666666", "h"))
#: Names of drafters in the paper -> whose look they have.
_SAME = {"eagle3": "eagle"}
_COLUMNS, _PANEL, _SIDES = 4, (4.2, 3.6), (1.0, 2.3)  # most panels in a row; inches of one, and around all
_LEAST_WIDTH = 7.4  # inches that a title needs
_DODGE = 0.16  # of a category, between two curves


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
    """One pair of axes; ``top`` fixes the upper end of y, ``names`` are the categories at x = 1, 2, ..."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    top: float | None = None
    names: Sequence[str] = ()


def draw_study(title: str, panels: Sequence[Panel], path: Path, source: str = "") -> None:
    """Draw :func:`study_figure` into a .png or .svg file, replaced; same input, same bytes."""
    save_as(study_figure(title, panels, source), path)


def study_figure(title: str, panels: Sequence[Panel], source: str = "") -> Figure:
    """Draw ``panels`` in rows of at most four, with one legend where all show the same.

    Args:
        title: of the whole picture.
        panels: one or more.
        source: whose drafters and texts they are.
    """
    columns = min(len(panels), _COLUMNS)
    rows = -(-len(panels) // columns)
    width = max(_LEAST_WIDTH, _PANEL[0] * columns + _SIDES[0])
    tall = _PANEL[1] * rows + _SIDES[1]
    looks = _looks(panels)
    with styled():
        figure, grid = new_figure(rows, columns, size=(width, tall), squeeze=False)
        figure.subplots_adjust(
            left=0.85 / width, right=1 - 0.25 / width, top=1 - 1.45 / tall, bottom=0.95 / tall,
            hspace=0.5, wspace=0.28,
        )  # fmt: skip
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw(axes, panel, looks)
        for axes in list(grid.flat)[len(panels) :]:
            axes.remove()
        _legend(figure, list(grid.flat)[: len(panels)], 1 - 0.62 / tall)
        paper = any(curve.paper for panel in panels for curve in panel.curves)
        bars = any(curve.low is not None for panel in panels for curve in panel.curves)
        parts = ["filled: this pair; hollow, dashed: the paper" if paper else "",
                 "bars: 95 % intervals over prompts" if bars else ""]  # fmt: skip
        # Lines under the title keep their distance in inches, however tall the picture is.
        write_edges(
            figure,
            title,
            "; ".join(part for part in parts if part),
            source,
            "SYNTHETIC" in source,
            inches=tall,
        )
    return figure


def _looks(panels: Sequence[Panel]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of every subject: those of its drafter kind everywhere else, or its own."""
    found: dict[str, tuple[str, str]] = {}
    free = list(_OTHERS)
    for subject in dict.fromkeys(curve.look for panel in panels for curve in panel.curves):
        kind = _SAME.get(subject, subject)
        if subject in _SUBJECTS:
            found[subject] = _SUBJECTS[subject]
        elif kind in LOOKS:
            found[subject] = (look(kind).colour, look(kind).marker)
        else:
            found[subject] = free[len(found) % len(free)]
    return found


def _draw(axes: Axes, panel: Panel, looks: Mapping[str, tuple[str, str]]) -> None:
    places = list(dict.fromkeys(curve.look for curve in panel.curves))
    for curve in panel.curves:
        colour, marker = looks[curve.look]
        shift = _DODGE * (places.index(curve.look) - (len(places) - 1) / 2) if panel.names else 0.0
        style: dict[str, Any] = {"color": colour, "marker": marker, "ms": 5, "lw": 1.6, "label": curve.label}
        # Between categories there is nothing: points, not a line.
        line = "none" if panel.names else "--" if curve.paper or curve.look == "ideal" else "-"
        x, y = np.asarray(curve.x, dtype=float) + shift, np.asarray(curve.y, dtype=float)
        if curve.paper or curve.look == "ideal":
            axes.plot(x, y, ls=line, mfc="none", alpha=0.75, **style)
        elif curve.low is None or curve.high is None:
            axes.plot(x, y, ls=line, **style)
        else:
            ends = np.nan_to_num(np.abs([y - np.asarray(curve.low), np.asarray(curve.high) - y]))
            axes.errorbar(x, y, yerr=ends, capsize=2, elinewidth=1, ls=line, **style)
    axes.set_title(panel.title, fontsize=11, pad=6)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    _ticks(axes, panel)
    heights = [y for curve in panel.curves for y in (*curve.y, *(curve.high or ())) if np.isfinite(y)]
    top = panel.top or 1.12 * max(heights, default=1.0)
    axes.set_ylim(0, 1.02 * top if panel.top else top)


def _ticks(axes: Axes, panel: Panel) -> None:
    """Mark categories, and whole numbers where all are few and whole."""
    if panel.names:
        axes.set_xticks(range(1, len(panel.names) + 1), panel.names)
        axes.set_xlim(0.5, len(panel.names) + 0.5)
        axes.grid(False, axis="x")
        return
    marked = sorted({float(x) for curve in panel.curves for x in curve.x})
    if 1 < len(marked) <= 16 and all(x.is_integer() and x >= 1 for x in marked):
        axes.set_xticks(marked, [f"{x:.0f}" for x in marked])


def _legend(figure: Figure, grid: Sequence[Axes], top: float) -> None:
    """Write one legend under the title where no panel says more than another, else one in each."""
    handles = [dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True)) for axes in grid]
    most = max(handles, key=len)
    if all(own.keys() <= most.keys() for own in handles):
        figure.legend(
            most.values(), most.keys(), loc="upper left", bbox_to_anchor=(0.008, top), frameon=False,
            fontsize=10, ncols=max(1, min(len(most), int(figure.get_figwidth() / 1.9))), columnspacing=1.4,
        )  # fmt: skip
        return
    for axes in grid:
        axes.legend(frameon=False, fontsize=9)
