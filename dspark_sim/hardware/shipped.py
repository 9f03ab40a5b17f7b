"""The two profiles that ship with the project, rebuilt from the measured tables they rest on.

``tools/compose_profiles.py`` writes them; a test holds the committed files equal to what this makes.
Here stand the words and the few numbers that no table has, each with its source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.hardware.compose import (
    DenseModel,
    Kernels,
    SerialHead,
    attention_section,
    draft_section,
    verify_section,
)
from dspark_sim.hardware.profile import FORMAT

QWEN3_8B = DenseModel("Qwen3-8B", layers=36, hidden=4096, vocabulary=151_936)
#: Two effects at once: figure 4 of arXiv 2607.05147 (batch 128, Qwen3, same vocabulary) puts DSpark's
#: Markov loop 0.175 ms per position above DFlash; W_2 (151,936 x 256 bf16, 78 MB) at the 2.7 TB/s that
#: the measured LM head reaches is 0.030 ms of it whatever the batch, the rest goes by requests.
MARKOV = SerialHead(constant_ms=0.03, per_request_ms=0.00113)
#: The smallest context of the attention table; SGLang's capture-derived draft table, the check, has dummy KV.
DRAFT_CONTEXT = 512
GAMMA = 7

_BUBBLE = (
    "SGLang's DSpark blog post: overlap scheduling saves 1.7 ms outside a 7.3 ms verify (V4-Pro, TP8, B300)"
)
_HOST = (
    "no-speculation median TPOT of 5.85 ms at one user minus the profiled 5.11 ms forward pass "
    "(V4-Flash, TP4, B300, vLLM): what sampling and scheduling add when nothing else runs"
)


def _source(how: str, source: str) -> dict[str, str]:
    return {"how": how, "source": source}


def h800_document(folder: Path) -> dict[str, Any]:
    """Return ``h800.yaml`` as nested mappings.

    Args:
        folder: the kernel tables (see :class:`dspark_sim.hardware.compose.Kernels`).
    """
    kernels = Kernels(folder, "h100_sxm", "vllm", QWEN3_8B)
    return {
        "format": FORMAT,
        "name": "h800",
        "description": "Qwen3-8B in bf16 on one H800, composed from kernels measured on the H100 SXM, "
        "whose silicon and memory it has (on one GPU its slower NVLink plays no part)",
        "device": "H800 SXM 80 GB",
        "model": "Qwen3-8B",
        "num_gpus": 1,
        "max_num_seqs": 512,
        "sources": _h800_sources(),
        "verify": verify_section(kernels),
        "capture": {"limit": 512, "sizes": "vllm"},
        "eager": {"overhead_ms": 4.0},
        "attention": attention_section(kernels),
        "draft": draft_section(kernels, GAMMA, DRAFT_CONTEXT, MARKOV),
        "host": {"constant_ms": 0.74, "bubble_ms": 1.7},
    }


def _h800_sources() -> dict[str, Any]:
    kernels = "aiconfigurator-core 0.12.0 (Apache-2.0), h100_sxm, vllm backend 0.24.0"
    layers = (
        f"from the same kernels: 5 of the target's 36 layers and 5 feature projections on requests * block "
        f"tokens, LM head scaled from the 16384 x 4096 GEMM, attention of 5 layers at {DRAFT_CONTEXT} tokens"
    )
    serial = (
        "one layer, a 2 x hidden input projection and the full LM head per pass, from the same kernels; "
        "no such drafter was timed, and Qwen3-8B has no MTP layer of its own"
    )
    return {
        "max_num_seqs": _source(
            "assumed", "the most requests of the measured attention table; memory may allow fewer"
        ),
        "verify": _source(
            "composed",
            f"{kernels}: sum of the measured GEMMs, LM head and pointwise kernels of all 36 "
            "layers at 118 token counts; attention apart; sampler and host not included",
        ),
        "capture": _source(
            "assumed", "vLLM's defaults: its list of sizes, and a limit of min(2 * max_num_seqs, 512)"
        ),
        "eager": _source(
            "assumed",
            "the same kernels plus 4 ms: about 400 launches a step at 10 us, none hidden. "
            "Nobody published an eager tail of this model; 0 if all launches hide, 6.5 by the unfused "
            "H100 layers of LLMServingSim at 513 tokens",
        ),
        "attention": _source(
            "composed",
            f"{kernels}: FA3 decode kernel of 36 layers, 10 request counts x 7 contexts; "
            "a request's KV is read once for all tokens it verifies (lower bound)",
        ),
        "draft.dspark": _source(
            "derived",
            layers + "; serial loop: figure 4 of arXiv 2607.05147, DSpark minus DFlash "
            "at batch 128 is 0.175 ms a position, split into reading W_2 and a part by requests",
        ),
        "draft.dflash": _source("derived", layers + "; block of gamma + 1, no serial loop"),
        "draft.mtp": _source("derived", serial),
        "draft.eagle": _source("derived", serial),
        "host.constant_ms": _source("assumed", "borrowed: " + _HOST),
        "host.bubble_ms": _source("assumed", "borrowed: " + _BUBBLE),
    }


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
        "max_num_seqs": _source("measured", "the published serving command: --max-num-seqs 256"),
        "verify": _source(
            "measured",
            f"{blog}: medians of five start-up steps at 83 captured sizes, dummy tokens, "
            "8,192 tokens of KV; forward pass only. Real steps are longer: the dummy tokens touch few "
            "experts, and sampling is not included",
        ),
        "capture": _source(
            "measured", "the published run: limit 1,024, vLLM's default sizes (the 83 of the figure)"
        ),
        "eager": _source(
            "measured",
            f"{blog}: medians at 1.5, 2, 4, 8 and 16 times the limit. Between the limit and "
            "1,536 the first value holds: eager steps are bound by launches, and the published collapse "
            "of fixed k sits at it",
        ),
        "draft.dspark": _source(
            "measured",
            f"{blog}: medians of five at 35 request counts, serial loop included; "
            "num_speculative_tokens 7 by the published command, on a checkpoint trained for blocks "
            "of 5",
        ),
        "draft.mtp": _source(
            "derived",
            "one layer instead of the drafter's three, one token a request instead of "
            "seven: a third of the measured draft curve at requests / 7; no MTP pass was published",
        ),
        "host.constant_ms": _source("derived", _HOST),
        "host.bubble_ms": _source("assumed", "borrowed: " + _BUBBLE),
    }
