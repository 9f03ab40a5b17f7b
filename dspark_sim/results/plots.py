"""The picture of a frontier: throughput per GPU against the speed of each user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.results.anchors import draw_anchors
from dspark_sim.results.canvas import (
    GPU_AXIS,
    LEFT,
    USER_AXIS,
    dash,
    dash_words,
    height,
    intervals_words,
    name,
    name_margin,
    new_figure,
    one_load,
    save,
    sign,
    styled,
)
from dspark_sim.results.curves import Arm, Key, arms, pareto
from dspark_sim.results.labels import Label, label_ends, place_labels
from dspark_sim.results.metrics import Point
from dspark_sim.results.plots_load import load_figure
from dspark_sim.results.stats import t_interval
from dspark_sim.results.style import look
from dspark_sim.schema import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["frontier_figure", "load_figure", "save"]

_FAINT = "faint: loads that another load beats in both"


def frontier_figure(points: Sequence[Point], about: dict[str, Any], document: Mapping[str, Any]) -> Figure:
    """Draw throughput per GPU against each user's speed, with SLA anchors as vertical lines.

    Strong: the Pareto set of each policy. Faint: its points that another of its points dominates.

    Args:
        points: of any number of policies, loads and seeds.
        about: document of the run, for the footer.
        document: frontier document of the same points, for the anchors.
    """
    found, dots = arms(points), one_load(points)
    with styled():
        figure, axes = new_figure(1, 1)
        if dots:
            figure.subplots_adjust(left=LEFT, right=1 - name_margin(found))
        labels = [_draw_frontier(axes, key, arm, found) for key, arm in found.items()]
        axes.set(xlabel=USER_AXIS, ylabel=GPU_AXIS)
        axes.set_xlim(0, 1.12 * max(p["tok_per_s_per_user"] for p in points))
        height(axes, [p["tok_per_s_per_gpu"] for p in points])
        uprights = draw_anchors(axes, document)
        if dots:
            label_ends(axes, labels)
        else:
            place_labels(axes, labels, [part for arm in found.values() for part in _ink(arm)], uprights)
        title = "Throughput against the speed of each user"
        against = f"percentages against {document['baseline']}" if document["sla"] else ""
        lines = "" if dots else dash_words(found)
        parts = ("" if dots else _FAINT, lines, intervals_words(points, "crosses"), against)
        sign(figure, about, title + dots, "; ".join(part for part in parts if part))
    return figure


def _draw_frontier(axes: Axes, key: Key, arm: Arm, found: Mapping[Key, Arm]) -> Label:
    style, curve = look(key[1]), arm.mean
    keep = pareto(curve.user, curve.gpu)
    axes.plot(curve.user, curve.gpu, color=style.colour, alpha=0.25, lw=1, marker=style.marker, ms=4)
    order = np.flatnonzero(keep)[np.argsort(curve.user[keep], kind="stable")]
    axes.plot(
        curve.user[order], curve.gpu[order],
        color=style.colour, marker=style.marker, ls=dash(key, found), mec="white", mew=0.8, zorder=3,
    )  # fmt: skip
    if len(arm.by_seed) > 1:
        _draw_errors(axes, arm, order, style.colour)
    return Label(name(key, found), style.text, np.column_stack([curve.user, curve.gpu])[order])


def _draw_errors(axes: Axes, arm: Arm, order: Any, colour: str) -> None:
    user, gpu = _half_widths(arm)
    axes.errorbar(
        arm.mean.user[order], arm.mean.gpu[order], xerr=user[order], yerr=gpu[order], fmt="none",
        ecolor=colour, lw=1, alpha=0.7, zorder=2,
    )  # fmt: skip


def _half_widths(arm: Arm) -> tuple[FloatArray, FloatArray]:
    """Return half the intervals of tok/s/user and tok/s/GPU over seeds, each [C]."""
    seeds, loads = list(arm.by_seed.values()), range(len(arm.mean.user))
    user = [t_interval(seed.user[i] for seed in seeds).half_width for i in loads]
    gpu = [t_interval(seed.gpu[i] for seed in seeds).half_width for i in loads]
    return np.array(user), np.array(gpu)


def _ink(arm: Arm) -> list[FloatArray]:
    """Return everything drawn of an arm that names keep clear of, as polylines in data coordinates."""
    centre = np.column_stack([arm.mean.user, arm.mean.gpu])
    if len(arm.by_seed) < 2:
        return [centre]
    user, gpu = _half_widths(arm)
    reach = [*np.column_stack([user, 0 * user]), *np.column_stack([0 * gpu, gpu])]
    return [
        centre,
        *(np.array([at - half, at + half]) for at, half in zip([*centre] * 2, reach, strict=True)),
    ]
