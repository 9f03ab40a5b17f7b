"""Pictures and pages of simulated points, the same that the commands draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dspark_sim.api.questions import frontier_document
from dspark_sim.api.simulation import Run, Source
from dspark_sim.files import write_text
from dspark_sim.hardware.profile import HardwareProfile, load_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_frontier(run: Run, *, sla: Sequence[float] | None = None, baseline: str | None = None) -> Figure:
    """Draw throughput per GPU against the speed of each user, with the SLA anchors as upright lines.

    Args:
        run: simulated points.
        sla: anchors [tok/s/user]; None: two round ones in the baseline's range.
        baseline: policy spec that percentages are against.

    Raises:
        InputError: the baseline is not among the policies of the run.
    """
    from dspark_sim.results.plots import frontier_figure

    return frontier_figure(run.results.points, run.about, frontier_document(run, baseline, sla))


def plot_load(run: Run) -> Figure:
    """Draw throughput per GPU and verification budget against the number of users."""
    from dspark_sim.results.plots import load_figure

    return load_figure(run.results.points, run.about)


def plot_hardware(hw: Source | HardwareProfile) -> Figure:
    """Draw what a step costs: the forward pass by batch tokens with its stairs and cliff, and drafting.

    Args:
        hw: a name, a path, or a loaded profile.

    Raises:
        InputError: there is no such profile.
    """
    from dspark_sim.results.plots_hw import profile_figure

    return profile_figure(hw if isinstance(hw, HardwareProfile) else load_profile(hw))


def write_report(
    run: Run, path: Source, *, sla: Sequence[float] | None = None, baseline: str | None = None
) -> None:
    """Write one self-contained page, offline and interactive: what ``dspark-sim report`` writes.

    Args:
        run: simulated points.
        path: the HTML file, replaced.
        sla: anchors [tok/s/user]; None: two round ones in the baseline's range.
        baseline: policy spec that percentages are against.

    Raises:
        InputError: the baseline is not among the policies of the run.
    """
    from dspark_sim.results.page_report import report_page
    from dspark_sim.results.report import report_document

    document = report_document(run.results, frontier_document(run, baseline, sla))
    write_text(path, report_page(document))
