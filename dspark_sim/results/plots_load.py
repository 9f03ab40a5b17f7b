"""What load does to throughput and verification budget: curves, or bars at a single load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.results.canvas import (
    BUDGET_AXIS,
    GPU_AXIS,
    LOAD_AXIS,
    dash,
    dash_words,
    height,
    intervals_words,
    name,
    name_margin,
    new_figure,
    one_load,
    sign,
    styled,
)
from dspark_sim.results.curves import Arm, Key, arms
from dspark_sim.results.labels import Label, label_ends
from dspark_sim.results.metrics import Point
from dspark_sim.results.stats import Interval, t_interval
from dspark_sim.results.style import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def load_figure(points: Sequence[Point], about: dict[str, Any]) -> Figure:
    """Draw throughput per GPU and verification budget against concurrency, one above the other.

    With one load there is no curve: bars instead, by policy.
    """
    with styled():
        several_loads = len({p["concurrency"] for p in points}) > 1
        figure = _load_curves(points) if several_loads else _load_bars(points)
        title = "Throughput and verification budget" + (one_load(points) or " against load")
        lines = dash_words(arms(points)) if several_loads else ""
        words = [lines, intervals_words(points, "bands" if several_loads else "whiskers")]
        sign(figure, about, title, "; ".join(part for part in words if part))
    return figure


def _load_curves(points: Sequence[Point]) -> Figure:
    figure, (top, bottom) = new_figure(2, 1, sharex=True, height_ratios=[1.5, 1])
    found = arms(points)
    figure.subplots_adjust(left=0.115, right=1 - name_margin(found))
    for axes, column, words in (
        (top, "tok_per_s_per_gpu", GPU_AXIS),
        (bottom, "verification_budget", BUDGET_AXIS),
    ):
        labels = [_draw_load(axes, key, found, points, column) for key in found]
        load_axis(axes, sorted({p["concurrency"] for p in points}))
        height(axes, np.concatenate([label.xy[:, 1] for label in labels]))
        axes.set_ylabel(words.replace(" [", "\n["))
        label_ends(axes, labels)
    bottom.set_xlabel(LOAD_AXIS)
    return figure


def _draw_load(axes: Axes, key: Key, found: Mapping[Key, Arm], points: Sequence[Point], column: str) -> Label:
    style = look(key[1])
    mine = [p for p in points if (p["drafter"], p["policy"]) == key]
    loads = sorted({p["concurrency"] for p in mine})
    spread = [t_interval(p[column] for p in mine if p["concurrency"] == load) for load in loads]
    mean = [interval.mean for interval in spread]
    axes.plot(
        loads, mean, color=style.colour, marker=style.marker, ls=dash(key, found), mec="white", mew=0.8, ms=5
    )
    if all(interval.n > 1 for interval in spread):
        low, high = [i.low for i in spread], [i.high for i in spread]
        axes.fill_between(loads, low, high, color=style.colour, alpha=0.18, lw=0)
    return Label(name(key, found), style.text, np.column_stack([loads, mean]))


def load_axis(axes: Axes, loads: Sequence[float]) -> None:
    """Mark the simulated loads; logarithmic where they span more than a factor of 16."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    if loads[-1] > 16 * loads[0]:
        axes.set_xscale("log", base=2)
        axes.set_xlim(loads[0] / 1.15, loads[-1] * 1.15)
    else:
        axes.set_xlim(0, 1.03 * loads[-1])
    axes.xaxis.set_major_locator(FixedLocator(loads))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())


def _load_bars(points: Sequence[Point]) -> Figure:
    from matplotlib.ticker import StrMethodFormatter

    figure, (left, right) = new_figure(1, 2, sharey=True, width_ratios=[1.6, 1])
    found = arms(points)
    names = [name(key, found) for key in found]
    figure.subplots_adjust(left=min(0.4, name_margin(found)), right=0.965, wspace=0.12)
    for axes, column, words, digits in (
        (left, "tok_per_s_per_gpu", GPU_AXIS, 0),
        (right, "verification_budget", BUDGET_AXIS, 2),
    ):
        for row, key in enumerate(found):
            mine = [p[column] for p in points if (p["drafter"], p["policy"]) == key]
            draw_bar(axes, row, key, t_interval(mine), digits)
        axes.set_xlim(0, 1.2 * axes.dataLim.x1)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlabel(words)
        axes.grid(False, axis="y")
    left.set_yticks(range(len(found)), names)
    left.invert_yaxis()
    return figure


def draw_bar(
    axes: Axes, row: int, key: Key, interval: Interval, digits: int, *, most: float = np.inf
) -> None:
    """Draw one policy's bar with its interval, from zero to ``most`` at most, and its number at the end."""
    half = interval.half_width if interval.n > 1 else 0.0
    axes.barh(row, interval.mean, 0.68, color=look(key[1]).colour)
    end = min(interval.mean + half, most)
    if half:
        reach = [[min(half, interval.mean)], [end - interval.mean]]
        axes.errorbar(interval.mean, row, xerr=reach, fmt="none", ecolor="#333333", lw=1.2, capsize=3)
    words = f" {interval.mean:,.{digits}f}"
    axes.text(end, row, words, va="center", fontsize=10, color="#333333")
