"""What a service left beside its one row of figures: distributions of latency, steps, its state over time.

Everything that a page draws and a comparison explains, small enough to keep with every run. Steps are
those in which somebody decodes, of the replicas that decode; all of the run, as accepted lengths are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.hardware.cost import verify_ms
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.results.details import SHARES
from dspark_sim.results.metrics import MS_PER_S
from dspark_sim.results.serving import Window
from dspark_sim.results.slo import latencies
from dspark_sim.schema import FloatArray, IntArray, RequestLog, RunLog, StepLog

#: Stretches of equal length into which the time of a run is cut.
STRETCHES = 48


def serving_detail(run: RunLog, profile: HardwareProfile, window: Window | None = None) -> dict[str, Any]:
    """Return the detail of a run; all values are JSON's own, None where nothing was measured.

    Keys: ``ttft_ms``, ``tpot_ms``, ``e2e_ms``, ``queue_ms`` (of the measured requests), ``itl_ms`` (of all):
    quantiles at :data:`~dspark_sim.results.details.SHARES`, each the least time that so large a share
    keeps. ``step_ms``, ``forward_ms``, ``batch_tokens``, ``running`` (means over steps), ``eager`` (share of
    steps past the largest captured size). ``kv_mean``, ``kv_most``: share of the KV blocks in use over the
    time of the run; None where KV is unlimited. ``over_time``: ``end_s``, and by stretch of the run, on
    average over it, ``waiting`` and ``users`` (requests before admission, and between first and last
    token), ``kv`` (share of the blocks).
    """
    log = run.requests
    measured = np.ones(len(log.request), dtype=bool) if window is None else window.holds(log)
    times = {f"{name}_ms": _quantiles(time_s[measured]) for name, time_s in latencies(log).items()}
    gaps = {"itl_ms": _quantiles(run.gaps.gap_s, run.gaps.requests)}
    return times | gaps | _steps(run, profile) | _kv(run) | {"over_time": _over_time(run)}


def _quantiles(time_s: FloatArray, weight: IntArray | None = None) -> list[float]:
    """Return quantiles [ms] of times, each counted ``weight`` times; NaN is no time. None: an empty list."""
    weight = np.ones(len(time_s), dtype=np.int64) if weight is None else weight
    known = ~np.isnan(time_s) & (weight > 0)
    if not known.any():
        return []
    order = np.argsort(time_s[known], kind="stable")
    mass = np.cumsum(weight[known][order])
    place = np.searchsorted(mass, np.array(SHARES) * mass[-1])
    return [_short(value) for value in time_s[known][order][place] * MS_PER_S]


def _steps(run: RunLog, profile: HardwareProfile) -> dict[str, float | None]:
    steps = run.steps
    mine = (steps.num_running > 0) & _decodes(run)
    if not mine.any():
        return dict.fromkeys(("step_ms", "forward_ms", "batch_tokens", "running", "eager"))
    tokens = steps.batch_tokens[mine]
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    return {
        "step_ms": _short(steps.step_s[mine].mean() * MS_PER_S),
        "forward_ms": _short(verify_ms(profile, int(tokens.max()), captured)[tokens].mean()),
        "batch_tokens": _short(tokens.mean()),
        "running": _short(steps.num_running[mine].mean()),
        "eager": _short((tokens > captured[-1]).mean()) if captured else 0.0,
    }


def _decodes(run: RunLog) -> NDArray[np.bool_]:
    """Return which steps are of a replica that decodes; engines of a prefill pool count on behind them."""
    decodes: NDArray[np.bool_] = _replica(run.steps) < int(run.meta["serving"]["replicas"])
    return decodes


def _replica(steps: StepLog) -> IntArray:
    return steps.replica if steps.replica.size else np.zeros(len(steps.start_s), dtype=np.int64)


def _kv(run: RunLog) -> dict[str, float | None]:
    blocks = run.meta["kv_blocks"]
    if not blocks or not run.steps.kv_blocks.size:
        return {"kv_mean": None, "kv_most": None}
    begin_s, end_s = _span(run)
    share = _kv_share(run, np.array([begin_s, end_s]))
    return {"kv_mean": _short(share[0]), "kv_most": _short(run.steps.kv_blocks.max() / blocks)}


def _over_time(run: RunLog) -> dict[str, Any] | None:
    """Return means by stretch between the first arrival and the last token; None of an empty run."""
    begin_s, end_s = _span(run)
    if not end_s > begin_s:
        return None
    edge_s = np.linspace(begin_s, end_s, STRETCHES + 1)
    log: RequestLog = run.requests
    found = {
        "end_s": _short(end_s - begin_s),
        "waiting": _rounded(_present(log.arrival_s, log.admission_s, edge_s)),
        "users": _rounded(_present(log.start_s, log.end_s, edge_s)),
    }
    if run.meta["kv_blocks"] and run.steps.kv_blocks.size:
        found["kv"] = _rounded(_kv_share(run, edge_s))
    return found


def _span(run: RunLog) -> tuple[float, float]:
    log = run.requests
    return (float(log.arrival_s.min()), float(log.end_s.max())) if log.request.size else (0.0, 0.0)


def _present(enter_s: FloatArray, leave_s: FloatArray, edge_s: FloatArray) -> FloatArray:
    """Return how many are between entering and leaving, on average over each stretch."""

    def time_since(moment_s: FloatArray) -> FloatArray:
        """Return by edge the sum over requests of the time since their moment."""
        sorted_s = np.sort(moment_s)
        before = np.searchsorted(sorted_s, edge_s)
        sums = np.concatenate([[0.0], np.cumsum(sorted_s)])
        return np.asarray(before * edge_s - sums[before])

    return np.diff(time_since(enter_s) - time_since(leave_s)) / np.diff(edge_s)


def _kv_share(run: RunLog, edge_s: FloatArray) -> FloatArray:
    """Return the share of all KV blocks in use on average over each stretch; between steps nothing counts."""
    steps, replica, used = run.steps, _replica(run.steps), np.zeros(len(edge_s))
    replicas = run.meta["serving"]["replicas"]
    for number in range(replicas):
        mine = replica == number
        if mine.any():
            start_s, step_s = steps.start_s[mine], steps.step_s[mine]
            sums = np.concatenate([[0.0], np.cumsum(steps.kv_blocks[mine] * step_s)])
            at_s = np.column_stack([start_s, start_s + step_s]).ravel()
            used += np.interp(edge_s, at_s, np.column_stack([sums[:-1], sums[1:]]).ravel())
    return np.asarray(np.diff(used) / np.diff(edge_s) / (replicas * run.meta["kv_blocks"]))


def _rounded(values: FloatArray) -> list[float]:
    """Return values to four significant digits; what rounding left below zero is zero."""
    return [float(f"{max(0.0, value):.4g}") for value in values]


def _short(value: Any) -> float:
    """Return ``value`` to seven significant digits."""
    return float(f"{float(value):.7g}")
