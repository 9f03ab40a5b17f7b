"""SLA anchors in a picture: dashed lines through the data, their words above it, where no data lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dspark_sim.results.labels import text_box

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEM: dict[str, Any] = {"color": "#888888", "lw": 1, "ls": (0, (4, 3))}
_ROW_PX = 15.0
_GAP_PX = 8.0


def anchors_of(document: Mapping[str, Any]) -> list[float]:
    """Return the SLA anchors of a frontier document, each once, ascending [tok/s/user]."""
    return sorted({row["sla"] for row in document["sla"]})


def anchor_words(sla: float, document: Mapping[str, Any]) -> str:
    """Return an anchor with the policy of the best throughput at it, and its gain where there is one."""
    there = [row for row in document["sla"] if row["sla"] == sla and row["feasible"]]
    if not there:
        return f"SLA {sla:g}: not met"
    best = max(there, key=lambda row: row["tok_per_s_per_gpu"])
    change = best["vs_baseline_pct"]
    return f"SLA {sla:g}: {best['policy']}" + ("" if change is None else f" {change:+.0f}%")


def draw_anchors(axes: Axes, document: Mapping[str, Any]) -> list[float]:
    """Draw every anchor: its line through the axes and up to its words, in rows above the axes.

    The axes are made lower for the rows that are needed. An anchor to the right of the axes has words
    and an arrow, no line. The axes' limits must be final; return the x of the lines.
    """
    anchors, right = anchors_of(document), axes.get_xlim()[1]
    texts = [_write(axes, min(sla, right), anchor_words(sla, document), sla > right) for sla in anchors]
    rows = _rows([text_box(text) for text in texts])
    _make_room(axes, 1 + max(rows, default=-1))
    for sla, text, row in zip(anchors, texts, rows, strict=True):
        text.xyann = (text.xyann[0], 3 + _points(axes, row * _ROW_PX))
        if sla <= right:
            axes.axvline(sla, zorder=1, **_STEM)
            _stem(axes, sla, row)
    return [sla for sla in anchors if sla <= right]


def _write(axes: Axes, x: float, words: str, beyond: bool) -> Any:
    """Write to the right of ``x``, or as far left of it as the figure's edge demands."""
    text = axes.annotate(
        words + (" →" if beyond else ""), (x, 1.0), xycoords=("data", "axes fraction"), xytext=(4, 0),
        textcoords="offset points", va="bottom", fontsize=9, color="#555555", zorder=4,
        bbox={"boxstyle": "square,pad=0.1", "fc": "w", "ec": "none"},
    )  # fmt: skip
    over = text_box(text)[2] - 0.99 * axes.figure.bbox.width
    if over > 0:
        text.xyann = (4 - _points(axes, over), 0)
    return text


def _rows(boxes: list[tuple[float, float, float, float]]) -> list[int]:
    """Return the row of each word, lowest 0, the rightmost lowest.

    A line rises to the row of its words; going from right to left, no line crosses words to its left,
    because those lie above it unless they end before it.
    """
    rows: list[int] = []
    for i in range(len(boxes) - 1, -1, -1):
        later = list(zip(boxes[i + 1 :], rows[::-1], strict=True))
        rows.append(1 + max((row for box, row in later if box[0] < boxes[i][2] + _GAP_PX), default=-1))
    return rows[::-1]


def _make_room(axes: Axes, rows: int) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    share = (max(0, rows - 1) * _ROW_PX + 4.0) / figure.bbox.height
    figure.subplots_adjust(top=figure.subplotpars.top - share)


def _stem(axes: Axes, sla: float, row: int) -> None:
    """Draw the line on, from the top of the axes to its words."""
    axes.annotate(
        "", (sla, 1.0), xycoords=("data", "axes fraction"), xytext=(0, _points(axes, (row + 1) * _ROW_PX)),
        textcoords="offset points", arrowprops={"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0} | _STEM,
    )  # fmt: skip


def _points(axes: Axes, pixels: float) -> float:
    """Return pixels of the canvas as typographic points."""
    return pixels * 72 / axes.figure.dpi
