"""The pictures of a run: the frontier, and what load does to throughput and verification budget.

Deterministic: the same points give the same bytes of PNG and SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.files import atomic_path
from dspark_sim.results.curves import Arm, Key, arms, pareto
from dspark_sim.results.labels import Box, Label, label_ends, overlap, place_labels, text_box
from dspark_sim.results.metrics import Point
from dspark_sim.results.notes import footer
from dspark_sim.results.stats import Interval, t_interval
from dspark_sim.results.style import DASHES, SYNTHETIC_RED, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("dspark.mplstyle")
FORMATS = ("png", "svg")
USER_AXIS = "speed of each user [tok/s/user]"
GPU_AXIS = "throughput [tok/s/GPU]"
BUDGET_AXIS = "budget [tok/round]"
LOAD_AXIS = "concurrency [users]"


@contextmanager
def _styled() -> Iterator[None]:
    import matplotlib as mpl

    found = mpl.rc_params_from_file(STYLE, use_default_template=True)
    # Figures choose their own canvas; touching the backend would import pyplot, half a second.
    with mpl.rc_context({key: found[key] for key in found if not key.startswith("backend")}):
        yield


def _figure(rows: int, columns: int, **more: Any) -> tuple[Figure, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.1, right=0.985, bottom=0.135, top=0.9, hspace=0.1, wspace=0.06)
    return figure, figure.subplots(rows, columns, **more)


def _sign(figure: Figure, about: dict[str, Any]) -> None:
    """Write the footer, and say loudly that a trace is synthetic."""
    figure.text(0.012, 0.014, footer(about), fontsize=8.5, color="#777777")
    if about["trace"]["synthetic"]:
        figure.text(
            0.988, 0.988, "SYNTHETIC TRACE", fontsize=11, fontweight="bold", color="white", ha="right",
            va="top", bbox={"boxstyle": "square,pad=0.4", "facecolor": SYNTHETIC_RED, "edgecolor": "none"},
        )  # fmt: skip


def _name(key: Key, several: bool) -> str:
    return f"{key[1]} ({key[0]})" if several else key[1]


def _several(found: Mapping[Key, Arm]) -> bool:
    return len({drafter for drafter, _ in found}) > 1


def _dash(key: Key, found: Mapping[Key, Arm]) -> Any:
    drafters = list(dict.fromkeys(drafter for drafter, _ in found))
    return DASHES[drafters.index(key[0]) % len(DASHES)]


def frontier_figure(points: Sequence[Point], about: dict[str, Any], document: Mapping[str, Any]) -> Figure:
    """Draw throughput per GPU against each user's speed, with SLA anchors as vertical lines.

    Strong: the Pareto set of each policy. Faint: its points that another of its points dominates.

    Args:
        points: of any number of policies, loads and seeds.
        about: document of the run, for the footer.
        document: frontier document of the same points, for the anchors.
    """
    found = arms(points)
    with _styled():
        figure, axes = _figure(1, 1)
        labels = [_draw_frontier(axes, key, arm, found) for key, arm in found.items()]
        axes.set(xlabel=USER_AXIS, ylabel=GPU_AXIS)
        axes.set_title("Throughput against the speed of each user" + _one_load(points))
        if not _one_load(points):
            _subtitle(axes, "one point per load; faint: loads that another load of the policy beats in both")
        axes.set_xlim(0, 1.12 * max(p["tok_per_s_per_user"] for p in points))
        _height(axes, [p["tok_per_s_per_gpu"] for p in points])
        anchors = _draw_anchors(axes, document)
        place_labels(axes, labels, taken=list(anchors.values()), uprights=list(anchors))
        _sign(figure, about)
    return figure


def _subtitle(axes: Axes, words: str) -> None:
    axes.annotate(
        words, (0.0, 1.0), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points",
        fontsize=9, color="#777777",
    )  # fmt: skip


def _draw_frontier(axes: Axes, key: Key, arm: Arm, found: Mapping[Key, Arm]) -> Label:
    style, curve = look(key[1]), arm.mean
    keep = pareto(curve.user, curve.gpu)
    axes.plot(curve.user, curve.gpu, color=style.colour, alpha=0.25, lw=1, marker=style.marker, ms=4)
    order = np.flatnonzero(keep)[np.argsort(curve.user[keep], kind="stable")]
    axes.plot(
        curve.user[order], curve.gpu[order],
        color=style.colour, marker=style.marker, ls=_dash(key, found), mec="white", mew=0.8, zorder=3,
    )  # fmt: skip
    if len(arm.by_seed) > 1:
        _draw_errors(axes, arm, order, style.colour)
    return Label(_name(key, _several(found)), style.text, np.column_stack([curve.user, curve.gpu])[order])


def _draw_errors(axes: Axes, arm: Arm, order: Any, colour: str) -> None:
    seeds = list(arm.by_seed.values())
    user = [t_interval(s.user[i] for s in seeds).half_width for i in order]
    gpu = [t_interval(s.gpu[i] for s in seeds).half_width for i in order]
    axes.errorbar(
        arm.mean.user[order], arm.mean.gpu[order], xerr=user, yerr=gpu, fmt="none", ecolor=colour, lw=1,
        alpha=0.7, zorder=2,
    )  # fmt: skip


def _height(axes: Axes, values: Any) -> None:
    """From zero, because lengths are compared, to a little above the highest value."""
    from matplotlib.ticker import StrMethodFormatter

    axes.set_ylim(0, 1.12 * float(np.max(values)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _one_load(points: Sequence[Point]) -> str:
    """Return `` at N users`` where all points are at one load."""
    loads = {p["concurrency"] for p in points}
    return f" at {min(loads)} user{'s' if min(loads) > 1 else ''}" if len(loads) == 1 else ""


def _draw_anchors(axes: Axes, document: Mapping[str, Any]) -> dict[float, Box]:
    """Draw the anchors in sight and their words, each in the highest free row; return the words' boxes."""
    boxes: dict[float, Box] = {}
    for sla in dict.fromkeys(row["sla"] for row in document["sla"]):
        if sla < axes.get_xlim()[1]:
            axes.axvline(sla, color="#888888", lw=1, ls=(0, (4, 3)), zorder=1)
            boxes[sla] = _write_anchor(axes, sla, _anchor_words(sla, document), list(boxes.values()))
    return boxes


def _write_anchor(axes: Axes, sla: float, words: str, taken: Sequence[Box]) -> Box:
    text = axes.annotate(
        words, (sla, 1.0), xycoords=("data", "axes fraction"), xytext=(4, -2), textcoords="offset points",
        va="top", fontsize=9, color="#555555", bbox={"boxstyle": "square,pad=0.1", "fc": "w", "ec": "none"},
    )  # fmt: skip
    box = text_box(text)
    for row in range(len(taken)):
        if not any(overlap(box, other) for other in taken):
            break
        text.set_position((4, -2 - 28 * (row + 1)))
        box = text_box(text)
    return box


def _anchor_words(sla: float, document: Mapping[str, Any]) -> str:
    """Return the anchor and, where there is one, the policy with the best throughput at it."""
    words = f"SLA {sla:g}"
    there = [row for row in document["sla"] if row["sla"] == sla and row["feasible"]]
    if not there:
        return words + "\nnot met"
    best = max(there, key=lambda row: row["tok_per_s_per_gpu"])
    change = best["vs_baseline_pct"]
    return words + (f"\n{best['policy']}" if change is None else f"\n{best['policy']} {change:+.0f}%")


def load_figure(points: Sequence[Point], about: dict[str, Any]) -> Figure:
    """Draw throughput per GPU and verification budget against concurrency, one above the other.

    With one load there is no curve: bars instead, by policy.
    """
    with _styled():
        several_loads = len({p["concurrency"] for p in points}) > 1
        figure = _load_curves(points) if several_loads else _load_bars(points)
        _sign(figure, about)
    return figure


def _load_curves(points: Sequence[Point]) -> Figure:
    figure, (top, bottom) = _figure(2, 1, sharex=True, height_ratios=[1.5, 1])
    found = arms(points)
    figure.subplots_adjust(
        left=0.115, right=1 - 0.03 - 0.0095 * max(len(_name(key, _several(found))) for key in found)
    )
    for axes, column, words in (
        (top, "tok_per_s_per_gpu", GPU_AXIS),
        (bottom, "verification_budget", BUDGET_AXIS),
    ):
        labels = [_draw_load(axes, key, found, points, column) for key in found]
        _load_axis(axes, sorted({p["concurrency"] for p in points}))
        _height(axes, np.concatenate([label.xy[:, 1] for label in labels]))
        axes.set_ylabel(words.replace(" [", "\n["))
        label_ends(axes, labels)
    bottom.set_xlabel(LOAD_AXIS)
    top.set_title("Throughput and verification budget against load")
    return figure


def _draw_load(axes: Axes, key: Key, found: Mapping[Key, Arm], points: Sequence[Point], column: str) -> Label:
    style = look(key[1])
    mine = [p for p in points if (p["drafter"], p["policy"]) == key]
    loads = sorted({p["concurrency"] for p in mine})
    spread = [t_interval(p[column] for p in mine if p["concurrency"] == load) for load in loads]
    mean = [interval.mean for interval in spread]
    axes.plot(
        loads, mean, color=style.colour, marker=style.marker, ls=_dash(key, found), mec="white", mew=0.8, ms=5
    )
    if all(interval.n > 1 for interval in spread):
        low, high = [i.low for i in spread], [i.high for i in spread]
        axes.fill_between(loads, low, high, color=style.colour, alpha=0.18, lw=0)
    return Label(_name(key, _several(found)), style.text, np.column_stack([loads, mean]))


def _load_axis(axes: Axes, loads: list[int]) -> None:
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

    figure, (left, right) = _figure(1, 2, sharey=True, width_ratios=[1.6, 1])
    found = arms(points)
    names = [_name(key, _several(found)) for key in found]
    figure.subplots_adjust(left=min(0.4, 0.035 + 0.0095 * max(map(len, names))), wspace=0.12)
    for axes, column, words, digits in (
        (left, "tok_per_s_per_gpu", GPU_AXIS, 0),
        (right, "verification_budget", BUDGET_AXIS, 2),
    ):
        for row, key in enumerate(found):
            mine = [p[column] for p in points if (p["drafter"], p["policy"]) == key]
            _draw_bar(axes, row, key, t_interval(mine), digits)
        axes.set_xlim(0, 1.2 * axes.dataLim.x1)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlabel(words)
        axes.grid(False, axis="y")
    left.set_yticks(range(len(found)), names)
    left.invert_yaxis()
    left.set_title("Throughput and verification budget" + _one_load(points))
    return figure


def _draw_bar(axes: Axes, row: int, key: Key, interval: Interval, digits: int) -> None:
    half = interval.half_width if interval.n > 1 else 0.0
    axes.barh(row, interval.mean, 0.68, color=look(key[1]).colour)
    if half:
        axes.errorbar(interval.mean, row, xerr=half, fmt="none", ecolor="#333333", lw=1.2, capsize=3)
    words = f" {interval.mean:,.{digits}f}"
    axes.text(interval.mean + half, row, words, va="center", fontsize=10, color="#333333")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``figure`` as PNG and SVG into ``folder``; return the paths."""
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with _styled():
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else {}
            with atomic_path(path) as temporary:
                figure.savefig(temporary, metadata=metadata)
    return paths
