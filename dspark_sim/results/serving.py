"""What a service measured: latencies, throughput, queueing, preemption, objectives; one dictionary a run.

Letters: over the completed requests q, a_q arrival, f_q first token, e_q last token [s], n_q output
tokens, token 0 included. TTFT = f - a, TPOT = (e - f) / (n - 1), e2e = e - a. ITL weighs every gap
between steps in which a request's tokens appeared, however many tokens came at once.

A run may be measured whole, or in a :class:`Window` of its arrivals, without the warm-up of an empty
service and without the drain at its end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import InputError
from dspark_sim.files import atomic_path
from dspark_sim.results.slo import Slo, keeps_all, latencies
from dspark_sim.schema import FloatArray, IntArray, RequestLog, RunLog

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MS_PER_S = 1e3
#: Shares of the requests at both ends of arrivals that go on, which warm the service up and see it drain.
WARMUP, COOLDOWN = 0.25, 0.05
#: Columns of the file of requests; one of them goes by another name in a log.
REQUEST_COLUMNS = ("request", "arrival_s", "admission_s", "first_token_s", "end_s", "prompt_tokens",
                   "output_tokens", "rounds", "preemptions", "replica")  # fmt: skip
_FIELDS = {"first_token_s": "start_s"}
#: Standard deviations of a queue's chance growth above which the load knee is called passed.
_SURE = 3.0


@dataclass(frozen=True, slots=True)
class Window:
    """The requests that are measured: ``first`` <= number in order of arrival < ``last``."""

    first: int
    last: int

    @classmethod
    def of(cls, requests: int, warmup: float, cooldown: float = 0.0) -> Window:
        """Return the window that leaves out shares of the requests at both ends.

        Raises:
            InputError: nothing is left to measure.
        """
        window = cls(round(warmup * requests), requests - round(cooldown * requests))
        if window.first >= window.last:
            raise InputError(f"a warm-up of {warmup:g} of {requests} requests leaves none to measure")
        return window

    def holds(self, log: RequestLog) -> NDArray[np.bool_]:
        """Return which requests of the log are measured."""
        inside: NDArray[np.bool_] = (log.request >= self.first) & (log.request < self.last)
        return inside


def serving_figures(run: RunLog, slos: Sequence[Slo] = (), window: Window | None = None) -> dict[str, Any]:
    """Return the figures of one run, by name with its unit.

    Latencies are of the measured requests. Rates and means over time are over ``window_s``: from the first
    measured arrival to the last one, or, of a run measured whole, to the last token; requests count where
    they end. ``makespan_s``: from the very first arrival to the last token. ``queue_ms``: from arrival to
    first admission. ``mean_users``, ``mean_waiting``: requests between first and last token, and before
    admission, on average over time. ``knee_passed``: the queue grew by more than chance explains.
    """
    log, steps = run.requests, run.steps
    measured = np.ones(len(log.request), dtype=bool) if window is None else window.holds(log)
    begin_s, end_s = _bounds(log, measured, whole=window is None)
    ended = (log.end_s >= begin_s) & (log.end_s <= end_s)
    window_s = end_s - begin_s
    tokens = int(log.output_tokens[ended].sum())
    latency = latencies(log)
    yielded = int(steps.prefill_outputs.sum())
    return {
        "policy": run.policy,
        "drafter": run.drafter,
        "seed": run.seed,
        "lossless": run.lossless,
        "requests": len(log.request),
        "measured": int(measured.sum()),
        "refused": len(run.refused),
        "preemptions": int(log.preemptions[measured].sum()),
        "preempted_requests": int((log.preemptions[measured] > 0).sum()),
        "output_tokens": int(log.output_tokens.sum()),
        "makespan_s": _bounds(log, np.ones(len(measured), dtype=bool), whole=True)[1] - _first(log.arrival_s),
        "window_s": window_s,
        "requests_per_s": _over(int(ended.sum()), window_s),
        "tok_per_s": _over(tokens, window_s),
        "tok_per_s_per_gpu": _over(tokens / run.num_gpus, window_s),
        "mean_users": _mean_present(log.start_s, log.end_s, begin_s, end_s),
        "mean_waiting": _mean_present(log.arrival_s, log.admission_s, begin_s, end_s),
        "most_waiting": int(steps.waiting.max(initial=0)),
        "knee_passed": knee_passed(log),
        "accepted_len": (int(steps.committed_tokens.sum()) - yielded) / run.rounds if run.rounds else None,
        "verify_len": int(steps.verify_tokens.sum()) / run.rounds if run.rounds else None,
        "steps": len(steps.step_s),
        **{f"{name}_ms": _summary(time_s[measured]) for name, time_s in latency.items()},
        "itl_ms": _summary(run.gaps.gap_s, run.gaps.requests),
        **(_objectives(run, slos, measured, ended, window_s) if slos else {}),
    }


def _objectives(
    run: RunLog,
    slos: Sequence[Slo],
    measured: NDArray[np.bool_],
    ended: NDArray[np.bool_],
    window_s: float,
) -> dict[str, Any]:
    """Return who keeps the objectives: by objective, of all at once, and what those get done."""
    latency = latencies(run.requests)
    good = keeps_all(slos, latency)
    tokens = int(run.requests.output_tokens[good & ended].sum())
    table = {}
    for slo in slos:
        mine = latency[slo.metric][measured]
        value_s, share = slo.value_s(mine), float(slo.kept(mine).mean()) if mine.size else float("nan")
        table[slo.name] = {
            "limit_ms": slo.limit_s * MS_PER_S,
            "value_ms": value_s * MS_PER_S,
            "attainment": share,
            "met": value_s <= slo.limit_s,
        }
    return {
        "slo": table,
        "slos_met": all(entry["met"] for entry in table.values()),
        "attainment": float(good[measured].mean()) if measured.any() else float("nan"),
        "goodput_requests_per_s": _over(int((good & ended).sum()), window_s),
        "goodput_tok_per_s": _over(tokens, window_s),
        "goodput_tok_per_s_per_gpu": _over(tokens / run.num_gpus, window_s),
    }


def knee_passed(log: RequestLog) -> bool:
    """Whether the queue grew, while requests arrived, by more than chance explains.

    The first quarter of the arrivals is left out. Over the arrivals between the middles of the first and
    the last third of the rest, M, a queue at its very limit wanders by some sqrt(2 M) requests (arrivals
    and departures alike, both about as irregular as Poisson's); it must grow by three times that.
    """
    arrival_s = np.sort(log.arrival_s)
    rest = arrival_s[len(arrival_s) // 4 :]
    if len(rest) < 6 or rest[-1] <= rest[0]:
        return False
    edge_s = np.linspace(rest[0], rest[-1], 4)
    early, late = (
        _mean_present(log.arrival_s, log.admission_s, edge_s[i], edge_s[i + 1]) or 0.0 for i in (0, 2)
    )
    between = np.diff(np.searchsorted(rest, [(edge_s[0] + edge_s[1]) / 2, (edge_s[2] + edge_s[3]) / 2]))
    return bool(late - early > _SURE * np.sqrt(2 * between[0]))


def _bounds(log: RequestLog, measured: NDArray[np.bool_], *, whole: bool) -> tuple[float, float]:
    """Return from when to when rates are taken [s]; NaN without a measured request."""
    if not measured.any():
        return float("nan"), float("nan")
    last_s = log.end_s if whole else log.arrival_s[measured]
    return float(log.arrival_s[measured].min()), float(last_s.max())


def _first(time_s: FloatArray) -> float:
    return float(time_s.min()) if time_s.size else float("nan")


def _over(amount: float, time_s: float) -> float | None:
    """Return amount over time; None over no time."""
    return amount / time_s if time_s > 0 else None


def _mean_present(enter_s: FloatArray, leave_s: FloatArray, begin_s: float, end_s: float) -> float | None:
    """Return how many are between entering and leaving, on average over the time from begin to end."""
    present_s = np.minimum(leave_s, end_s) - np.maximum(enter_s, begin_s)
    return _over(float(np.maximum(present_s, 0.0).sum()), end_s - begin_s)


def _summary(time_s: FloatArray, weight: IntArray | None = None) -> dict[str, float | None]:
    """Return mean and quantiles [ms] of times, each counted ``weight`` times; NaN is no time."""
    weight = np.ones(len(time_s), dtype=np.int64) if weight is None else weight
    known = ~np.isnan(time_s)
    time_s, weight = time_s[known], weight[known]
    if not weight.sum():
        return dict.fromkeys(("mean", *QUANTILES))
    order = np.argsort(time_s, kind="stable")
    mass = np.cumsum(weight[order])
    place = np.searchsorted(mass, [q * mass[-1] for q in QUANTILES.values()])
    values = time_s[order][np.minimum(place, len(order) - 1)]
    mean = float((time_s * weight).sum() / weight.sum())
    return {"mean": mean * MS_PER_S} | dict(zip(QUANTILES, (values * MS_PER_S).tolist(), strict=True))


def request_columns(log: RequestLog) -> dict[str, NDArray[Any]]:
    """Return the columns of :data:`REQUEST_COLUMNS` of the requests of a log; times in seconds."""
    return {name: getattr(log, _FIELDS.get(name, name)) for name in REQUEST_COLUMNS}


def write_requests(path: str | os.PathLike[str], run: RunLog) -> None:
    """Write one row a completed request, in order of completion, as parquet; times in seconds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic_path(path) as temporary:
        pq.write_table(pa.table(request_columns(run.requests)), temporary, compression="zstd")


def read_requests(path: str | os.PathLike[str]) -> RequestLog:
    """Read what :func:`write_requests` wrote, a column at a time."""
    import pyarrow.parquet as pq

    def column(name: str) -> NDArray[Any]:
        table = pq.read_table(path, columns=[name], partitioning=None)
        return np.asarray(table[name])

    return RequestLog(**{_FIELDS.get(name, name): column(name) for name in REQUEST_COLUMNS})
