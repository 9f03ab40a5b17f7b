"""The picture of a validation case: simulated curves with their intervals, measured points over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dspark_sim.files import atomic_path
from dspark_sim.results.style import look
from dspark_sim.schema import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class LineLike(Protocol):
    """One curve: a line with its band if simulated, dots if measured; it looks like ``policy``."""

    @property
    def label(self) -> str:
        """Name in the legend."""

    @property
    def policy(self) -> str:
        """Policy spec whose colour it takes."""

    @property
    def x(self) -> FloatArray:
        """Positions."""

    @property
    def y(self) -> FloatArray:
        """Values at them."""

    @property
    def measured(self) -> bool:
        """Whether somebody measured it."""

    @property
    def band(self) -> tuple[FloatArray, FloatArray] | None:
        """Lower and upper bound of the values, if it has them."""


class PanelLike(Protocol):
    """One pair of axes."""

    @property
    def title(self) -> str:
        """Title over the axes."""

    @property
    def x_label(self) -> str:
        """Quantity and unit along x."""

    @property
    def y_label(self) -> str:
        """Quantity and unit along y."""

    @property
    def lines(self) -> Sequence[LineLike]:
        """Curves, in order."""


def draw_case(title: str, panels: Sequence[PanelLike], path: Path) -> None:
    """Draw ``panels`` side by side; same input, same bytes.

    Args:
        title: of the whole picture.
        panels: one or more.
        path: a .png or .svg file, replaced.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "dspark-sim", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_panel(axes, panel)
        figure.suptitle(title, fontsize=10)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        with atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata=metadata)


def _draw_panel(axes: Axes, panel: PanelLike) -> None:
    for line in panel.lines:
        style = look(line.policy)
        if line.band is not None:
            axes.fill_between(line.x, *line.band, color=style.colour, alpha=0.15, lw=0)
        if line.measured:
            axes.plot(line.x, line.y, style.marker, ms=5, mfc="none", color=style.text, label=line.label)
        else:
            axes.plot(line.x, line.y, color=style.colour, lw=1.4, label=line.label)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label, ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
