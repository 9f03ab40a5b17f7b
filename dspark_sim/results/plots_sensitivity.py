"""What one axis does to the throughput of policies: a line a policy."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dspark_sim.results.canvas import height, new_figure, styled
from dspark_sim.results.style import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 130  # characters of a footer's line


def sensitivity_figure(rows: Sequence[dict[str, Any]], words: str, title: str, footer: str) -> Figure:
    """Draw throughput against the values of an axis, in the order of ``rows``.

    Args:
        rows: ``value``, ``policy`` and ``point`` (with ``tok_per_s``).
        words: what the axis is, with its unit.
        title: of the picture.
        footer: what was simulated.
    """
    with styled():
        figure, axes = new_figure(1, 1)
        values = list(dict.fromkeys(row["value"] for row in rows))
        for policy in dict.fromkeys(row["policy"] for row in rows):
            mine = {row["value"]: row["point"]["tok_per_s"] for row in rows if row["policy"] == policy}
            style = look(policy)
            places = [values.index(value) for value in mine]
            # Between conventions or domains there is nothing: points, not a line.
            line = "" if any(isinstance(value, str) for value in values) else "-"
            axes.plot(
                places, list(mine.values()), color=style.colour, marker=style.marker, ls=line, label=policy
            )
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        height(axes, [row["point"]["tok_per_s"] for row in rows])
        axes.set_xlabel(words)
        axes.set_ylabel("output tokens per second [tok/s]")
        axes.legend(loc="lower left")
        figure.text(0.012, 0.978, title, fontsize=15, fontweight="bold", va="top")
        figure.text(0.012, 0.014, textwrap.fill(footer, _WIDTH), fontsize=8.5, color="#777777")
    return figure


def waterfall_figure(steps: Sequence[tuple[str, float]], footer: str) -> Figure:
    """Draw what each mended flaw gains, from a policy to the bound.

    Args:
        steps: (what is mended, throughput then [tok/s]), the policy first and the bound last.
        footer: what was simulated.
    """
    from matplotlib.ticker import StrMethodFormatter

    with styled():
        figure, axes = new_figure(1, 1)
        figure.subplots_adjust(left=0.34)
        names = [name for name, _ in steps]
        before = [0.0, *(speed for _, speed in steps[:-1])]
        gains = [speed - start for (_, speed), start in zip(steps, before, strict=True)]
        colours = [look(names[0]).colour, *("#4c9f70" if gain >= 0 else "#b5483a" for gain in gains[1:])]
        axes.barh(range(len(steps)), gains, left=before, color=colours)
        for place, (gain, (_, speed)) in enumerate(zip(gains, steps, strict=True)):
            words = f"{speed:,.0f}" if place == 0 else f"{gain:+,.0f}"
            axes.annotate(
                words, (max(speed, speed - gain), place), (4, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(range(len(steps)), names)
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlim(0, 1.15 * max(speed for _, speed in steps))
        axes.set_xlabel("output tokens per second [tok/s]")
        figure.text(0.012, 0.978, "From the policy to the bound", fontsize=15, fontweight="bold", va="top")
        figure.text(0.012, 0.014, textwrap.fill(footer, _WIDTH), fontsize=8.5, color="#777777")
    return figure
