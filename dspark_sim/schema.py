"""What flows between the rooms of the house: records, with units and meaning.

Shape legend: N anchors of a trace, R running requests, G = gamma, M candidate draft tokens (0..R*G),
S engine steps, Q requests. Inside the simulator: seconds, tokens, float64.

The simulator and the model meet in the trace file only; the engine and the results meet in the
records below only, so that results also read the logs of real servers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TRACE_FORMAT = 1
Verdict = Literal["lossless", "lossless-under-lag", "not-lossless"]
DraftKind = Literal["none", "dspark", "dflash", "mtp", "eagle"]

#: One-line meaning and unit of every column of a point (one policy at one load under one seed).
POINT_COLUMNS: dict[str, str] = {
    "policy": "normalised policy spec",
    "drafter": "drafter of the trace that was replayed",
    "concurrency": "users of the closed loop [requests]",
    "seed": "seed of every random stream",
    "tok_per_s": "committed output tokens per second of simulated time [tok/s]",
    "tok_per_s_per_gpu": "tok_per_s over all GPUs of the profile [tok/s/GPU]",
    "tok_per_s_per_user": "tok_per_s over the mean number of running requests, pooled [tok/s/user]",
    "tok_per_s_per_user_mean": "mean of 1/TPOT over completed requests [tok/s/user]",
    "tok_per_s_per_user_median_tpot": "1 / median TPOT over completed requests [tok/s/user]",
    "accepted_len": "tokens committed per round, bonus included [tokens/round]",
    "verify_len": "mean draft tokens verified per round, anchor excluded [tokens/round]",
    "verification_budget": "1 + verify_len [tokens/round]",
    "accept_rate": "accepted draft tokens over verified draft tokens, bonus excluded",
    "step_ms": "mean engine step [ms]",
    "steps": "engine steps measured",
    "output_tokens": "output tokens committed in the measured window [tokens]",
    "requests": "requests completed in the measured window",
    "lossless": "verdict on the rule at its lag and temperature",
}


@dataclass(frozen=True, slots=True)
class StepLog:
    """The measured engine steps of one run, one entry a step, in order. All arrays have shape [S]."""

    start_s: FloatArray  # simulated time at which the step starts
    step_s: FloatArray  # its duration
    num_running: IntArray  # R
    batch_tokens: IntArray  # B = sum(1 + verify_len), as scheduled (before padding)
    verify_tokens: IntArray  # sum(verify_len)
    accepted_tokens: IntArray  # draft tokens accepted (bonus excluded, before the cut at the end of a text)
    committed_tokens: IntArray  # output tokens committed


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Requests completed in the measured window that started at their first token. Shapes [Q]."""

    request: IntArray  # row of the trace
    start_s: FloatArray  # token 0 (from prefill) is there
    end_s: FloatArray  # last token is there
    output_tokens: IntArray  # n, token 0 included
    rounds: IntArray


@dataclass(frozen=True, slots=True)
class RunLog:
    """Everything one simulation returns: one policy, one load, one seed."""

    policy: str
    drafter: str
    concurrency: int
    seed: int
    lag: int
    num_gpus: int
    lossless: Verdict
    steps: StepLog
    requests: RequestLog
    rounds: int
    completed: int  # requests completed in the window, those that started mid-text included
    verify_len_counts: IntArray  # [G+1] rounds by verify_len
    position_verified: IntArray  # [G] rounds that verified position j+1
    position_accepted: IntArray  # [G] rounds that verified and accepted position j+1
    meta: dict[str, Any] = field(default_factory=dict)
