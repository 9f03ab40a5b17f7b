"""Shapes of dense targets that profiles are composed for, with what follows from them: bytes and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DenseModel:
    """What the composition needs to know of a dense target and its drafters.

    name: as in the kernel tables.
    layers: decoder layers of the target.
    hidden: model width, and k of the LM-head GEMM.
    vocabulary: rows of the LM head.
    draft_layers: layers of the parallel drafter; each costs what a layer of the target costs.
    taps: target layers whose features the drafter projects (one hidden x hidden GEMM each).
    query_heads, kv_heads, head_width, inner: widths of attention and MLP, for bytes and FLOPs.
    tied: whether the LM head is the embedding.
    """

    name: str
    layers: int
    hidden: int
    vocabulary: int
    query_heads: int
    inner: int
    kv_heads: int = 8
    head_width: int = 128
    tied: bool = False
    draft_layers: int = 5
    taps: int = 5

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer."""
        attention = self.hidden * self.head_width * 2 * (self.query_heads + self.kv_heads)
        return attention + 3 * self.hidden * self.inner

    @property
    def parameters(self) -> int:
        """Weights of the target, norms left out."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + embeddings

    @property
    def drafter_parameters(self) -> int:
        """Weights that a DSpark drafter adds: layers, feature projections, a Markov head of rank 256."""
        markov = 2 * 256 * self.vocabulary
        return self.draft_layers * self.layer_parameters + self.taps * self.hidden**2 + markov

    @property
    def kv_bytes_per_layer(self) -> int:
        """KV of one token in one layer, in 16 bits."""
        return 2 * 2 * self.kv_heads * self.head_width

    @property
    def attention_flops_per_pair(self) -> int:
        """FLOPs of one pair of tokens, all layers: scores and weighted sum, 2 each per query width."""
        return 4 * self.layers * self.query_heads * self.head_width


_QWEN3, _LLAMA3 = 151_936, 128_256
QWEN3_4B = DenseModel(
    "Qwen3-4B", layers=36, hidden=2560, vocabulary=_QWEN3, query_heads=32, inner=9728, tied=True
)
QWEN3_8B = DenseModel("Qwen3-8B", layers=36, hidden=4096, vocabulary=_QWEN3, query_heads=32, inner=12_288)
QWEN3_14B = DenseModel("Qwen3-14B", layers=40, hidden=5120, vocabulary=_QWEN3, query_heads=40, inner=17_408)
LLAMA31_8B = DenseModel(
    "Llama-3.1-8B", layers=32, hidden=4096, vocabulary=_LLAMA3, query_heads=32, inner=14_336
)
#: Named as in the kernel tables.
LLAMA31_70B = DenseModel(
    "Llama3.1-70B", layers=80, hidden=8192, vocabulary=_LLAMA3, query_heads=64, inner=28_672
)
