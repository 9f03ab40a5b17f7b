"""Learning curves: what a training run (or several beside each other) had reached after how many anchors."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_sim.errors import DataError
from dspark_sim.results.canvas import new_figure, save_as, styled, write_edges
from dspark_sim.results.labels import Label, label_ends
from dspark_sim.results.style import DOMAINS, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Rows of a ``curve.csv``: column to value.
Curve = Sequence[Mapping[str, float]]
_OWN = ("#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7")


def read_curve(path: str | os.PathLike[str]) -> list[dict[str, float]]:
    """Read the table that training writes.

    Raises:
        DataError: unreadable, empty, or without the columns ``anchors`` and ``tau``.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as handle:
            rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(handle)]
    except (OSError, ValueError, TypeError) as error:
        raise DataError(path, "", f"not a learning curve ({error})") from None
    if not rows or not {"anchors", "tau"} <= rows[0].keys():
        raise DataError(path, "", "a learning curve has the columns anchors and tau, and a row at least")
    return rows


def draw_curves(curves: Mapping[str, Curve], path: Path, source: str) -> None:
    """Write ``learning_figure`` to a .png or .svg file."""
    save_as(learning_figure(curves, source), path)


def learning_figure(curves: Mapping[str, Curve], source: str) -> Figure:
    """Draw accepted length against anchors trained on, and acceptance by position at the end.

    Args:
        curves: by the name of the run; a single run is drawn domain by domain as well.
        source: what was trained on what.
    """
    with styled():
        figure, (left, right) = new_figure(1, 2)
        figure.subplots_adjust(left=0.085, right=0.9, top=0.87, bottom=0.155, wspace=0.42)
        left.set_xlabel("anchors trained on [thousands]")
        left.set_ylabel("accepted length [tokens/round]")
        right.set_xlabel("draft position")
        right.set_ylabel("conditional acceptance")
        lengths, positions = _draw_lengths(left, curves), _draw_positions(right, curves)
        # A round yields one token at least: that is where lengths start.
        left.set_ylim(bottom=1)
        left.set_xlim(left=0)
        right.set_ylim(bottom=0)
        label_ends(left, lengths)
        label_ends(right, positions)
        title = "Learning curve" if len(curves) == 1 else "Learning curves"
        subtitle = (
            "exact full-block replay of texts of held-out prompts; a round yields 1 token at least; "
            "right: all domains, at the end"
        )
        write_edges(figure, title, subtitle, source)
    return figure


def _draw_lengths(axes: Axes, curves: Mapping[str, Curve]) -> list[Label]:
    labels = []
    for name, rows in curves.items():
        columns = {"tau": "mean" if len(curves) == 1 else name}
        if len(curves) == 1:
            columns |= {key: key[4:] for key in rows[0] if key.startswith("tau_")}
        for n, (column, words) in enumerate(columns.items()):
            own = DOMAINS.get(words, (_OWN[n % len(_OWN)], "o"))
            found = (*own, own[0]) if len(curves) == 1 else _look(name)
            xy = [(row["anchors"] / 1000, row[column]) for row in rows]
            labels.append(_line(axes, words, xy, found))
    return labels


def _draw_positions(axes: Axes, curves: Mapping[str, Curve]) -> list[Label]:
    labels = []
    for name, rows in curves.items():
        found = (_OWN[0], "o", _OWN[0]) if len(curves) == 1 else _look(name)
        positions = [int(key[7:]) for key in rows[-1] if key.startswith("accept_")]
        xy = [(float(j), rows[-1][f"accept_{j}"]) for j in positions]
        labels.append(_line(axes, name, xy, found))
    return labels


def _look(name: str) -> tuple[str, str, str]:
    """Return colour, marker, and colour of its words, of a drafter kind."""
    found = look(name)
    return found.colour, found.marker, found.text


def _line(axes: Axes, words: str, xy: Sequence[tuple[float, float]], found: tuple[str, str, str]) -> Label:
    import numpy as np

    colour, marker, dark = found
    points = np.array(xy, dtype=np.float64)
    axes.plot(points[:, 0], points[:, 1], color=colour, marker=marker, mec="white", mew=0.8, ms=5)
    return Label(words, dark, points)
