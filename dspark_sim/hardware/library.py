"""Composed profiles: dense targets on Hopper GPUs, from kernels that others measured; the list that ships.

``tools/compose_profiles.py`` writes them; a test holds the committed files equal to what this makes.
Here stand the words and the few numbers that no table has, each with its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.hardware.compose import (
    Kernels,
    MeasuredLayers,
    SerialHead,
    attention_section,
    draft_section,
    verify_section,
)
from dspark_sim.hardware.dense_models import (
    LLAMA31_8B,
    LLAMA31_70B,
    QWEN3_4B,
    QWEN3_8B,
    QWEN3_14B,
    DenseModel,
)
from dspark_sim.hardware.fields import FORMAT
from dspark_sim.hardware.shipped import BUBBLE, GAMMA, HOST, source

#: Two effects at once: figure 4 of arXiv 2607.05147 (batch 128, Qwen3, same vocabulary) puts DSpark's
#: Markov loop 0.175 ms per position above DFlash; W_2 (151,936 x 256 bf16, 78 MB) at the 2.7 TB/s that
#: the measured LM head reaches is 0.030 ms of it whatever the batch, the rest goes by requests.
MARKOV = SerialHead(constant_ms=0.03, per_request_ms=0.00113)
#: The smallest context of the attention table; SGLang's capture-derived draft table, the check, has dummy KV.
DRAFT_CONTEXT = 512
#: Share of the memory that vLLM uses by default, and what a forward pass needs of it on each GPU (assumed).
_UTILISATION, _ACTIVATIONS_GIB = 0.9, 2.0
#: A design note on TensorRT-LLM: 48 graphs fewer return 0.4 to 0.8 GB a GPU.
_GRAPH_MIB = 12.0
#: Causal prompts of a few thousand tokens in bf16 on Hopper, after FlashAttention-3's published range.
_PROMPT_FLOPS_PER_S = 500e12
#: Launches a layer: 400 in the 36 layers of Qwen3-8B, none hidden, 10 us each.
_LAUNCHES_PER_36_LAYERS, _LAUNCH_MS = 400, 0.01
_AIC = "aiconfigurator-core 0.12.0 (Apache-2.0), {system}, vllm backend 0.24.0"
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU: ``system`` of the kernel tables, name, memory as its driver reports it [MiB]."""

    system: str
    device: str
    memory_mib: int


H100 = Machine("h100_sxm", "H100 SXM 80 GB", 81_559)
H200 = Machine("h200_sxm", "H200 SXM 141 GB", 143_771)
H800 = Machine("h100_sxm", "H800 SXM 80 GB", 81_559)


@dataclass(frozen=True, slots=True)
class EveryToken:
    """LLMServingSim's GEMMs of every token count: the file, and whose other kernels stand in."""

    file: str
    like: DenseModel
    borrowed: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one composed profile is made of.

    name: of the profile.
    machine: one GPU of it.
    target: its model.
    shown: the target's usual name, where the kernel tables have another.
    num_gpus: tensor-parallel GPUs.
    every_token: GEMMs of every token count in place of the coarser table.
    serving: whether KV memory and prompt attention are stated.
    """

    name: str
    machine: Machine
    target: DenseModel
    shown: str | None = None
    num_gpus: int = 1
    every_token: EveryToken | None = None
    serving: bool = True

    @property
    def model(self) -> str:
        """The target's usual name."""
        return self.shown or self.target.name

    @property
    def device(self) -> str:
        """The GPUs in words."""
        device = self.machine.device
        return device if self.num_gpus == 1 else f"{self.num_gpus} x {device}, tensor parallel"

    @property
    def eager_ms(self) -> float:
        """Launches that an eager step does not hide [ms]."""
        return round(self.launches * _LAUNCH_MS, 1)

    @property
    def launches(self) -> int:
        """Kernel launches of a step, to the nearest ten."""
        return int(round(self.target.layers / 36 * _LAUNCHES_PER_36_LAYERS, -1))

    def kernels(self, folder: Path) -> Kernels:
        """Read the tables in ``folder``."""
        system, measured = self.machine.system, self.every_token
        if measured is None:
            return Kernels(folder, system, "vllm", self.target)
        return MeasuredLayers(
            folder, measured.file, system=system, backend="vllm", like=measured.like, model=self.target
        )


_LLAMA_8B = EveryToken(
    "llmservingsim_h100_llama-3.1-8b_tp1_dense_by_token.csv",
    QWEN3_8B,
    "Qwen3-8B, same width and heads, times 32/36 layers",
)
_LLAMA_70B = EveryToken(
    "llmservingsim_h100_llama-3.1-70b_tp4_dense_by_token.csv",
    LLAMA31_70B,
    "Llama-3.1-70B at TP4, all-reduce included",
)
RECIPES = (
    Recipe("h800", H800, QWEN3_8B, serving=False),
    Recipe("h800-qwen3-4b", H800, QWEN3_4B),
    Recipe("h800-qwen3-14b", H800, QWEN3_14B),
    Recipe("h100-qwen3-4b", H100, QWEN3_4B),
    Recipe("h100-qwen3-8b", H100, QWEN3_8B),
    Recipe("h100-qwen3-14b", H100, QWEN3_14B),
    Recipe("h200-qwen3-4b", H200, QWEN3_4B),
    Recipe("h200-qwen3-8b", H200, QWEN3_8B),
    Recipe("h200-qwen3-14b", H200, QWEN3_14B),
    Recipe("h100-llama-3.1-8b", H100, LLAMA31_8B, every_token=_LLAMA_8B),
    Recipe("h100-llama-3.1-70b", H100, LLAMA31_70B, "Llama-3.1-70B", num_gpus=4, every_token=_LLAMA_70B),
)


def composed_document(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Return a composed profile as nested mappings.

    Args:
        recipe: which.
        folder: the kernel tables (see :class:`dspark_sim.hardware.compose.Kernels`).
    """
    kernels = recipe.kernels(folder)
    document = {
        "format": FORMAT,
        "name": recipe.name,
        "description": _description(recipe),
        "device": recipe.device,
        "model": recipe.model,
        "num_gpus": recipe.num_gpus,
        "max_num_seqs": 512,
        "sources": _sources(recipe),
        "verify": verify_section(kernels),
        "capture": {"limit": 512, "sizes": "vllm"},
        "eager": {"overhead_ms": recipe.eager_ms},
        "attention": attention_section(kernels),
        "draft": draft_section(kernels, GAMMA, DRAFT_CONTEXT, MARKOV),
        "host": {"constant_ms": 0.74, "bubble_ms": 1.7},
    }
    return document | _serving(recipe, document) if recipe.serving else document


def _serving(recipe: Recipe, document: dict[str, Any]) -> dict[str, Any]:
    """Return the sections that only serving needs: KV and graph memory, attention of prompts."""
    target, gpus = recipe.target, recipe.num_gpus
    weights_gib = 2 * (target.parameters + target.drafter_parameters) / _GIB
    usable_gib = gpus * (_UTILISATION * recipe.machine.memory_mib / 1024 - _ACTIVATIONS_GIB)
    ms_per_million = 1e6 * target.attention_flops_per_pair / (gpus * _PROMPT_FLOPS_PER_S) * 1e3
    return {
        "capture": document["capture"] | {"memory_mib_per_size": _GRAPH_MIB * gpus},
        "prefill": {"ms_per_million_pairs": round(ms_per_million, 3)},
        "kv": {
            "block_tokens": 16,
            "memory_gib": round(usable_gib - weights_gib, 2),
            "bytes_per_token": target.layers * target.kv_bytes_per_layer,
            "draft_bytes_per_token": target.draft_layers * target.kv_bytes_per_layer,
        },
    }


def _description(recipe: Recipe) -> str:
    if recipe.machine is H800:
        why = "the H100 SXM, whose silicon and memory it has (on one GPU its slower NVLink plays no part)"
        return f"{recipe.model} in bf16 on one H800, composed from kernels measured on {why}"
    if recipe.every_token is None:
        return f"{recipe.model} in bf16 on one {recipe.machine.device}, composed from kernels measured on it"
    return f"{recipe.model} in bf16 on {recipe.device}: GEMMs measured at every token count to 2,048"


def _sources(recipe: Recipe) -> dict[str, Any]:
    target, kernels = recipe.target, _AIC.format(system=recipe.machine.system)
    head = "as measured" if recipe.every_token else f"scaled from the 16384 x {target.hidden} GEMM"
    layers = (
        f"from the same kernels: 5 of the target's {target.layers} layers and 5 feature projections on "
        f"requests * block tokens, LM head {head}, attention of 5 layers at {DRAFT_CONTEXT} tokens"
    )
    serial = (
        "one layer, a 2 x hidden input projection and the full LM head per pass, from the same kernels; "
        f"no such drafter was timed, and {recipe.model} has no MTP layer of its own"
    )
    sources = {
        "max_num_seqs": source(
            "assumed", "the most requests of the measured attention table; memory may allow fewer"
        ),
        "verify": source("composed", _verify_words(recipe, kernels)),
        "capture": source("assumed", _capture_words(recipe)),
        "eager": source("assumed", _eager_words(recipe)),
        "attention": source(
            "composed",
            f"{kernels}: FA3 decode kernel of {target.layers} layers, 10 request counts x 7 contexts; "
            "a request's KV is read once for all tokens it verifies (lower bound)",
        ),
        "draft.dspark": source(
            "derived",
            layers + "; serial loop: figure 4 of arXiv 2607.05147, DSpark minus DFlash "
            "at batch 128 is 0.175 ms a position, split into reading W_2 and a part by requests",
        ),
        "draft.dflash": source("derived", layers + "; block of gamma + 1, no serial loop"),
        "draft.mtp": source("derived", serial),
        "draft.eagle": source("derived", serial),
        "host.constant_ms": source("assumed", "borrowed: " + HOST),
        "host.bubble_ms": source("assumed", "borrowed: " + BUBBLE),
    }
    return sources | _serving_sources(recipe) if recipe.serving else sources


def _verify_words(recipe: Recipe, kernels: str) -> str:
    layers, measured = recipe.target.layers, recipe.every_token
    if measured is None:
        return (
            f"{kernels}: sum of the measured GEMMs, LM head and pointwise kernels of all {layers} "
            "layers at 118 token counts; attention apart; sampler and host not included"
        )
    return (
        f"GEMMs and LM head of all {layers} layers at each of 1 to 2,048 tokens, none dropped or smoothed: "
        "LLMServingSim (casys-kaist, MIT), H100, PyTorch profiler without graphs; its pointwise kernels are "
        f"unfused and not used: those of {kernels}, {measured.borrowed}; attention apart; sampler and host "
        "not included"
    )


def _capture_words(recipe: Recipe) -> str:
    words = "vLLM's defaults: its list of sizes, and a limit of min(2 * max_num_seqs, 512)"
    graphs = (
        f"; {_GRAPH_MIB:g} MiB a graph and GPU: a design note on TensorRT-LLM, 48 graphs are 0.4 to 0.8 GB"
    )
    return words + graphs if recipe.serving else words


def _eager_words(recipe: Recipe) -> str:
    return (
        f"the same kernels plus {recipe.eager_ms:g} ms: about {recipe.launches} launches a step at 10 us, "
        "none hidden. Nobody published an eager tail of this model; 0 if all launches hide, 6.5 by the "
        "unfused H100 layers of LLMServingSim at 513 tokens"
    )


def _serving_sources(recipe: Recipe) -> dict[str, Any]:
    target, memory_mib = recipe.target, recipe.machine.memory_mib
    billions = (target.parameters + target.drafter_parameters) / 1e9
    flops, tera = target.attention_flops_per_pair, _PROMPT_FLOPS_PER_S / 1e12
    return {
        "kv": source(
            "derived",
            f"0.9 (vLLM's default) of {memory_mib:,} MiB a GPU, minus {_ACTIVATIONS_GIB:g} GiB for "
            f"activations (assumed) and {billions:.2f} G weights of target and DSpark drafter in bf16; "
            "KV in bf16, blocks of 16 tokens (vLLM's default)",
        ),
        "prefill": source(
            "derived",
            f"{flops:,} FLOP a pair of tokens at {tera:g} TFLOP/s a GPU (assumed, within the range that "
            "FlashAttention-3 publishes for bf16 prompts); the rest of a prompt reads the verify table",
        ),
    }
