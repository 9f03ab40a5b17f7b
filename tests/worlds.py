"""Small random worlds for the engine: traces full of ties, jagged costs, any gamma."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import TypeAdapter

from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.traces import DrafterTrace, Trace, offsets

TIES = np.array([-2.0, 0.0, 0.0, 1.5, 20.0])


def make_trace(length, accepted, logits=None, free=None, *, gamma, prompt=None, kind="dspark") -> Trace:
    """Return a trace of one drafter from per-anchor arrays; logits None: a drafter without a head."""
    length = np.asarray(length, dtype=np.int64)
    drafter = DrafterTrace(
        name=kind,
        kind=kind,
        gamma=gamma,
        accepted_N=np.asarray(accepted, dtype=np.uint8),
        confidence_logit_NG=None if logits is None else np.asarray(logits, dtype=np.float16),
        confidence_logit_free_NG=None if free is None else np.asarray(free, dtype=np.float16),
        accept_rate_NG=None,
        calibration=Calibration.identity(gamma),
    )
    return Trace(
        name="world",
        meta={"synthetic": True, "target": "none", "made": "drawn in a test"},
        request_id=[f"r{q}#0" for q in range(len(length))],
        domain=["test"] * len(length),
        prompt_tokens_Q=np.full(len(length), 10) if prompt is None else np.asarray(prompt, dtype=np.int64),
        output_tokens_Q=length,
        arrival_s_Q=None,
        offset_Q1=offsets(length),
        drafters={kind: drafter},
    )


def random_trace(seed: int, *, num_requests=6, longest=12, gamma=3, ties=False, kind="dspark") -> Trace:
    """Return a trace with lengths 1..longest (one at least 2) and confidences that may be full of ties."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, longest + 1, size=num_requests)
    length[rng.integers(num_requests)] = max(longest, 2)
    left = np.concatenate([np.arange(n)[::-1] for n in length])
    shape = (len(left), gamma)
    logits, free = (rng.choice(TIES, shape) if ties else rng.normal(1.0, 1.5, shape) for _ in range(2))
    accepted = np.minimum(rng.integers(0, gamma + 1, size=len(left)), left)
    return make_trace(
        length, accepted, logits, free, gamma=gamma, prompt=rng.integers(1, 50, size=num_requests), kind=kind
    )


def make_profile(**changes: Any) -> HardwareProfile:
    """Return a profile with every term of the cost; ``changes`` replace sections."""
    sections = {
        "format": "dspark-sim/profile/1",
        "name": "test",
        "description": "test",
        "device": "test",
        "model": "test",
        "num_gpus": 2,
        "sources": {},
        "verify": table([1, 8, 16, 32, 64], [7.0, 7.5, 7.25, 11.0, 16.0], key="tokens", value="ms"),
        "capture": {"limit": 32, "sizes": [1, 4, 8, 16, 32]},
        "eager": {"overhead_ms": 20.0},
        "host": {"constant_ms": 0.8, "bubble_ms": 1.7, "per_request_ms": 0.01},
        "draft": {
            "dspark": table([1, 64], [1.0, 3.0]) | {"gamma": 7, "serial_ms": 0.05},
            "mtp": table([1, 64], [0.7, 2.0]),
            "eagle": table([1, 64], [0.9, 2.0]),
        },
    }
    return TypeAdapter(HardwareProfile).validate_python(sections | changes)


def table(sizes, values, *, key="requests", value="pass_ms") -> dict[str, Any]:
    """Return a table section, read linearly."""
    return {"lookup": "linear", key: sizes, value: values, "beyond": "hold"}


def random_profile(seed: int, max_num_seqs: int | None = None) -> HardwareProfile:
    """Return a profile whose verify cost rises and falls, with attention that grows with context."""
    rng = np.random.default_rng(seed)
    attention = {"requests": [1, 8], "context_tokens": [16, 64], "beyond": "hold"}
    return make_profile(
        max_num_seqs=max_num_seqs,
        verify=table(list(range(1, 65)), rng.uniform(4.0, 12.0, 64).tolist(), key="tokens", value="ms"),
        attention=attention | {"ms": rng.uniform(0.1, 2.0, (2, 2)).tolist()},
        draft={
            "dspark": table([1, 8], rng.uniform(0.1, 3.0, 2).tolist()) | {"gamma": 7, "serial_ms": 0.05},
            "mtp": table([1, 8], rng.uniform(0.1, 3.0, 2).tolist()),
        },
    )


def constant_cost(ms: float = 10.0, max_num_seqs: int | None = None) -> HardwareProfile:
    """Return a profile on which every step costs the same and drafting is free."""
    free = table([1], [0.0])
    return make_profile(
        max_num_seqs=max_num_seqs,
        verify=table([1], [ms], key="tokens", value="ms"),
        capture=None,
        eager=None,
        host={"constant_ms": 0.0, "bubble_ms": 0.0},
        draft={"dspark": free | {"gamma": 7}, "mtp": free},
    )
