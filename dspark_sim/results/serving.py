"""What a service measured: latencies of requests, throughput, queueing, preemption; one dictionary a run.

Letters: over the completed requests q, a_q arrival, f_q first token, e_q last token [s], n_q output
tokens, token 0 included. TTFT = f - a, TPOT = (e - f) / (n - 1), e2e = e - a. ITL weighs every gap
between steps in which a request's tokens appeared, however many tokens came at once.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dspark_sim.files import atomic_path
from dspark_sim.schema import FloatArray, IntArray, RunLog

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MS_PER_S = 1e3


def serving_figures(run: RunLog) -> dict[str, Any]:
    """Return the figures of one run, by name with its unit.

    ``makespan_s``: from the first arrival to the last token; rates are over it. ``queue_ms``: from
    arrival to admission. ``mean_users``: requests between first and last token, on average.
    """
    log, steps = run.requests, run.steps
    makespan_s = float(log.end_s.max() - log.arrival_s.min()) if len(log.end_s) else float("nan")
    tokens = int(log.output_tokens.sum())
    several = log.output_tokens > 1
    served_s = log.end_s - log.start_s
    yielded = int(steps.prefill_outputs.sum())
    latencies = {
        "ttft_ms": log.start_s - log.arrival_s,
        "tpot_ms": served_s[several] / (log.output_tokens[several] - 1),
        "e2e_ms": log.end_s - log.arrival_s,
        "queue_ms": log.admission_s - log.arrival_s,
    }
    summaries = {name: _summary(time_s, None) for name, time_s in latencies.items()}
    return {
        "policy": run.policy,
        "drafter": run.drafter,
        "seed": run.seed,
        "lossless": run.lossless,
        "requests": len(log.request),
        "refused": len(run.refused),
        "preemptions": int(log.preemptions.sum()),
        "output_tokens": tokens,
        "makespan_s": makespan_s,
        "requests_per_s": len(log.request) / makespan_s,
        "tok_per_s": tokens / makespan_s,
        "tok_per_s_per_gpu": tokens / makespan_s / run.num_gpus,
        "mean_users": float(served_s.sum()) / makespan_s,
        "accepted_len": (int(steps.committed_tokens.sum()) - yielded) / run.rounds if run.rounds else None,
        "verify_len": int(steps.verify_tokens.sum()) / run.rounds if run.rounds else None,
        "steps": len(steps.step_s),
        **summaries,
        "itl_ms": _summary(run.gaps.gap_s, run.gaps.requests),
    }


def _summary(time_s: FloatArray, weight: IntArray | None) -> dict[str, float | None]:
    """Return mean and quantiles [ms] of times, each counted ``weight`` times."""
    weight = np.ones(len(time_s), dtype=np.int64) if weight is None else weight
    if not weight.sum():
        return dict.fromkeys(("mean", *QUANTILES))
    order = np.argsort(time_s, kind="stable")
    mass = np.cumsum(weight[order])
    place = np.searchsorted(mass, [q * mass[-1] for q in QUANTILES.values()])
    values = time_s[order][np.minimum(place, len(order) - 1)]
    mean = float((time_s * weight).sum() / weight.sum())
    return {"mean": mean * MS_PER_S} | dict(zip(QUANTILES, (values * MS_PER_S).tolist(), strict=True))


def write_requests(path: str | os.PathLike[str], run: RunLog) -> None:
    """Write one row a completed request, in order of completion, as parquet; times in seconds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = run.requests
    table = {
        "request": log.request,
        "arrival_s": log.arrival_s,
        "admission_s": log.admission_s,
        "first_token_s": log.start_s,
        "end_s": log.end_s,
        "prompt_tokens": log.prompt_tokens,
        "output_tokens": log.output_tokens,
        "rounds": log.rounds,
        "preemptions": log.preemptions,
        "replica": log.replica,
    }
    with atomic_path(path) as temporary:
        pq.write_table(pa.table(table), temporary, compression="zstd")
