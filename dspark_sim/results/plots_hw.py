"""The picture of a hardware profile: staircase with its measured points, and what drafting costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dspark_sim.files import atomic_path
from dspark_sim.hardware.cost import StepCost, verify_ms
from dspark_sim.hardware.profile import HardwareProfile, ParallelDraft
from dspark_sim.hardware.tables import capture_sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_profile(profile: HardwareProfile, path: Path, samples: Sequence[tuple[int, float]] = ()) -> None:
    """Draw verify cost by tokens and draft cost by requests; same input, same bytes.

    Args:
        profile: what to draw.
        path: a .png or .svg file, replaced.
        samples: single timings of the verify pass, (tokens, ms), drawn under the table.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "dspark-sim", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        if samples:
            left.plot(*zip(*samples, strict=True), ".", ms=2, color="0.8", label="samples")
        _staircase(left, profile)
        _drafting(right, profile)
        figure.suptitle(f"{profile.model} on {profile.device}", fontsize=10)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        with atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata=metadata)


def _staircase(axes: Axes, profile: HardwareProfile) -> None:
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    last = max(2 * captured[-1] if captured else 0, profile.verify.tokens[-1])
    axes.plot(np.arange(1, last + 1), verify_ms(profile, last, captured)[1:], lw=1.2, label="look-up")
    axes.plot(profile.verify.tokens, profile.verify.ms, ".", ms=3, color="0.4", label="table")
    eager = profile.eager
    if eager is not None and eager.tokens is not None and eager.ms is not None:
        seen = [(t, ms) for t, ms in zip(eager.tokens, eager.ms, strict=True) if t <= last]
        axes.plot(*zip(*seen, strict=True), "x", ms=4, color="0.4", label="eager table")
    if captured:
        axes.axvline(captured[-1], color="0.6", lw=0.8, ls=":")
        axes.annotate("capture limit", (captured[-1], 0), rotation=90, va="bottom", ha="left", color="0.4")
    axes.set(xlabel="batch tokens", ylabel="verify [ms]", xlim=(0, last), ylim=(0, None))
    axes.legend(frameon=False, loc="upper left")


def _drafting(axes: Axes, profile: HardwareProfile) -> None:
    measured = (d.requests[-1] for kind in profile.draft.kinds if (d := profile.draft.get(kind)))
    last = profile.max_num_seqs or max(measured, default=1)
    cost = StepCost(profile, last, 1)
    requests = range(1, last + 1)
    for kind in profile.draft.kinds:
        section = profile.draft.get(kind)
        k = section.gamma if isinstance(section, ParallelDraft) else 1
        axes.plot(requests, [cost.draft_s(kind, r, k) * 1e3 for r in requests], label=f"{kind}, k={k}")
    axes.set(xlabel="running requests", ylabel="draft [ms]", xlim=(0, last), ylim=(0, None))
    if profile.draft.kinds:
        axes.legend(frameon=False, loc="upper left")
