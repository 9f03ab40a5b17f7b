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


def _none() -> IntArray:
    return np.empty(0, dtype=np.int64)


#: One step on record: the columns of :class:`StepLog` that are known as it ends, and the gap that its
#: requests share.
STEP_FIELDS = (
    "start_s",
    "step_s",
    "num_running",
    "batch_tokens",
    "committed_tokens",
    "prefill_tokens",
    "prefill_outputs",
    "resident",
    "waiting",
    "kv_blocks",
    "replica",
    "gap_s",
    "gap_requests",
)


@dataclass(frozen=True, slots=True)
class StepLog:
    """The measured engine steps of one run, one entry a step, in order of their ends; shapes [S].

    The arrays from ``prefill_tokens`` on are empty where a log does not hold them.
    """

    start_s: FloatArray  # simulated time at which the step starts
    step_s: FloatArray  # its duration
    num_running: IntArray  # R, the requests that decode in the step
    batch_tokens: IntArray  # B = sum(1 + verify_len) + prefill_tokens, as scheduled (before padding)
    verify_tokens: IntArray  # sum(verify_len)
    accepted_tokens: IntArray  # draft tokens accepted (bonus excluded, before the cut at the end of a text)
    committed_tokens: IntArray  # output tokens committed, those of finished prompts included
    prefill_tokens: IntArray = field(default_factory=_none)  # prompt tokens computed
    prefill_outputs: IntArray = field(default_factory=_none)  # tokens that finished prompts yielded
    resident: IntArray = field(default_factory=_none)  # requests admitted: decoding, or in prefill
    waiting: IntArray = field(default_factory=_none)  # requests that wait at this replica
    kv_blocks: IntArray = field(default_factory=_none)  # KV blocks allocated; 0 where KV is unlimited
    replica: IntArray = field(default_factory=_none)  # engines of a prefill pool count on behind the others


@dataclass(frozen=True, slots=True)
class GapLog:
    """Inter-token gaps: time between the steps in which a request's tokens appear, one or several at once.

    A gap that several requests share is one entry. Shapes [X].
    """

    gap_s: FloatArray = field(default_factory=lambda: np.empty(0))
    requests: IntArray = field(default_factory=_none)  # requests that saw this gap


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Requests completed in the measured window that started at their first token. Shapes [Q].

    The arrays from ``arrival_s`` on are empty where a log does not hold them.
    """

    request: IntArray  # row of the trace (closed loop) or of the workload
    start_s: FloatArray  # token 0 (from prefill) is there
    end_s: FloatArray  # last token is there
    output_tokens: IntArray  # n, token 0 included
    rounds: IntArray
    arrival_s: FloatArray = field(default_factory=lambda: np.empty(0))  # it was sent
    admission_s: FloatArray = field(default_factory=lambda: np.empty(0))  # a replica first took it in
    prompt_tokens: IntArray = field(default_factory=_none)
    preemptions: IntArray = field(default_factory=_none)  # times it lost its KV
    replica: IntArray = field(default_factory=_none)  # where it was admitted last


@dataclass(frozen=True, slots=True)
class RunLog:
    """Everything one simulation returns: one policy, one load, one seed."""

    policy: str
    drafter: str
    concurrency: int  # users; 0: open loop
    seed: int
    lag: int
    num_gpus: int  # of all replicas and of a prefill pool
    lossless: Verdict
    steps: StepLog
    requests: RequestLog
    rounds: int
    completed: int  # requests completed in the window, those that started mid-text included
    verify_len_counts: IntArray  # [G+1] rounds by verify_len
    position_verified: IntArray  # [G] rounds that verified position j+1
    position_accepted: IntArray  # [G] rounds that verified and accepted position j+1
    gaps: GapLog = field(default_factory=GapLog)
    refused: IntArray = field(default_factory=_none)  # requests that no replica's KV holds
    meta: dict[str, Any] = field(default_factory=dict)
