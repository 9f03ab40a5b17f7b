"""Drafters on disk: the format of deepseek-ai/DeepSpec, and two other config layouts read as well.

A folder holds config.json and model.safetensors. DeepSpec's keys and tensor names are kept; what
it does not have is added: ``draft_vocab_ids`` (tensor) and ``mask_embedding`` (tensor), and the
keys ``normalize_taps``, ``target``, ``training``. ``embed_tokens`` and ``lm_head`` are copies of the
target's and may be left out (``with_target=False``): they are then taken from the target at loading.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from dspark_sim.errors import DataError, InputError
from dspark_sim.files import atomic_path, data_folder, write_text
from dspark_sim.model.drafter import Drafter, DrafterConfig
from dspark_sim.model.layers import BlockShape
from dspark_sim.model.loading import TensorTaker, block_shape, layer_state, read_json, read_safetensors
from dspark_sim.model.target import Target

_QK_NORM = {"qwen3": True, "llama": False}
# Tensors that are read apart from the module's own state.
_EXTRA = {"embed_tokens.weight", "lm_head.weight", "draft_vocab_ids", "d2t", "t2d", "mask_embedding"}


def drafter_folder(name_or_path: str | os.PathLike[str]) -> Path:
    """Resolve a drafter: a folder, else the shipped drafter of that bare name.

    Raises:
        InputError: neither.
    """
    shipped = data_folder("traces") / "drafters"
    for folder in (Path(name_or_path), shipped / Path(name_or_path).name):
        if (folder / "config.json").is_file():
            return folder
    names = sorted(p.parent.name for p in shipped.glob("*/config.json"))
    raise InputError(
        f"{name_or_path}: no such drafter; give a folder with config.json and model.safetensors, "
        f"or a shipped one: {', '.join(names) or 'none'}"
    )


def load_drafter(
    name_or_path: str | os.PathLike[str],
    target: Target | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Drafter:
    """Load a drafter, in float32 on a CPU whatever the file holds.

    Args:
        name_or_path: folder in the layout of DeepSpec, SpecForge or speculators, or a shipped name.
        target: gives embedding, LM head, device and dtype; without it the checkpoint must hold the
            first two, or ``bind_target`` must be called before use.

    Raises:
        InputError: config or tensors are wrong or missing; one line that names them.
    """
    folder = drafter_folder(name_or_path)
    raw = read_json(folder / "config.json")
    tensors = read_safetensors(folder)
    config = drafter_config(raw, tensors, folder)
    device = torch.device(device or (target.device if target is not None else "cpu"))
    dtype = dtype or (target.dtype if target is not None else torch.float32)
    drafter = Drafter(config)
    drafter.load_state_dict(drafter_state(tensors, config, folder))
    drafter.to(device=device, dtype=dtype)
    if target is not None:
        drafter.bind_target(target.embed, target.lm_head)
    elif "embed_tokens.weight" in tensors and "lm_head.weight" in tensors:
        size = (config.vocab_size, config.block.hidden_size)
        take = TensorTaker(tensors, folder)
        embed, head = (take(f"{n}.weight", size).to(device, dtype) for n in ("embed_tokens", "lm_head"))
        drafter.bind_target(embed, head)
    return drafter.requires_grad_(False).eval()


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
            normalize_taps=bool(flat.get("normalize_taps", False)),
            mask_token_id=int(flat["mask_token_id"]),
            learned_mask="mask_embedding" in tensors,
            num_target_layers=int(flat.get("num_target_layers", 0)),
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


def tensor_names(config: DrafterConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Our state-dict name -> (DeepSpec tensor name, shape), the decoder layers left out."""
    d, r = config.block.hidden_size, config.markov_rank
    names: dict[str, tuple[str, tuple[int, ...]]] = {
        "fc.weight": ("fc.weight", (d, len(config.target_layer_ids) * d)),
        "hidden_norm.weight": ("hidden_norm.weight", (d,)),
        "norm.weight": ("norm.weight", (d,)),
    }
    if config.head != "none":
        names["head.w1.weight"] = ("markov_head.markov_w1.weight", (config.previous_size, r))
        names["head.w2.weight"] = ("markov_head.markov_w2.weight", (config.draft_vocab_size, r))
    if config.head == "gated":
        names["head.gate.weight"] = ("markov_head.gate_proj.weight", (r, d + r))
        names["head.gate.bias"] = ("markov_head.gate_proj.bias", (r,))
    if config.head == "rnn":
        names["head.joint.weight"] = ("markov_head.joint_proj.weight", (3 * r, 2 * r + d))
        names["head.joint.bias"] = ("markov_head.joint_proj.bias", (3 * r,))
    if config.confidence:
        width = d + (r if config.confidence_with_markov else 0)
        names["confidence.proj.weight"] = ("confidence_head.proj.weight", (1, width))
        names["confidence.proj.bias"] = ("confidence_head.proj.bias", (1,))
    if config.learned_mask:
        names["mask"] = ("mask_embedding", (d,))
    return names


def drafter_state(tensors: Mapping[str, Tensor], config: DrafterConfig, folder: Path) -> dict[str, Tensor]:
    """Our state dict from DeepSpec tensor names.

    Raises:
        DataError: a tensor is missing, misshapen, or unknown; the line names it.
    """
    take = TensorTaker(tensors, folder)
    state = {ours: take(theirs, shape) for ours, (theirs, shape) in tensor_names(config).items()}
    for n in range(config.num_layers):
        state.update(layer_state(take, f"layers.{n}.", f"layers.{n}.", config.block))
    unknown = sorted(set(tensors) - take.taken - _EXTRA)
    if unknown:
        raise DataError(folder, unknown[0], f"tensor is not part of this drafter ({len(unknown)} such)")
    return state


def save_drafter(
    drafter: Drafter,
    folder: str | os.PathLike[str],
    *,
    with_target: bool = True,
    dtype: torch.dtype | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write config.json and model.safetensors in DeepSpec's layout, each atomically.

    Args:
        with_target: store embedding and LM head too (the full LM head is needed: not with a
            reduced draft vocabulary), as DeepSpec does; the learned mask is then written into the
            mask token's row, so that readers without ``mask_embedding`` see it.
        dtype: float type of the file; None keeps the module's.
        notes: further keys of config.json (``target``, ``training``, ...).
    """
    folder = Path(folder)
    tensors = deepspec_tensors(drafter, with_target=with_target)
    kept = dtype or drafter.fc.weight.dtype
    stored = {k: (v.to(kept) if v.is_floating_point() else v).contiguous().cpu() for k, v in tensors.items()}
    with atomic_path(folder / "model.safetensors") as temporary:
        save_file(stored, str(temporary), metadata={"format": "pt"})
    raw = deepspec_config(drafter.config, str(kept).removeprefix("torch.")) | dict(notes or {})
    write_text(folder / "config.json", json.dumps(raw, indent=2) + "\n")


def deepspec_tensors(drafter: Drafter, *, with_target: bool) -> dict[str, Tensor]:
    """All tensors of a drafter under DeepSpec's names."""
    config, state = drafter.config, {k: v.detach() for k, v in drafter.state_dict().items()}
    tensors = {theirs: state[ours] for ours, (theirs, _) in tensor_names(config).items()}
    for n in range(config.num_layers):
        tensors.update(_layer_tensors(state, f"layers.{n}.", config.block))
    if config.draft_vocab_ids is not None:
        tensors["draft_vocab_ids"] = drafter.draft_ids.to(torch.int32)
    if with_target:
        if config.draft_vocab_ids is not None:
            raise InputError("drafter: with a reduced draft vocabulary save it with with_target=False")
        embed = drafter.embed.clone()
        if drafter.mask is not None:
            embed[config.mask_token_id] = drafter.mask.detach()
        tensors |= {"embed_tokens.weight": embed, "lm_head.weight": drafter.lm_head.clone()}
    return tensors


def _layer_tensors(state: Mapping[str, Tensor], layer: str, shape: BlockShape) -> dict[str, Tensor]:
    """The inverse of ``layer_state``: fused matrices split again."""
    widths = (shape.q_width, shape.kv_width, shape.kv_width)
    q, k, v = state[f"{layer}attn.qkv.weight"].split(widths)
    gate, up = state[f"{layer}mlp.gate_up.weight"].chunk(2)
    named = {
        "input_layernorm": state[f"{layer}attn_norm.weight"],
        "self_attn.q_proj": q,
        "self_attn.k_proj": k,
        "self_attn.v_proj": v,
        "self_attn.o_proj": state[f"{layer}attn.o.weight"],
        "post_attention_layernorm": state[f"{layer}mlp_norm.weight"],
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": state[f"{layer}mlp.down.weight"],
    }
    if shape.qk_norm:
        named |= {f"self_attn.{n}": state[f"{layer}attn.{n}.weight"] for n in ("q_norm", "k_norm")}
    return {f"{layer}{name}.weight": tensor for name, tensor in named.items()}


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
    if config.head != "none":
        raw["markov_head_type"] = config.head
    if config.confidence:
        raw["confidence_head_with_markov"] = config.confidence_with_markov
    if config.draft_vocab_ids is not None:
        raw["draft_vocab_size"] = config.draft_vocab_size
    return raw


def checkpoint_hash(name_or_path: str | os.PathLike[str]) -> str:
    """SHA-256 of a drafter's model.safetensors, first 16 hex digits; recorded in traces."""
    file = drafter_folder(name_or_path) / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]

