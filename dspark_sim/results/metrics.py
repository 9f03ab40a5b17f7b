"""What one run measured: one function per column of a point, its formula in the docstring.

Letters in the formulas: over the measured engine steps s, t_s their duration [s], R_s the running
requests, V_s and A_s draft tokens verified and accepted, C_s output tokens committed; T the
simulated time from the start of the first step to the end of the last; K the rounds; over the
completed requests q, n_q output tokens (token 0, which prefill commits, included) and d_q seconds
from the first token to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dspark_sim.schema import POINT_COLUMNS, FloatArray, RunLog

#: A point: one mapping with the keys of :data:`dspark_sim.schema.POINT_COLUMNS`.
Point = dict[str, Any]

MS_PER_S = 1e3


def elapsed_s(run: RunLog) -> float:
    """T = (start of the last step + its duration) - start of the first step [s]."""
    steps = run.steps
    return float(steps.start_s[-1] + steps.step_s[-1] - steps.start_s[0])


def output_tokens(run: RunLog) -> int:
    """Return sum C_s [tokens]."""
    return int(run.steps.committed_tokens.sum())


def tok_per_s(run: RunLog) -> float:
    """(sum C_s) / T [tok/s]."""
    return output_tokens(run) / elapsed_s(run)


def tok_per_s_per_gpu(run: RunLog) -> float:
    """tok_per_s / GPUs of the profile [tok/s/GPU]."""
    return tok_per_s(run) / run.num_gpus


def tok_per_s_per_user(run: RunLog) -> float:
    """tok_per_s / ((sum R_s t_s) / T) = (sum C_s) / (sum R_s t_s) [tok/s/user].

    Pooled: the time-weighted mean of the running requests is the number of users.
    """
    # Not a dot product: BLAS adds in an order that depends on its threads; the same seed, the same bytes.
    return output_tokens(run) / float((run.steps.num_running * run.steps.step_s).sum())


def tpot_s(run: RunLog) -> FloatArray:
    """TPOT_q = d_q / (n_q - 1) of each completed request [s/token]; a text of one token has none."""
    requests = run.requests
    several = requests.output_tokens > 1
    duration_s = (requests.end_s - requests.start_s)[several]
    return np.asarray(duration_s / (requests.output_tokens[several] - 1), dtype=np.float64)


def tok_per_s_per_user_mean(run: RunLog) -> float:
    """Mean over q of 1 / TPOT_q, TPOT_q = d_q / (n_q - 1) [tok/s/user]; NaN without such a request."""
    each_s = tpot_s(run)
    return float(np.mean(1.0 / each_s)) if each_s.size else float("nan")


def tok_per_s_per_user_median_tpot(run: RunLog) -> float:
    """1 / median over q of TPOT_q [tok/s/user], which engines publish; NaN without such a request."""
    each_s = tpot_s(run)
    return 1.0 / float(np.median(each_s)) if each_s.size else float("nan")


def accepted_len(run: RunLog) -> float:
    """(sum C_s - tokens of finished prompts) / K [tokens/round], bonus included, cut at the end of a text."""
    return (output_tokens(run) - int(run.steps.prefill_outputs.sum())) / run.rounds


def verify_len(run: RunLog) -> float:
    """(sum V_s) / K [tokens/round], anchor excluded."""
    return int(run.steps.verify_tokens.sum()) / run.rounds


def verification_budget(run: RunLog) -> float:
    """1 + (sum V_s) / K [tokens/round], anchor included: MTP-1 has 2."""
    return 1.0 + verify_len(run)


def accept_rate(run: RunLog) -> float:
    """(sum A_s) / (sum V_s), bonus excluded; NaN if nothing was verified."""
    verified = int(run.steps.verify_tokens.sum())
    return int(run.steps.accepted_tokens.sum()) / verified if verified else float("nan")


def step_ms(run: RunLog) -> float:
    """1000 * mean t_s [ms]."""
    return MS_PER_S * float(np.mean(run.steps.step_s))


#: Column -> how it is read off a run. Keys and order are those of POINT_COLUMNS.
METRICS: dict[str, Callable[[RunLog], Any]] = {
    "policy": lambda run: run.policy,
    "drafter": lambda run: run.drafter,
    "concurrency": lambda run: run.concurrency,
    "seed": lambda run: run.seed,
    "tok_per_s": tok_per_s,
    "tok_per_s_per_gpu": tok_per_s_per_gpu,
    "tok_per_s_per_user": tok_per_s_per_user,
    "tok_per_s_per_user_mean": tok_per_s_per_user_mean,
    "tok_per_s_per_user_median_tpot": tok_per_s_per_user_median_tpot,
    "accepted_len": accepted_len,
    "verify_len": verify_len,
    "verification_budget": verification_budget,
    "accept_rate": accept_rate,
    "step_ms": step_ms,
    "steps": lambda run: len(run.steps.step_s),
    "output_tokens": output_tokens,
    "requests": lambda run: run.completed,
    "lossless": lambda run: run.lossless,
}
assert list(METRICS) == list(POINT_COLUMNS), "every column of a point needs exactly one metric"


def point(run: RunLog) -> Point:
    """Return what ``run`` measured, one value per column of :data:`dspark_sim.schema.POINT_COLUMNS`.

    Raises:
        ValueError: the run measured no step.
    """
    if not len(run.steps.step_s):
        raise ValueError(f"{run.policy} at concurrency {run.concurrency}: no engine step was measured")
    return {name: metric(run) for name, metric in METRICS.items()}
