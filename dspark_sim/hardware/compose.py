"""Composing a profile from kernels that others measured: which tables are summed, and how.

The kernels were measured; their sum was not. Sources: aiconfigurator (Apache-2.0) for the target's
layers, head and attention on one GPU. The KV cache of a request is read once for all tokens it
verifies, so attention goes by requests and context, never by tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.hardware.dense_models import DenseModel
from dspark_sim.schema import FloatArray

if TYPE_CHECKING:
    import pandas as pd

#: Requests at which composed draft costs are tabulated.
DRAFT_REQUESTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
#: The widest GEMM of the measured file; the LM head is scaled from it by its rows.
_WIDEST = 16384


@dataclass(frozen=True, slots=True)
class SerialHead:
    """Cost of one position of the sequential head [ms]: constant_ms + per_request_ms * requests."""

    constant_ms: float
    per_request_ms: float


class Kernels:
    """Measured kernels of one device and backend for one model.

    Attributes:
        model: the target.
        tokens: columns tokens and nonattn_ms, ascending: everything but attention.

    Args:
        folder: holds ``aic_tokens_nonattn.csv``, ``aic_attn_by_req_ctx.csv``, ``aic_raw_gemm_vllm.csv``.
        system: e.g. ``h100_sxm``.
        backend: e.g. ``vllm``.
        model: the target.
    """

    def __init__(self, folder: Path, system: str, backend: str, model: DenseModel) -> None:
        import pandas as pd

        def rows(name: str, **where: str) -> pd.DataFrame:
            table = pd.read_csv(folder / name)
            for column, value in where.items():
                table = table[table[column] == value]
            return table

        self.model = model
        self.tokens = rows("aic_tokens_nonattn.csv", system=system, backend=backend, model=model.name)
        self._attention = rows("aic_attn_by_req_ctx.csv", system=system, backend=backend, model=model.name)
        self._gemm = rows("aic_raw_gemm_vllm.csv", system=system, gemm_dtype="bfloat16")

    @property
    def attention(self) -> pd.DataFrame:
        """Attention [ms]: rows are requests, columns contexts."""
        return self._attention.pivot_table(index="requests", columns="ctx", values="attn_ms")

    def step_ms(self, tokens_X: Sequence[int]) -> FloatArray:
        """Return everything but attention, LM head included [ms]."""
        return _line(tokens_X, self.tokens.tokens, self.tokens.nonattn_ms)

    def gemm_ms(self, rows: int, columns: int, tokens_X: Sequence[int]) -> FloatArray:
        """Return one measured bf16 GEMM of ``rows`` x ``columns`` [ms]."""
        found = self._gemm[(self._gemm.n == rows) & (self._gemm.k == columns)].sort_values("m")
        return _line(tokens_X, found.m, found.latency_us) * 1e-3

    def head_ms(self, tokens_X: Sequence[int]) -> FloatArray:
        """Return the LM head [ms], scaled from the widest measured GEMM of the same k."""
        return self.gemm_ms(_WIDEST, self.model.hidden, tokens_X) * (self.model.vocabulary / _WIDEST)

    def layer_ms(self, tokens_X: Sequence[int]) -> FloatArray:
        """Return one decoder layer without attention [ms]."""
        return (self.step_ms(tokens_X) - self.head_ms(tokens_X)) / self.model.layers

    def attention_layer_ms(self, requests_X: Sequence[int], context: int) -> FloatArray:
        """Return the attention of one layer [ms] at a context of the table."""
        column = self.attention[context]
        return _line(requests_X, column.index.to_numpy(), column) / self.model.layers


class MeasuredLayers(Kernels):
    """GEMMs of every token count from 1 to 2,048 by LLMServingSim (MIT), in place of the coarser table.

    Its profile has neither fused pointwise kernels nor communication nor attention: those are of the
    kernel tables for ``like``, scaled by layers.

    Args:
        folder: also holds ``file``.
        file: columns tokens, linear_all_layers_ms, lm_head_ms, o_proj_us.
        system: as in :class:`Kernels`.
        backend: as in :class:`Kernels`.
        like: a model of the kernel tables with the same width, heads and number of GPUs.
        model: the target.
    """

    def __init__(
        self, folder: Path, file: str, *, system: str, backend: str, like: DenseModel, model: DenseModel
    ) -> None:
        import pandas as pd

        super().__init__(folder, system, backend, like)
        self._layers = pd.read_csv(folder / file)
        share = model.layers / like.layers
        apart_ms = _line(self._layers.tokens, self.tokens.tokens, self.tokens.other_ms + self.tokens.comm_ms)
        forward_ms = self._layers.linear_all_layers_ms + self._layers.lm_head_ms + share * apart_ms
        self.tokens = pd.DataFrame({"tokens": self._layers.tokens, "nonattn_ms": forward_ms.round(4)})
        self._attention = self._attention.assign(attn_ms=(self._attention.attn_ms * share).round(4))
        self.model = model

    def gemm_ms(self, rows: int, columns: int, tokens_X: Sequence[int]) -> FloatArray:
        """Return the one square GEMM that was measured, hidden x hidden (the output projection) [ms]."""
        assert rows == columns == self.model.hidden
        return _line(tokens_X, self._layers.tokens, self._layers.o_proj_us) * 1e-3

    def head_ms(self, tokens_X: Sequence[int]) -> FloatArray:
        """Return the LM head [ms]."""
        return _line(tokens_X, self._layers.tokens, self._layers.lm_head_ms)


def _line(at: Any, sizes: Any, values: Any) -> FloatArray:
    """Interpolate; past the last size in proportion (a compute-bound GEMM doubles with its tokens)."""
    at_X, last = np.asarray(at, dtype=np.float64), float(np.max(sizes))
    inside = np.interp(at_X, np.asarray(sizes, dtype=np.float64), np.asarray(values, dtype=np.float64))
    return inside * np.maximum(at_X / last, 1.0)


def parallel_pass_ms(kernels: Kernels, block: int, requests: Sequence[int], context: int) -> FloatArray:
    """Return one parallel draft pass of ``block`` positions a request [ms].

    Draft layers, feature projection and LM head run on requests * block tokens; attention reads each
    request's context once.
    """
    model, tokens = kernels.model, [r * block for r in requests]
    layers = kernels.layer_ms(tokens) + kernels.attention_layer_ms(requests, context)
    taps = kernels.gemm_ms(model.hidden, model.hidden, tokens) * model.taps
    return model.draft_layers * layers + taps + kernels.head_ms(tokens)


def serial_pass_ms(kernels: Kernels, requests: Sequence[int], context: int) -> FloatArray:
    """Return one pass of a one-layer autoregressive drafter [ms]: input projection, layer, LM head."""
    model = kernels.model
    layer = kernels.layer_ms(requests) + kernels.attention_layer_ms(requests, context)
    return layer + 2 * kernels.gemm_ms(model.hidden, model.hidden, requests) + kernels.head_ms(requests)


def verify_section(kernels: Kernels) -> dict[str, Any]:
    """Return the ``verify`` section: every measured token count, nothing smoothed."""
    table = kernels.tokens.sort_values("tokens")
    return {
        "lookup": "ceil_to_capture",
        "tokens": table.tokens.tolist(),
        "ms": table.nonattn_ms.tolist(),
        "beyond": "last_octave",
    }


def attention_section(kernels: Kernels) -> dict[str, Any]:
    """Return the ``attention`` section."""
    table = kernels.attention
    return {
        "requests": [int(r) for r in table.index],
        "context_tokens": [int(c) for c in table.columns],
        "ms": table.to_numpy().tolist(),
        "beyond": "last_octave",
    }


def draft_section(kernels: Kernels, gamma: int, context: int, head: SerialHead) -> Mapping[str, Any]:
    """Return the ``draft`` section; DSpark feeds gamma positions a request, DFlash gamma + 1."""
    common = {"lookup": "ceil_to_capture", "requests": list(DRAFT_REQUESTS)}

    def passes(values: FloatArray) -> dict[str, Any]:
        return common | {"pass_ms": [round(float(v), 4) for v in values], "beyond": "last_octave"}

    dspark = passes(parallel_pass_ms(kernels, gamma, DRAFT_REQUESTS, context))
    dflash = passes(parallel_pass_ms(kernels, gamma + 1, DRAFT_REQUESTS, context))
    serial = passes(serial_pass_ms(kernels, DRAFT_REQUESTS, context))
    loop = {"serial_ms": head.constant_ms, "serial_ms_per_request": head.per_request_ms}
    return {
        "dspark": {"gamma": gamma} | dspark | loop,
        "dflash": {"gamma": gamma} | dflash,
        "mtp": serial,
        "eagle": serial,
    }
