"""What load does to a service: latencies, and who keeps the objectives; curves, or bars at a single rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.results.canvas import dash, height, name, name_margin, new_figure, sign, styled
from dspark_sim.results.curves import Key
from dspark_sim.results.labels import Label, label_ends
from dspark_sim.results.levels import draw_level, draw_upright, time_axis
from dspark_sim.results.plots_load import draw_bar
from dspark_sim.results.serving_tables import Figures, groups, offered, over_seeds
from dspark_sim.results.stats import Interval
from dspark_sim.results.style import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FLAT = 1.0  # the least height of an axis whose curves all lie at 0
RATE_AXIS = "offered rate [requests/s]"
#: A panel of a figure: the figure's name in a run, its factor for the axis, the words at the axis, decimals.
Panel = tuple[str, float, str, int]
_GOODPUT: tuple[Panel, ...] = (
    ("attainment", 100.0, "within all SLOs [%]", 1),
    ("goodput_tok_per_s_per_gpu", 1.0, "goodput [tok/s/GPU]", 0),
)
_MOST = {"attainment": 100.0}  # what a figure cannot pass, nor its interval
_LATENCY: tuple[Panel, ...] = (
    ("ttft_ms", 1.0, "TTFT [ms]", 0),
    ("tpot_ms", 1.0, "TPOT [ms]", 1),
)


def attainment_figure(runs: Sequence[Figures], about: dict[str, Any]) -> Figure:
    """Draw the share of requests that keep all objectives, and goodput, against the offered rate.

    With one rate there is no curve: bars instead, by policy.
    """
    limits = ", ".join(f"{slo} ≤ {entry['limit_ms']:g} ms" for slo, entry in runs[0]["slo"].items())
    with styled():
        figure = _curves(runs, _GOODPUT) if _several(runs) else _bars(runs, _GOODPUT)
        title = "Requests within their SLOs, and what they get done" + _one(runs)
        sign(figure, about, title, _parts(limits, _intervals(runs)))
    return figure


def latency_figure(runs: Sequence[Figures], about: dict[str, Any]) -> Figure:
    """Draw median and 99th percentile of TTFT and TPOT against the offered rate, objectives as dashed lines.

    With one rate: a line by policy, from median over p90 to p99. Times that are far apart get a
    logarithmic axis, which says so.
    """
    bounds = "dashed: objectives" if any(_limits(runs, path) for path, *_ in _LATENCY) else ""
    with styled():
        if _several(runs):
            figure, words = _times(runs), _parts("lines: p99; dotted: median", _intervals(runs), bounds)
        else:
            figure, words = _ranges(runs), _parts("from the median over p90 to p99", bounds)
        sign(figure, about, "Latency" + (_one(runs) or " against the offered rate"), words)
    return figure


def _parts(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _intervals(runs: Sequence[Figures]) -> str:
    """Return what bands, or whiskers of bars, stand for; nothing with one replication."""
    seeds = len({run["seed"] for run in runs})
    drawn = "bands" if _several(runs) else "whiskers"
    return f"{drawn}: 95 % intervals over {seeds} replications" if seeds > 1 else ""


def _limits(runs: Sequence[Figures], path: str) -> dict[str, float]:
    """Return the objectives on a latency: name -> bound [ms]."""
    slos = runs[0].get("slo") or {}
    metric = path.removesuffix("_ms")
    return {name: entry["limit_ms"] for name, entry in slos.items() if name.startswith(f"{metric}_p")}


def _several(runs: Sequence[Figures]) -> bool:
    return len({run["rate_scale"] for run in runs}) > 1


def _one(runs: Sequence[Figures]) -> str:
    """Return `` at N requests/s`` where all runs are at one rate."""
    [scale, *others] = {run["rate_scale"] for run in runs}
    rate = offered(runs, scale)
    return "" if others or rate is None else f" at {rate:,.3g} requests/s"


def _by_policy(runs: Sequence[Figures]) -> dict[Key, list[list[Figures]]]:
    """Return the replications of each policy by rate, rates ascending."""
    found: dict[Key, list[list[Figures]]] = {}
    for group in groups(runs):
        found.setdefault((group[0]["drafter"], group[0]["policy"]), []).append(group)
    return found


def _panels(count: int, found: Mapping[Key, list[list[Figures]]]) -> tuple[Figure, Any]:
    """Return a figure of panels under each other, against the offered rate."""
    figure, axes_P = new_figure(count, 1, sharex=True)
    figure.subplots_adjust(left=0.125, right=1 - name_margin(found))
    axes_P[-1].set_xlabel(RATE_AXIS)
    axes_P[-1].set_xlim(0, 1.04 * max(rate for by_rate in found.values() for rate in _offered(by_rate)))
    return figure, axes_P


def _curves(runs: Sequence[Figures], panels: Sequence[Panel]) -> Figure:
    found = _by_policy(runs)
    figure, axes_P = _panels(len(panels), found)
    for axes, (path, factor, words, _) in zip(axes_P, panels, strict=True):
        labels = [_curve(axes, key, found, path, factor) for key in found]
        height(axes, np.concatenate([[_FLAT], *(label.xy[:, 1] for label in labels)]))
        axes.set_ylabel(words.replace(" [", "\n["))
        label_ends(axes, labels)
    return figure


def _times(runs: Sequence[Figures]) -> Figure:
    found = _by_policy(runs)
    figure, axes_P = _panels(len(_LATENCY), found)
    for axes, (path, factor, words, _) in zip(axes_P, _LATENCY, strict=True):
        limits, times = _limits(runs, path), [f"{path}.{quantile}" for quantile in ("p50", "p99")]
        drawn = [_means(by_rate, time, factor)[1] for by_rate in found.values() for time in times]
        far = time_axis(axes, np.concatenate(drawn), limits.values())
        labels = [_curve(axes, key, found, times[1], factor) for key in found]
        for key, by_rate in found.items():
            rates, medians = _means(by_rate, times[0], factor)
            axes.plot(rates, medians, color=look(key[1]).colour, alpha=0.6, lw=1.2, ls=":")
        axes.set_ylabel(words.replace(" [", "\n[") + (", log" if far else ""))
        for slo, limit in limits.items():
            draw_level(axes, limit, f"{slo} ≤ {limit:g} ms")
        label_ends(axes, labels)
    return figure


def _offered(by_rate: Sequence[Sequence[Figures]]) -> list[float]:
    return [offered(group, group[0]["rate_scale"]) or 0.0 for group in by_rate]


def _means(by_rate: Sequence[Sequence[Figures]], path: str, factor: float) -> tuple[list[float], list[float]]:
    spread = [over_seeds(group, path) for group in by_rate]
    return _offered(by_rate), [factor * interval.mean if interval else float("nan") for interval in spread]


def _curve(axes: Axes, key: Key, found: Mapping[Key, list[list[Figures]]], path: str, factor: float) -> Label:
    style, by_rate = look(key[1]), found[key]
    rates, mean = _means(by_rate, path, factor)
    axes.plot(
        rates, mean, color=style.colour, marker=style.marker, ls=dash(key, found), mec="white", mew=0.8, ms=5
    )
    spread = [over_seeds(group, path) for group in by_rate]
    known = [interval for interval in spread if interval is not None and interval.n > 1]
    if len(known) == len(spread):
        low, high = ([factor * getattr(interval, end) for interval in known] for end in ("low", "high"))
        if axes.get_yscale() == "log":
            low = np.maximum(low, axes.get_ylim()[0]).tolist()
        axes.fill_between(rates, low, high, color=style.colour, alpha=0.18, lw=0)
    return Label(name(key, found), style.text, np.column_stack([rates, mean]))


def _rows(runs: Sequence[Figures], columns: int) -> tuple[Figure, Any, dict[Key, list[list[Figures]]]]:
    """Return a figure with a row for each policy, named at the left."""
    figure, axes_P = new_figure(1, columns, sharey=True)
    found = _by_policy(runs)
    figure.subplots_adjust(left=min(0.4, name_margin(found)), right=0.965, top=0.86, wspace=0.12)
    axes_P[0].set_yticks(range(len(found)), [name(key, found) for key in found])
    axes_P[0].invert_yaxis()
    return figure, axes_P, found


def _bars(runs: Sequence[Figures], panels: Sequence[Panel]) -> Figure:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure, axes_P, found = _rows(runs, len(panels))
    for axes, (path, factor, words, digits) in zip(axes_P, panels, strict=True):
        for row, (key, [group]) in enumerate(found.items()):
            interval = over_seeds(group, path)
            if interval is not None:
                draw_bar(axes, row, key, _scaled(interval, factor), digits, most=_MOST.get(path, np.inf))
        axes.set_xlim(0, 1.2 * max(_FLAT, axes.dataLim.x1))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.set_xlabel(words)
        axes.grid(False, axis="y")
    return figure


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(factor * interval.mean, factor * interval.low, factor * interval.high, interval.n)


def _ranges(runs: Sequence[Figures]) -> Figure:
    from matplotlib.ticker import StrMethodFormatter

    figure, axes_P, found = _rows(runs, len(_LATENCY))
    for axes, (path, factor, words, _) in zip(axes_P, _LATENCY, strict=True):
        for row, (key, [group]) in enumerate(found.items()):
            ends = [over_seeds(group, f"{path}.{quantile}") for quantile in ("p50", "p90", "p99")]
            times = [factor * interval.mean for interval in ends if interval is not None]
            style = look(key[1])
            axes.plot(times, [row] * len(times), color=style.colour, marker=style.marker, lw=2.5, ms=6)
        limits = {slo: ms for slo, ms in _limits(runs, path).items() if ms < 3 * axes.dataLim.x1}
        axes.set_xlim(0, 1.12 * max(_FLAT, axes.dataLim.x1, *limits.values()))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        for slo, limit in limits.items():
            draw_upright(axes, limit, f"{slo} ≤ {limit:g} ms")
        axes.set_xlabel(words)
        axes.grid(False, axis="y")
    return figure
