"""config.json of a drafter: DeepSpec's keys, and the layouts of SpecForge and speculators read as well."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dspark_sim.errors import DataError
from dspark_sim.model.drafter_config import DrafterConfig
from dspark_sim.model.loading import block_shape

_QK_NORM = {"qwen3": True, "llama": False}


def drafter_config(raw: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> DrafterConfig:
    """Read any of the three config layouts (ENGINES: DeepSpec flat, SpecForge nested, speculators).

    Raises:
        DataError: a key is missing.
    """
    flat = flatten_config(raw)
    try:
        shape = block_shape(flat, qk_norm=_has_qk_norm(flat, tensors))
        rank = int(flat.get("markov_rank", 0))
        confidence = bool(flat.get("enable_confidence_head", False))
        ids = _draft_vocab_ids(tensors, flat, folder)
        w1 = tensors.get("markov_head.markov_w1.weight")
        return DrafterConfig(
            gamma=int(flat["block_size"]),
            target_layer_ids=tuple(flat["target_layer_ids"]),
            num_layers=int(flat["num_hidden_layers"]),
            block=shape,
            vocab_size=int(flat["vocab_size"]),
            draft_vocab_ids=ids,
            head=str(flat.get("markov_head_type", "vanilla")) if rank else "none",
            markov_rank=rank,
            full_previous=ids is not None and w1 is not None and w1.shape[0] == flat["vocab_size"],
            confidence=confidence,
            confidence_with_markov=bool(rank) and bool(flat.get("confidence_head_with_markov", False)),
            confidence_statistics=bool(flat.get("confidence_head_with_statistics", False)),
            normalize_taps=bool(flat.get("normalize_taps", False)),
            mask_token_id=int(flat["mask_token_id"]),
            learned_mask="mask_embedding" in tensors,
            num_target_layers=int(flat.get("num_target_layers", 0)),
            serial=bool(flat.get("serial", False)),
        )
    except KeyError as missing:
        raise DataError(folder / "config.json", str(missing.args[0]), "key is missing") from None


def flatten_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """One flat dict with DeepSpec's key names from SpecForge's or speculators' nesting."""
    flat = dict(raw)
    for nested in ("transformer_layer_config", "dflash_config", "dspark_config"):
        if isinstance(raw.get(nested), dict):
            flat.update(raw[nested])
    for theirs in ("aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"):
        if theirs in flat and "target_layer_ids" not in flat:
            flat["target_layer_ids"] = flat[theirs]
    return flat


def _has_qk_norm(flat: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    known = _QK_NORM.get(str(flat.get("model_type")))
    return known if known is not None else "layers.0.self_attn.q_norm.weight" in tensors


def _draft_vocab_ids(
    tensors: Mapping[str, Tensor], flat: Mapping[str, Any], folder: Path
) -> tuple[int, ...] | None:
    """Our list of ids, or the offsets ``d2t`` (token = draft index + offset) of EAGLE-style checkpoints."""
    if "draft_vocab_ids" in tensors:
        return tuple(tensors["draft_vocab_ids"].tolist())
    if "d2t" in tensors:
        offsets = tensors["d2t"]
        return tuple((offsets + torch.arange(len(offsets))).tolist())
    size = flat.get("draft_vocab_size")
    if size is not None and size != flat["vocab_size"]:
        raise DataError(folder, "draft_vocab_ids", f"tensor is missing; draft_vocab_size is {size}")
    return None


def deepspec_config(config: DrafterConfig, dtype: str) -> dict[str, Any]:
    """config.json of a drafter, DeepSpec's keys first."""
    shape, qwen = config.block, config.block.qk_norm
    raw: dict[str, Any] = {
        "architectures": ["Qwen3DSparkModel" if qwen else "LlamaDSparkModel"],
        "model_type": "qwen3" if qwen else "llama",
        "block_size": config.gamma,
        "num_target_layers": config.num_target_layers,
        "target_layer_ids": list(config.target_layer_ids),
        "mask_token_id": config.mask_token_id,
        "markov_rank": config.markov_rank,
        "enable_confidence_head": config.confidence,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "vocab_size": config.vocab_size,
        "dtype": dtype,
        "normalize_taps": config.normalize_taps,
    }
    if config.serial:
        raw |= {"serial": True, "architectures": ["SerialDraftModel"]}
    if config.head != "none":
        raw["markov_head_type"] = config.head
    if config.confidence:
        raw["confidence_head_with_markov"] = config.confidence_with_markov
    if config.confidence_statistics:
        raw["confidence_head_with_statistics"] = True
    if config.draft_vocab_ids is not None:
        raw["draft_vocab_size"] = config.draft_vocab_size
    return raw
