"""What all pictures of a run share: style, canvas, title, footer, names, honest axes, files.

Deterministic: the same points give the same bytes of PNG and SVG.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim import __version__
from dspark_sim.files import atomic_path
from dspark_sim.results.curves import Key
from dspark_sim.results.metrics import Point
from dspark_sim.results.notes import footer
from dspark_sim.results.style import DASHES, SYNTHETIC_RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("dspark.mplstyle")
FORMATS = ("png", "svg")
USER_AXIS = "speed of each user [tok/s/user]"
GPU_AXIS = "throughput [tok/s/GPU]"
BUDGET_AXIS = "budget [tok/round]"
LOAD_AXIS = "concurrency [users]"
LEFT, RIGHT = 0.1, 0.985  # of the axes, as shares of the width
_FOOTER_LINES = 2  # that no picture's axes reach into
_FOOTER_CHARACTERS = 128  # that fit in a line of a figure of the usual width
_NAME_SHARE = 0.0095  # of the width, per character of a name beside the axes


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the one style, whatever the user's own settings are."""
    import matplotlib as mpl

    found = mpl.rc_params_from_file(STYLE, use_default_template=True)
    # Figures choose their own canvas; touching the backend would import pyplot, half a second.
    with mpl.rc_context({key: found[key] for key in found if not key.startswith("backend")}):
        yield


def new_figure(
    rows: int, columns: int, size: tuple[float, float] | None = None, **more: Any
) -> tuple[Figure, Any]:
    """Return a figure with its axes; ``size`` in inches, ``more`` goes to ``Figure.subplots``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=LEFT, right=RIGHT, bottom=0.135, top=0.88, hspace=0.1, wspace=0.06)
    return figure, figure.subplots(rows, columns, **more)


def sign(figure: Figure, about: dict[str, Any], title: str, subtitle: str = "") -> None:
    """Write title and footer of a run's picture at its edges, and say loudly that a trace is synthetic."""
    write_edges(figure, title, subtitle, footer(about), about["trace"]["synthetic"])


def write_edges(
    figure: Figure, title: str, subtitle: str, source: str, synthetic: bool = False, *, inches: float = 6.0
) -> None:
    """Write a title, a line under it, and at the foot where the picture comes from and the version.

    Args:
        figure: what to write on.
        title: of the picture; made smaller where it is long.
        subtitle: one line on how to read it.
        source: what was simulated or measured; folded where it is long.
        synthetic: whether the acceptance was drawn from a model: said loudly.
        inches: height of the figure that the words keep their distance from its edges by.
    """
    width, tall = figure.get_figwidth(), 6.0 / inches
    room = (56 if synthetic else 72) * width / 9.6
    size = 15 * min(1.0, room / max(len(title), 1))
    figure.text(0.012, 1 - 0.022 * tall, title, fontsize=size, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.07 * tall, subtitle, fontsize=9, color="#777777", va="top")
    words = _footer_words(source, round(_FOOTER_CHARACTERS * width / 9.6))
    figure.text(0.012, 0.012 * tall, words, fontsize=8.5, color="#777777", va="bottom", linespacing=1.15)
    if synthetic:
        figure.text(
            0.988, 0.98, "SYNTHETIC TRACE", fontsize=11, fontweight="bold", color="white", ha="right",
            va="top", bbox={"boxstyle": "square,pad=0.4", "facecolor": SYNTHETIC_RED, "edgecolor": "none"},
        )  # fmt: skip


def _footer_words(source: str, width: int) -> str:
    """Return source and version in at most two lines of ``width`` characters, the source cut for it."""
    version = f"dspark-sim {__version__}"
    words = source if version in source else " · ".join(filter(None, [source, version]))
    kept = source.split()
    while len(textwrap.wrap(words, width)) > _FOOTER_LINES:
        kept.pop()
        words = f"{' '.join(kept)} … · {version}"
    return textwrap.fill(words, width)


def name(key: Key, found: Iterable[Key]) -> str:
    """Return what a curve is called: the drafter is named only where its policy ran with several."""
    return (
        f"{key[1]} ({key[0]})"
        if len({drafter for drafter, policy in found if policy == key[1]}) > 1
        else key[1]
    )


def name_margin(found: Mapping[Key, Any]) -> float:
    """Return the share of the width that names beside the axes take, leader lines included."""
    return 0.03 + _NAME_SHARE * max(len(name(key, found)) for key in found)


def dash(key: Key, found: Mapping[Key, Any]) -> Any:
    """Return the line style of a curve: one per drafter."""
    drafters = list(dict.fromkeys(drafter for drafter, _ in found))
    return DASHES[drafters.index(key[0]) % len(DASHES)]


def dash_words(found: Mapping[Key, Any]) -> str:
    """Return which drafter has which line; nothing where there is one."""
    drafters = list(dict.fromkeys(drafter for drafter, _ in found))
    kinds = ("whole", "dashed", "dotted", "dash-dotted")
    if len(drafters) == 1:
        return ""
    return "drafters: " + ", ".join(f"{kinds[i % len(kinds)]} {name}" for i, name in enumerate(drafters))


def height(axes: Axes, values: Any) -> None:
    """From zero, because lengths are compared, to a little above the highest value."""
    from matplotlib.ticker import StrMethodFormatter

    axes.set_ylim(0, 1.12 * float(np.max(values)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def one_load(points: Sequence[Point]) -> str:
    """Return `` at N users`` where all points are at one load."""
    loads = {p["concurrency"] for p in points}
    return f" at {min(loads)} user{'s' if min(loads) > 1 else ''}" if len(loads) == 1 else ""


def intervals_words(points: Sequence[Point], drawn: str) -> str:
    """Return what ``drawn`` stands for, where there are several seeds; else ``""``."""
    seeds = len({p["seed"] for p in points})
    return f"{drawn}: 95 % intervals over {seeds} seeds" if seeds > 1 else ""


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``figure`` as PNG and SVG into ``folder``; return the paths."""
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    for path in paths:
        save_as(figure, path)
    return paths


def save_as(figure: Figure, path: Path) -> None:
    """Write ``figure`` to a .png or .svg file, atomically; the same picture gives the same bytes."""
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    with styled(), atomic_path(path) as temporary:
        figure.savefig(temporary, metadata=metadata)
