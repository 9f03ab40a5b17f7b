"""What one axis does to the throughput of policies, and where the gap to the bound comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.results.canvas import height, new_figure, styled, write_edges
from dspark_sim.results.labels import Label, label_ends
from dspark_sim.results.style import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAME_SHARE = 0.0098  # of the width, per character of a name beside the axes
_GAIN, _LOSS = "#6C8EBF", "#C8553D"
_SPEED = "throughput [tok/s]"


def sensitivity_figure(
    rows: Sequence[dict[str, Any]], words: str, title: str, source: str, synthetic: bool = False
) -> Figure:
    """Draw throughput against the values of an axis, in the order of ``rows``.

    Args:
        rows: ``value``, ``policy`` and ``point`` (with ``tok_per_s``).
        words: what the axis is, with its unit.
        title: of the picture.
        source: what was simulated.
        synthetic: whether the trace is.
    """
    with styled():
        figure, axes = new_figure(1, 1)
        values = list(dict.fromkeys(row["value"] for row in rows))
        policies = list(dict.fromkeys(row["policy"] for row in rows))
        figure.subplots_adjust(
            right=1 - 0.03 - _NAME_SHARE * max(map(len, policies)), top=0.875, bottom=0.155
        )
        labels = []
        for policy in policies:
            mine = {row["value"]: row["point"]["tok_per_s"] for row in rows if row["policy"] == policy}
            style, places = look(policy), np.array([values.index(value) for value in mine])
            # Between conventions or domains there is nothing: points, not a line.
            line = "" if any(isinstance(value, str) for value in values) else "-"
            speeds = np.array(list(mine.values()))
            axes.plot(places, speeds, color=style.colour, marker=style.marker, ls=line, mec="white", mew=0.8)
            labels.append(Label(policy, style.text, np.column_stack([places, speeds])))
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set_xlim(-0.15, len(values) - 0.85)
        height(axes, [row["point"]["tok_per_s"] for row in rows])
        axes.set_xlabel(words)
        axes.set_ylabel(_SPEED)
        label_ends(axes, labels)
        subtitle = "every value meets the same requests in the same order"
        write_edges(figure, title, subtitle, source, synthetic)
    return figure


def waterfall_figure(steps: Sequence[tuple[str, float]], source: str, synthetic: bool = False) -> Figure:
    """Draw what each mended flaw gains, from a policy to the bound.

    Args:
        steps: (what is mended, throughput then [tok/s]), the policy first and the bound last.
        source: what was simulated.
        synthetic: whether the trace is.
    """
    from matplotlib.ticker import StrMethodFormatter

    with styled():
        figure, axes = new_figure(1, 1)
        figure.subplots_adjust(left=0.34, top=0.875, bottom=0.155)
        names = [name for name, _ in steps]
        before = [0.0, *(speed for _, speed in steps[:-1])]
        gains = [speed - start for (_, speed), start in zip(steps, before, strict=True)]
        colours = [look(names[0]).colour, *(_GAIN if gain >= 0 else _LOSS for gain in gains[1:])]
        axes.barh(range(len(steps)), gains, 0.68, left=before, color=colours)
        for place, (gain, (_, speed)) in enumerate(zip(gains, steps, strict=True)):
            words = f"{speed:,.0f}" if place == 0 else f"{gain:+,.0f}"
            axes.annotate(
                words, (max(speed, speed - gain), place), (4, 0), textcoords="offset points", va="center",
                fontsize=10, color="#333333",
            )  # fmt: skip
        axes.set_yticks(range(len(steps)), names)
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlim(0, 1.15 * max(speed for _, speed in steps))
        axes.set_xlabel(_SPEED)
        subtitle = "one flaw mended after the other, on the same requests; the last bar ends at the bound"
        write_edges(figure, f"From {names[0]} to the bound", subtitle, source, synthetic)
    return figure
