"""The picture of capacity: what each policy sustains, and its load knee behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dspark_sim.results.canvas import GPU_AXIS, name, name_margin, new_figure, sign, styled
from dspark_sim.results.curves import Key
from dspark_sim.results.plots_load import draw_bar
from dspark_sim.results.stats import Interval
from dspark_sim.results.style import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KNEE = "#999999"
#: What is drawn beside the bars where it is known.
_DRAWN = {"rate_per_s_ci95": "whiskers: 95 % intervals", "knee_per_s": "upright: load knee"}


def capacity_figure(document: Mapping[str, Any]) -> Figure:
    """Draw each policy's sustained rate with interval and knee, and the tokens within its SLOs."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    entries: dict[Key, Mapping[str, Any]] = {(e["drafter"], e["policy"]): e for e in document["answers"]}
    with styled():
        figure, (left, right) = new_figure(1, 2, sharey=True, width_ratios=[1.6, 1])
        figure.subplots_adjust(left=min(0.4, name_margin(entries)), wspace=0.12)
        for row, (key, entry) in enumerate(entries.items()):
            _draw_rate(left, row, key, entry)
            draw_bar(right, row, key, _alone(_tokens(entry)), 0)
        left.set_yticks(range(len(entries)), [name(key, entries) for key in entries])
        left.invert_yaxis()
        right.xaxis.set_major_locator(MaxNLocator(4))
        right.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        for axes, words in (
            (left, "sustained rate [requests/s]"),
            (right, GPU_AXIS.replace("throughput", "goodput")),
        ):
            axes.set_xlim(0, 1.25 * max(1e-9, axes.dataLim.x1))
            axes.set_xlabel(words)
            axes.grid(False, axis="y")
        asked = ", ".join(document["slos"]) or "no objectives: the load knee"
        drawn = [
            what for key_, what in _DRAWN.items() if any(e[key_] is not None for e in document["answers"])
        ]
        sign(figure, document["about"], "Highest rate that is sustained", "; ".join([asked, *drawn]))
    return figure


def _draw_rate(axes: Axes, row: int, key: Key, entry: Mapping[str, Any]) -> None:
    """Draw bar and interval with the rate above the bar's foot, and the knee with its own number."""
    rate, ends, knee = entry["rate_per_s"], entry["rate_per_s_ci95"], entry["knee_per_s"]
    axes.barh(row, rate, 0.68, color=look(key[1]).colour)
    if ends is not None:
        reach = [[rate - ends[0]], [ends[1] - rate]]
        axes.errorbar(rate, row, xerr=reach, fmt="none", ecolor="#333333", lw=1.2, capsize=3)
    words = {"not met": " not met", "beyond": f" > {rate:,.1f}"}.get(entry["status"], f" {rate:,.1f}")
    inside = rate > 0
    axes.text(
        0, row, words, va="center", fontsize=10, color="white" if inside else "#333333",
        fontweight="bold" if inside else "normal",
    )  # fmt: skip
    if knee is not None:
        axes.plot([knee] * 2, [row - 0.4, row + 0.4], color=_KNEE, lw=2)
        axes.text(knee, row, f" knee {knee:,.1f}", va="center", fontsize=9, color="#666666")


def _tokens(entry: Mapping[str, Any]) -> float:
    if entry["status"] == "not met":
        return 0.0
    at = entry["at_rate"]
    return float((at["goodput_tok_per_s_per_gpu"] if entry["slo"] else at["tok_per_s_per_gpu"]) or 0.0)


def _alone(value: float) -> Interval:
    return Interval(value, float("nan"), float("nan"), 1)
