"""Small random traces that are valid and otherwise arbitrary."""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.traces import DrafterTrace, Trace, offsets


def small_trace(
    seed: int = 0,
    requests: int = 5,
    gamma: int = 3,
    samples: int = 2,
    longest: int = 12,
    arrivals: bool = False,
) -> Trace:
    """Two drafters on the same texts: ``dspark`` with confidences, ``eagle`` without."""
    random = np.random.default_rng(seed)
    length = random.integers(1, longest + 1, requests)
    anchors = int(length.sum())
    meta: dict[str, Any] = {
        "format": 1,
        "target": "toy",
        "synthetic": True,
        "made": "random numbers for a test",
        "temperature": 0.7,
        "seed": seed,
        "drafters": {
            "dspark": {"kind": "dspark", "gamma": gamma, "head": "vanilla", "checkpoint": "abc"},
            "eagle": {"kind": "eagle", "gamma": gamma},
        },
        "notes": {"anything": [1, 2.5, None]},
    }
    texts = Trace(
        name="small",
        meta=meta,
        request_id=[f"p{q // samples}#{q % samples}" for q in range(requests)],
        domain=["chat" if q % 3 else "math" for q in range(requests)],
        prompt_tokens_Q=random.integers(0, 50, requests),
        output_tokens_Q=length,
        arrival_s_Q=np.sort(random.random(requests)) if arrivals else None,
        offset_Q1=offsets(length),
        drafters={},
    )

    def accepted() -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.minimum(random.integers(0, gamma + 1, anchors), texts.remaining_N).astype(np.uint8)

    def block() -> np.ndarray[Any, np.dtype[np.float16]]:
        return random.normal(1, 2, (anchors, gamma)).astype(np.float16)

    rate = random.random((anchors, gamma)).astype(np.float16)
    plain = Calibration.identity(gamma)
    texts.drafters["dspark"] = DrafterTrace(  # type: ignore[index]
        "dspark", "dspark", gamma, accepted(), block(), block(), rate, plain
    )
    texts.drafters["eagle"] = DrafterTrace(  # type: ignore[index]
        "eagle", "eagle", gamma, accepted(), None, None, None, plain
    )
    return texts
