"""A small valid profile that tests bend, one rule at a time."""

from __future__ import annotations

import copy
from typing import Any

from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.hardware.reading import parse_profile

MEASURED = {"how": "measured", "source": "a test"}

SMALL: dict[str, Any] = {
    "format": "dspark-sim/profile/1",
    "name": "small",
    "description": "made up",
    "device": "a device",
    "model": "a model",
    "num_gpus": 2,
    "sources": dict.fromkeys(
        [
            "verify",
            "capture",
            "eager",
            "draft.dspark",
            "draft.mtp",
            "host.constant_ms",
            "host.bubble_ms",
        ],
        MEASURED,
    ),
    "verify": {
        "lookup": "ceil_to_capture",
        "tokens": [1, 2, 4, 8, 16],
        "ms": [5.0, 5.5, 5.25, 6.0, 9.0],
        "beyond": "last_octave",
        "context_tokens": 1024,
    },
    "capture": {"limit": 16, "sizes": [2, 4, 8, 16]},
    "eager": {"tokens": [32, 64], "ms": [100.0, 90.0], "beyond": "hold"},
    "draft": {
        "dspark": {
            "gamma": 4,
            "lookup": "ceil_to_capture",
            "requests": [1, 4, 8],
            "pass_ms": [1.0, 1.6, 2.0],
            "beyond": "last_octave",
            "serial_ms": 0.1,
            "serial_ms_per_request": 0.01,
        },
        "mtp": {"lookup": "linear", "requests": [1, 5], "pass_ms": [0.5, 0.9], "beyond": "last_two"},
    },
    "host": {"constant_ms": 0.7, "bubble_ms": 1.7, "per_request_ms": 0.01},
}


def small(**changes: Any) -> dict[str, Any]:
    """Return a copy of the small profile; ``verify__ms=[...]`` replaces a value, ``...=None`` drops a key."""
    document = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = document
        for key in parents:
            node = node[key]
        if value is None:
            node.pop(last)
        else:
            node[last] = value
    return document


def small_profile(**changes: Any) -> HardwareProfile:
    """Return the small profile, bent, as the library sees it."""
    return parse_profile(small(**changes), "small.yaml")


def with_attention() -> HardwareProfile:
    """Return the small profile with attention in a table of its own."""
    document = small(verify__context_tokens=None)
    document["attention"] = {
        "requests": [1, 2, 4],
        "context_tokens": [100, 200, 400],
        "ms": [[1.0, 2.0, 4.0], [2.0, 3.0, 7.0], [4.0, 9.0, 11.0]],
        "beyond": "last_octave",
    }
    document["sources"]["attention"] = MEASURED
    return parse_profile(document, "small.yaml")


def with_serving(**changes: Any) -> HardwareProfile:
    """Return the small profile with every optional term of a step, and KV memory."""
    document = small()
    document["experts"] = {"all_ms": 6.0, "active": 1, "total": 4}
    document["prefill"] = {"ms_per_million_pairs": 2.0, "mixed_ms": 1.5}
    document["kv"] = {"block_tokens": 16, "memory_gib": 1.0, "bytes_per_token": 1000}
    document["host"] |= {"per_logit_row_ms": 0.005, "speculating_ms": 0.5}
    document["verify"]["additive"] = {"bias_ms": 1.0, "requests": [2, 4], "ms": [0.0, 0.8]}
    document["sources"] |= dict.fromkeys(["experts", "prefill", "kv"], MEASURED)
    for path, value in changes.items():
        section, key = path.split("__")
        document[section][key] = value
    return parse_profile(document, "small.yaml")
