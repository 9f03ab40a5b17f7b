"""The picture of a hardware profile: staircase with its measured points, and what drafting costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dspark_sim.hardware.cost import StepCost, verify_ms
from dspark_sim.hardware.profile import HardwareProfile, ParallelDraft
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.results.canvas import new_figure, save_as, styled, write_edges
from dspark_sim.results.labels import Label, label_ends
from dspark_sim.results.style import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVE, _MEASURED, _PAST = "#0072B2", "#333333", "#B0413E"
_MARGIN = 0.13  # of the width, for names beside the drafting axes


def draw_profile(profile: HardwareProfile, path: Path, samples: Sequence[tuple[int, float]] = ()) -> None:
    """Draw :func:`profile_figure` into a .png or .svg file, replaced; same input, same bytes."""
    save_as(profile_figure(profile, samples), path)


def profile_figure(profile: HardwareProfile, samples: Sequence[tuple[int, float]] = ()) -> Figure:
    """Draw verify cost by tokens in the step, and draft cost by running requests.

    Args:
        profile: what to draw.
        samples: single timings of the verify pass, (tokens, ms), drawn under the table.
    """
    with styled():
        figure, (left, right) = new_figure(1, 2, size=(12.0, 5.6), width_ratios=[1.7, 1])
        figure.subplots_adjust(left=0.065, right=1 - _MARGIN, wspace=0.24, bottom=0.165, top=0.865)
        if samples:
            left.plot(*zip(*samples, strict=True), ".", ms=2, color="0.75", label="single timings")
        _staircase(left, profile)
        _drafting(right, profile)
        gpus = f" ({profile.num_gpus} GPUs)" if profile.num_gpus > 1 else ""
        write_edges(
            figure,
            f"What a step costs: {profile.model} on {profile.device}",
            "left: the target's forward pass, read as the engine reads it; right: what drafting adds",
            f"{profile.name}{gpus} · values {_made(profile)}",
        )
    return figure


def _made(profile: HardwareProfile) -> str:
    """Return how many of the profile's parts were measured, composed, derived, assumed."""
    counts = Counter(source.how for source in profile.sources.values())
    return ", ".join(f"{how} {count}" for how, count in counts.most_common())


def _staircase(axes: Axes, profile: HardwareProfile) -> None:
    from matplotlib.ticker import StrMethodFormatter

    captured = capture_sizes(profile.capture, profile.verify.tokens)
    last = max(2 * captured[-1] if captured else 0, profile.verify.tokens[-1])
    tokens, cost = np.arange(1, last + 1), verify_ms(profile, last, captured)[1:]
    axes.plot(tokens, cost, lw=1.6, color=_CURVE, label="what a step pays")
    axes.plot(profile.verify.tokens, profile.verify.ms, ".", ms=3.5, color=_MEASURED, label="table")
    eager = profile.eager
    if eager is not None and eager.tokens is not None and eager.ms is not None:
        seen = [(t, ms) for t, ms in zip(eager.tokens, eager.ms, strict=True) if t <= last]
        axes.plot(*zip(*seen, strict=True), "x", ms=6, color=_PAST, label="table without graphs")
    axes.set(xlabel="tokens in the step", ylabel="forward pass [ms]", xlim=(0, last))
    axes.set_ylim(0, 1.12 * float(np.max(cost)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if captured:
        _mark_limit(axes, captured[-1], last)
    axes.legend(frameon=False, loc="upper left", fontsize=10)


def _mark_limit(axes: Axes, limit: int, last: int) -> None:
    axes.axvline(limit, color="#888888", lw=1, ls=(0, (4, 3)), zorder=1)
    near_end = limit > 0.6 * last
    axes.annotate(
        f"capture limit {limit:,}", (limit, 0.02), xycoords=("data", "axes fraction"),
        xytext=(-5 if near_end else 5, 0), textcoords="offset points", va="bottom",
        ha="right" if near_end else "left", color="#555555", fontsize=10,
    )  # fmt: skip


def _drafting(axes: Axes, profile: HardwareProfile) -> None:
    measured = (d.requests[-1] for kind in profile.draft.kinds if (d := profile.draft.get(kind)))
    last = profile.max_num_seqs or max(measured, default=1)
    cost = StepCost(profile, last, 1)
    requests, labels = np.arange(1, last + 1), []
    for kind in profile.draft.kinds:
        section = profile.draft.get(kind)
        k = section.gamma if isinstance(section, ParallelDraft) else 1
        style = look(kind)
        ms = np.array([cost.draft_s(kind, int(r), k) * 1e3 for r in requests])
        axes.plot(requests, ms, color=style.colour, lw=1.8)
        labels.append(Label(f"{kind}, k={k}", style.text, np.column_stack([requests, ms])))
    axes.set(xlabel="running requests", ylabel="drafting [ms]", xlim=(0, last))
    highest = max((float(label.xy[:, 1].max()) for label in labels), default=0.0)
    axes.set_ylim(0, 1.12 * (highest or 1.0))
    if labels:
        label_ends(axes, labels)
    else:
        axes.text(0.5, 0.5, "no drafter", transform=axes.transAxes, ha="center", color="#777777")
