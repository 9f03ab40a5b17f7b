"""Names beside their lines instead of a legend, where they hide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.schema import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Label:
    """A name to be written beside a polyline, given in data coordinates [P, 2]."""

    text: str
    colour: str
    xy: FloatArray


_STEP_PX = 4.0  # sampling of the lines that labels keep clear of
_PAD_PX = 9.0
_CLOSE_PX = 16.0
_BETWEEN_PX = np.array([10.0, 2.0])  # between two names, beside and above
#: Where a label may sit: direction from its line, nearest first choice.
_SIDES = np.array([[1, 1], [1, 0], [-1, 1], [0, 1], [1, -1], [0, -1], [-1, 0], [-1, -1]], dtype=np.float64)
#: The gaps between place and name in pixels [O, 2]: those of the nearest ring first.
_OFFSETS = np.concatenate([_SIDES * gap for gap in (_PAD_PX, 30.0, 55.0, 85.0)])
_OFFSET_COST = 0.01 * np.arange(len(_OFFSETS)) + np.repeat([0.0, 3.0, 5.0, 8.0], len(_SIDES))

_TRIED, _CROSSING = 80, 0.5  # candidates whose joining line is looked at, and what a place it crosses costs

#: Left, bottom, right, top in pixels.
Box = tuple[float, float, float, float]


def text_box(text: Any) -> Box:
    """Return the pixels that a text covers."""
    extent = text.get_window_extent(text.figure.canvas.get_renderer())
    return extent.x0, extent.y0, extent.x1, extent.y1


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes share pixels."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def place_labels(
    axes: Axes,
    labels: Sequence[Label],
    obstacles: Sequence[FloatArray] = (),
    uprights: Sequence[float] = (),
    size: float = 11.0,
) -> None:
    """Write every label beside its line, where it hides no line and no other label.

    Greedy: candidates are places along the own line, on eight sides, near and far; a candidate costs
    what it would cover. A thin line joins a name to its line from afar. The axes' limits must be final.

    Args:
        axes: where the lines are drawn already.
        labels: names with their lines.
        obstacles: other polylines in data coordinates, each [P, 2], to keep clear of.
        uprights: x of vertical lines to keep clear of.
        size: of the font.
    """
    lines = [_dense(axes.transData.transform(label.xy)) for label in labels]
    ink = [_dense(axes.transData.transform(xy)) for xy in obstacles]
    thin = [_dense(_upright(axes, x)) for x in uprights]
    used = np.zeros((0, 4))
    frame = np.array(axes.bbox.extents)
    for i, label in enumerate(labels):
        text = _write(axes, label, size)
        left, bottom, right, top = text_box(text)
        places = lines[i][::3]
        boxes = _candidates(places, right - left, top - bottom)
        others = np.concatenate([np.zeros((0, 2)), *(line for j, line in enumerate(lines) if j != i)])
        sides = len(_OFFSETS)
        cost = (
            4.0 * _covered(boxes, np.concatenate([others, *ink]))
            + 2.0 * _covered(boxes, np.concatenate([lines[i], *thin]))
            + 1e4 * _overlaps(boxes, used)
            + 1e4 * _outside(boxes, frame)
            + 1.5 * np.repeat(_near(places, others), sides)
            + np.tile(_OFFSET_COST, len(places))
        )
        best = _clearest(cost, np.repeat(places, sides, axis=0), boxes, others)
        used = np.vstack([used, boxes[best]])
        text.set_position(tuple(axes.transData.inverted().transform(boxes[best][:2])))
        if best % sides >= len(_SIDES):
            _join(axes, label, places[best // sides], boxes[best])


def _clearest(cost: FloatArray, places: FloatArray, boxes: FloatArray, others: FloatArray) -> int:
    """Return the candidate of least cost, with what the thin line from its place would cross."""
    few = np.argsort(cost, kind="stable")[:_TRIED]
    share = np.linspace(0.15, 0.85, 8)[:, None]
    crossed = []
    for one in few:
        start, end = places[one], np.clip(places[one], boxes[one, :2], boxes[one, 2:])
        joined = one % len(_OFFSETS) >= len(_SIDES)
        crossed.append(_near(start + share * (end - start), others).sum() if joined else 0.0)
    return int(few[np.argmin(cost[few] + _CROSSING * np.array(crossed))])


def _join(axes: Axes, label: Label, place: FloatArray, box: FloatArray) -> None:
    """Draw a thin line from a name that stands afar to the place on its line."""
    # In data coordinates: pixels of this canvas are not those of the saved picture.
    ends = axes.transData.inverted().transform([place, np.clip(place, box[:2], box[2:])])
    axes.annotate(
        "", ends[0], xytext=ends[1], arrowprops={"arrowstyle": "-", "color": label.colour, "lw": 0.8,
        "shrinkA": 0, "shrinkB": 2},
    )  # fmt: skip


def _upright(axes: Axes, x: float) -> FloatArray:
    """Return a vertical line through the axes in pixels [2, 2]."""
    return np.array(axes.transData.transform([(x, y) for y in axes.get_ylim()]), dtype=np.float64)


def _write(axes: Axes, label: Label, size: float) -> Any:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=3, foreground="white")]
    return axes.text(
        0, 0, label.text, color=label.colour, fontsize=size, fontweight="bold", va="bottom", path_effects=halo
    )


def _dense(xy: FloatArray) -> FloatArray:
    """Return points [D, 2] at most ``_STEP_PX`` pixels apart along a polyline, its vertices included."""
    parts = [xy[:1]]
    for a, b in pairwise(xy):
        count = max(1, int(np.ceil(np.hypot(*(b - a)) / _STEP_PX)))
        parts.append(a + (b - a) * (np.arange(1, count + 1) / count)[:, None])
    return np.concatenate(parts)


def _near(places: FloatArray, others: FloatArray) -> FloatArray:
    """Return how many pixels of other lines run close by each place: there a name would be ambiguous."""
    squared = ((places[:, None, :] - others) ** 2).sum(axis=2)
    count: FloatArray = (squared < _CLOSE_PX**2).sum(axis=1).astype(np.float64)
    return count


def _candidates(places: FloatArray, width: float, height: float) -> FloatArray:
    """Return boxes [offsets x places, 4] (left, bottom, right, top), those around one place together."""
    half = np.array([width, height]) / 2
    centres = (places[:, None, :] + np.sign(_OFFSETS) * half + _OFFSETS).reshape(-1, 2)
    return np.hstack([centres - half, centres + half])


def _covered(boxes: FloatArray, points: FloatArray) -> FloatArray:
    """Return how many of ``points`` lie in each box, widened a little."""
    low, high = boxes[:, None, :2] - 4.0, boxes[:, None, 2:] + 4.0
    inside: FloatArray = np.all((points >= low) & (points <= high), axis=2).sum(axis=1).astype(np.float64)
    return inside


def _overlaps(boxes: FloatArray, taken: FloatArray) -> FloatArray:
    apart = np.any(boxes[:, None, :2] > taken[:, 2:] + _BETWEEN_PX, axis=2) | np.any(
        boxes[:, None, 2:] < taken[:, :2] - _BETWEEN_PX, axis=2
    )
    count: FloatArray = (~apart).sum(axis=1).astype(np.float64)
    return count


def _outside(boxes: FloatArray, frame: FloatArray) -> FloatArray:
    out: FloatArray = (
        np.any(boxes[:, :2] < frame[:2], axis=1) | np.any(boxes[:, 2:] > frame[2:], axis=1)
    ) * 1.0
    return out


def label_ends(axes: Axes, labels: Sequence[Label], size: float = 10.0) -> None:
    """Write every label to the right of the axes, level with the end of its line, none over another.

    A thin line joins a name to the end of its own line. The axes' limits must be final.
    """
    left, right = axes.get_xlim()
    ends = np.array([axes.transData.transform(label.xy[-1]) for label in labels])
    texts = [_write(axes, label, size) for label in labels]
    height = 1.0 + max(text_box(text)[3] - text_box(text)[1] for text in texts)
    for text, label, y_px in zip(texts, labels, spread_out(ends[:, 1], height, axes.bbox.y0), strict=True):
        y = axes.transData.inverted().transform((0.0, y_px))[1]
        text.set(position=(1.022, y), transform=axes.get_yaxis_transform(), verticalalignment="center")
        axes.annotate(
            "", label.xy[-1], xytext=(1.017, y), textcoords=axes.get_yaxis_transform(), annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": label.colour, "lw": 0.8, "shrinkA": 0, "shrinkB": 4},
        )  # fmt: skip
    axes.set_xlim(left, right)


def spread_out(wanted: FloatArray, gap: float, least: float = -np.inf) -> FloatArray:
    """Return places at least ``gap`` apart, in the order of ``wanted``, with the least sum of squared moves.

    Places are moved up together where one would lie below ``least``. Subtracting i gap from the i-th
    turns the condition into "does not fall", so pooling adjacent violators solves it.
    """
    order = np.argsort(wanted, kind="stable")
    offset = gap * np.arange(len(wanted))
    blocks: list[tuple[float, int]] = []  # mean, count
    for value in wanted[order] - offset:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    level = np.repeat([mean for mean, _ in blocks], [count for _, count in blocks])
    places = np.empty(len(wanted))
    places[order] = np.maximum(level, least) + offset
    return places
