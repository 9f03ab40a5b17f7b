"""The measured profile of vLLM on B300, rebuilt from the published curves; words that others borrow.

``tools/compose_profiles.py`` writes them; a test holds the committed files equal to what this makes.
Here stand the words and the few numbers that no table has, each with its source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.hardware.exchange import Described, import_document
from dspark_sim.hardware.profile import FORMAT

GAMMA = 7

BUBBLE = (
    "SGLang's DSpark blog post: overlap scheduling saves 1.7 ms outside a 7.3 ms verify (V4-Pro, TP8, B300)"
)
HOST = (
    "no-speculation median TPOT of 5.85 ms at one user minus the profiled 5.11 ms forward pass "
    "(V4-Flash, TP4, B300, vLLM): what sampling and scheduling add when nothing else runs"
)


def source(how: str, words: str) -> dict[str, str]:
    """Return an entry of ``sources``."""
    return {"how": how, "source": words}


def b300_document(cost_csv: Path) -> dict[str, Any]:
    """Return ``b300-tp4-dsv4-flash.yaml`` as nested mappings.

    Args:
        cost_csv: the published curves: columns curve, kind, size, ms.
    """
    verify, draft = _medians(cost_csv, "verify"), _medians(cost_csv, "draft")
    limit = 1024
    captured = {t: ms for t, ms in verify.items() if t <= limit}
    eager = {t: ms for t, ms in verify.items() if t > limit}
    requests = list(draft)
    serial = np.interp(np.maximum(np.array(requests) / GAMMA, 1.0), requests, list(draft.values())) / 3.0
    return {
        "format": FORMAT,
        "name": "b300-tp4-dsv4-flash",
        "description": "DeepSeek-V4-Flash-0731 with its DSpark drafter on four B300 (TP4), vLLM's own "
        "start-up profile: captured graphs to 1,024 tokens, then a cliff from 20.6 to 104 ms",
        "device": "4 x B300, tensor parallel",
        "model": "DeepSeek-V4-Flash-0731",
        "num_gpus": 4,
        "max_num_seqs": 256,
        "sources": _b300_sources(),
        "verify": {
            "lookup": "ceil_to_capture",
            "tokens": list(captured),
            "ms": list(captured.values()),
            "beyond": "last_octave",
            "context_tokens": 8192,
        },
        "capture": {"limit": limit, "sizes": "vllm"},
        "eager": {
            "tokens": list(eager),
            "ms": list(eager.values()),
            "beyond": "last_octave",
            "below": "hold",
        },
        "draft": {
            "dspark": {
                "gamma": GAMMA,
                "lookup": "ceil_to_capture",
                "requests": requests,
                "pass_ms": list(draft.values()),
                "beyond": "last_octave",
            },
            "mtp": {
                "lookup": "ceil_to_capture",
                "requests": requests,
                "pass_ms": [round(float(v), 4) for v in serial],
                "beyond": "last_octave",
            },
        },
        "host": {"constant_ms": 0.74, "bubble_ms": 1.7},
    }


def _medians(cost_csv: Path, curve: str) -> dict[int, float]:
    """Return size -> median of five samples [ms]; the plot's axis misses 8,192 (twice 4,096) by eight."""
    import pandas as pd

    table = pd.read_csv(cost_csv)
    rows = table[(table.curve == curve) & (table.kind == "median_of_5")].sort_values("size")
    return {
        8192 if size == 8184 else int(size): float(ms) for size, ms in zip(rows["size"], rows.ms, strict=True)
    }


def _b300_sources() -> dict[str, Any]:
    blog = "vLLM blog post on DSpark adaptive verification, figure 2 (digitised to 0.2%)"
    return {
        "max_num_seqs": source("measured", "the published serving command: --max-num-seqs 256"),
        "verify": source(
            "measured",
            f"{blog}: medians of five start-up steps at 83 captured sizes, dummy tokens, "
            "8,192 tokens of KV; forward pass only. Real steps are longer: the dummy tokens touch few "
            "experts, and sampling is not included",
        ),
        "capture": source(
            "measured", "the published run: limit 1,024, vLLM's default sizes (the 83 of the figure)"
        ),
        "eager": source(
            "measured",
            f"{blog}: medians at 1.5, 2, 4, 8 and 16 times the limit. Between the limit and "
            "1,536 the first value holds: eager steps are bound by launches, and the published collapse "
            "of fixed k sits at it",
        ),
        "draft.dspark": source(
            "measured",
            f"{blog}: medians of five at 35 request counts, serial loop included; "
            "num_speculative_tokens 7 by the published command, on a checkpoint trained for blocks "
            "of 5",
        ),
        "draft.mtp": source(
            "derived",
            "one layer instead of the drafter's three, one token a request instead of "
            "seven: a third of the measured draft curve at requests / 7; no MTP pass was published",
        ),
        "host.constant_ms": source("derived", HOST),
        "host.bubble_ms": source("assumed", "borrowed: " + BUBBLE),
    }


def engine_tables(tables_json: Path) -> list[dict[str, Any]]:
    """Return the two cost tables of engines that were published, as profiles.

    Args:
        tables_json: both tables by name.
    """
    tables = json.loads(tables_json.read_text(encoding="utf-8"))
    gb10 = Described(
        "gb10x2-inkling",
        device="2 x GB10",
        model="Inkling",
        num_gpus=2,
        source="SGLang's own profiler (dspark_sps_profiler), 1 to 16 requests of 8 tokens a rank: a public "
        "deployment note",
    )
    additive = Described(
        "trtllm-additive",
        device="not stated",
        model="not stated",
        num_gpus=1,
        source="the table of TensorRT-LLM's planner test (Apache-2.0, pull requests 17056 and 18392), which "
        "calls it the shape of a certified table; hardware and model are not stated",
    )
    chosen = {"gb10_2x_inkling_sglang_dspark_block7": gb10, "trtllm_dspark_certified_table_shape": additive}
    return [import_document(tables[key], described, key) for key, described in chosen.items()]
