"""Composed step costs against what others measured on the same or the same kind of silicon.

Each comparison is independent of the tables that the profile was composed from. Run them with
``tools/compose_profiles.py DATA --check``; docs/hardware.md shows the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from dspark_sim.hardware.compose import Kernels, parallel_pass_ms
from dspark_sim.hardware.dense_models import LLAMA31_70B, QWEN3_8B, QWEN3_14B
from dspark_sim.hardware.library import DRAFT_CONTEXT, MARKOV, RECIPES
from dspark_sim.hardware.shipped import GAMMA

#: Weights of the linear layers of one token's pass: Qwen3-8B over Llama-3.1-8B, layers and LM head.
_LINEAR_RATIO, _HEAD_RATIO = 6.946 / 6.980, 151_936 / 128_256
#: Captured tables that SGLang's pull request 35413 quotes for Qwen3-14B with its DSpark drafter, H200 [ms].
SGLANG_VERIFY_MS = {8: 8.71, 16: 8.77, 1024: 42.34}
SGLANG_DRAFT_MS = {1: 1.74, 2: 1.78, 128: 7.37}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number of ours beside one that was measured elsewhere."""

    group: str
    at: str
    composed_ms: float
    measured_ms: float

    @property
    def error_pct(self) -> float:
        """Composed over measured, minus one [%]."""
        return 100.0 * (self.composed_ms / self.measured_ms - 1.0)


def comparisons(folder: Path) -> list[Comparison]:
    """Return every comparison that the tables in ``folder`` allow."""
    h100 = Kernels(folder, "h100_sxm", "vllm", QWEN3_8B)
    h200 = Kernels(folder, "h200_sxm", "vllm", QWEN3_14B)
    return [
        *_h800_attention(folder, h100),
        *_h800_streaming(folder),
        *_llmservingsim(folder, h100),
        *_llama_70b(folder),
        *_sglang_verify(h200),
        *_sglang_draft(h200),
    ]


def _h800_attention(folder: Path, h100: Kernels) -> Iterator[Comparison]:
    """FA3 decode kernel timed on the H800, 32 query and 8 key heads as in Qwen3-8B, times its 36 layers."""
    ours = h100.attention
    theirs = _columns(folder / "infersim_h800_mha_decode_32q8kv.csv", ["batch_size", "kv_len"])["latency_us"]
    for (batch, context), latency_us in theirs.items():
        if batch in ours.index and context in ours.columns:
            measured = latency_us * 1e-3 * QWEN3_8B.layers
            composed = float(ours.to_dict()[context][batch])
            at = f"{batch} x {context:,} tokens"
            yield Comparison("attention, H800 FA3 kernel", at, composed, measured)


def _h800_streaming(folder: Path) -> Iterator[Comparison]:
    """Time to read 1 GB of weights at few tokens, where a GEMM is bound by memory: widest of each file.

    The H800 file has fp8 GEMMs only, so times cannot be compared; bytes per second can.
    """
    h800 = _columns(folder / "infersim_h800_gemm_fp8.csv", "m", k=7168, n=36864)
    h100 = _columns(
        folder / "aic_raw_gemm_vllm.csv", "m", system="h100_sxm", gemm_dtype="bfloat16", k=12288, n=16384
    )
    for tokens in (16, 32, 64):
        ours = h100["latency_us"][tokens] * 1e-3 / (2 * 12288 * 16384 * 1e-9)
        theirs = h800["latency_us"][tokens] * 1e-3 / (7168 * 36864 * 1e-9)
        yield Comparison("1 GB of weights, H800 fp8 GEMM", f"{tokens} tokens", ours, theirs)


def _llmservingsim(folder: Path, h100: Kernels) -> Iterator[Comparison]:
    """Linear layers and LM head of Llama-3.1-8B on an H100, scaled by weights to Qwen3-8B."""
    theirs = _columns(folder / "llmservingsim_h100_llama-3.1-8b_tp1_dense_by_token.csv", "tokens")
    ours = h100.tokens.set_index("tokens").gemm_ms.to_dict()
    for tokens in (1, 8, 64, 128, 256, 512, 513, 768, 1024, 1025):
        layers, head = theirs["linear_all_layers_ms"][tokens], theirs["lm_head_ms"][tokens]
        measured = layers * _LINEAR_RATIO + head * _HEAD_RATIO
        yield Comparison("GEMMs, LLMServingSim Llama-3.1-8B", f"{tokens:,} tokens", ours[tokens], measured)


def _llama_70b(folder: Path) -> Iterator[Comparison]:
    """Llama-3.1-70B on four H100: aiconfigurator's GEMMs beside LLMServingSim's, both measured."""
    (recipe,) = (recipe for recipe in RECIPES if recipe.name == "h100-llama-3.1-70b")
    ours = Kernels(folder, "h100_sxm", "vllm", LLAMA31_70B).tokens.set_index("tokens").gemm_ms.to_dict()
    assert recipe.every_token is not None
    theirs = _columns(folder / recipe.every_token.file, "tokens")
    for tokens in (1, 8, 64, 128, 256, 512, 513, 768, 1024, 1025):
        measured = theirs["linear_all_layers_ms"][tokens] + theirs["lm_head_ms"][tokens]
        yield Comparison("GEMMs, LLMServingSim Llama-3.1-70B", f"{tokens:,} tokens", ours[tokens], measured)


def _sglang_verify(h200: Kernels) -> Iterator[Comparison]:
    """Qwen3-14B on the H200: verify by tokens, eight of them a request."""
    for tokens, measured in SGLANG_VERIFY_MS.items():
        requests = [tokens // (GAMMA + 1)]
        attention = h200.attention_layer_ms(requests, DRAFT_CONTEXT)[0] * QWEN3_14B.layers
        composed = float(h200.step_ms([tokens])[0] + attention)
        yield Comparison("verify, SGLang Qwen3-14B on H200", f"{tokens:,} tokens", composed, measured)


def _sglang_draft(h200: Kernels) -> Iterator[Comparison]:
    """The drafter of Qwen3-14B on the H200 by requests: composed pass plus the serial loop."""
    for requests, composed in zip(SGLANG_DRAFT_MS, _draft_ms(h200, list(SGLANG_DRAFT_MS)), strict=True):
        measured = SGLANG_DRAFT_MS[requests]
        yield Comparison("draft, SGLang Qwen3-14B on H200", f"{requests} requests", composed, measured)


def _draft_ms(kernels: Kernels, requests: Sequence[int]) -> list[float]:
    serial = GAMMA * (MARKOV.constant_ms + MARKOV.per_request_ms * np.array(requests))
    passes = parallel_pass_ms(kernels, GAMMA, requests, DRAFT_CONTEXT)
    return [float(ms) for ms in passes + serial]


def _columns(path: Path, index: str | list[str], **where: object) -> dict[str, dict[Any, float]]:
    """Return column -> index -> value of the rows of a CSV that match ``where``."""
    import pandas as pd

    table = pd.read_csv(path)
    for column, value in where.items():
        table = table[table[column] == value]
    return cast(dict[str, dict[Any, float]], table.set_index(index).to_dict())
