"""Small hand-made runs and points for the tests of results/ and of the command line."""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark_sim.schema import POINT_COLUMNS, RequestLog, RunLog, StepLog


def small_run(**changes: Any) -> RunLog:
    """Three steps of 2, 2 and 1 requests on 2 GPUs; two finished texts and one of a single token.

    Step durations 0.1, 0.2, 0.1 s from 10 s on; 6 + 5 + 1 = 12 tokens in 5 rounds, 10 verified, 8 accepted.
    """
    steps = StepLog(
        start_s=np.array([10.0, 10.1, 10.3]),
        step_s=np.array([0.1, 0.2, 0.1]),
        num_running=np.array([2, 2, 1]),
        batch_tokens=np.array([6, 6, 3]),
        verify_tokens=np.array([4, 4, 2]),
        accepted_tokens=np.array([4, 3, 1]),
        committed_tokens=np.array([6, 5, 1]),
    )
    requests = RequestLog(
        request=np.array([3, 7, 1]),
        start_s=np.array([10.0, 10.1, 10.1]),
        end_s=np.array([10.3, 10.4, 10.1]),
        output_tokens=np.array([4, 3, 1]),
        rounds=np.array([2, 2, 0]),
    )
    fields: dict[str, Any] = {
        "policy": "static:k=2",
        "drafter": "dspark",
        "concurrency": 2,
        "seed": 5,
        "lag": 0,
        "num_gpus": 2,
        "lossless": "lossless",
        "steps": steps,
        "requests": requests,
        "rounds": 5,
        "completed": 3,
        "verify_len_counts": np.array([0, 0, 5]),
        "position_verified": np.array([5, 5]),
        "position_accepted": np.array([5, 3]),
    }
    return RunLog(**(fields | changes))


def make_point(
    policy: str, concurrency: int, user: float, gpu: float, seed: int = 0, **more: Any
) -> dict[str, Any]:
    """A point with the given speeds and plausible values elsewhere."""
    values: dict[str, Any] = dict.fromkeys(POINT_COLUMNS, 1.0)
    values |= {
        "policy": policy,
        "drafter": "dspark",
        "concurrency": concurrency,
        "seed": seed,
        "tok_per_s": gpu,
        "tok_per_s_per_gpu": gpu,
        "tok_per_s_per_user": user,
        "steps": 10,
        "output_tokens": 1000,
        "requests": 7,
        "lossless": "lossless",
    }
    return values | more


#: Document of a run on a synthetic trace whose pair is not the profile's model.
ABOUT: dict[str, Any] = {
    "version": "0.0.0",
    "code": "c0de",
    "trace": {
        "name": "toy",
        "target": "toy-1B",
        "made": "by hand",
        "synthetic": True,
        "temperature": 0.7,
        "drafters": {"dspark": "dspark", "eagle": "eagle"},
        "sha256": "aa",
    },
    "profile": {
        "name": "box",
        "model": "Box-8B",
        "device": "box",
        "num_gpus": 2,
        "overrides": {},
        "how": {"verify": "measured", "host.constant_ms": "assumed"},
        "sha256": "bb",
    },
    "settings": {"output_tokens": 1000, "max_output_tokens": None},
    "grid": {"drafter": ["dspark"], "policy": ["off"], "concurrency": [1], "seed": [0]},
}
