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
from dspark_sim.model.checkpoint_config import deepspec_config, drafter_config
from dspark_sim.model.confidence import STATISTICS
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafter_config import DrafterConfig
from dspark_sim.model.layers import BlockShape
from dspark_sim.model.loading import TensorTaker, layer_state, read_json, read_safetensors
from dspark_sim.model.serial import SerialDrafter
from dspark_sim.model.target import Target

# Tensors that are read apart from the module's own state.
_EXTRA = {"embed_tokens.weight", "lm_head.weight", "draft_vocab_ids", "d2t", "t2d", "mask_embedding"}


def make_drafter(config: DrafterConfig) -> Drafter:
    """An untrained drafter of the kind that ``config`` says."""
    return SerialDrafter(config) if config.serial else Drafter(config)


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
    """Load a drafter; float16 files become float32 on a CPU.

    Args:
        name_or_path: folder in the layout of DeepSpec, SpecForge or speculators, or a shipped name.
        target: gives embedding, LM head, device and dtype; without it the checkpoint must hold the
            first two, or ``bind_target`` must be called before use.
        device: torch device; None follows the target, else the CPU.
        dtype: float type; None follows the target, else float32.

    Raises:
        InputError: config or tensors are wrong or missing; one line that names them.
    """
    folder = drafter_folder(name_or_path)
    raw = read_json(folder / "config.json")
    tensors = read_safetensors(folder)
    config = drafter_config(raw, tensors, folder)
    device = torch.device(device or (target.device if target is not None else "cpu"))
    dtype = dtype or (target.dtype if target is not None else torch.float32)
    drafter = make_drafter(config)
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
        width = d + (r if config.confidence_with_markov else 0) + STATISTICS * config.confidence_statistics
        names["confidence.proj.weight"] = ("confidence_head.proj.weight", (1, width))
        names["confidence.proj.bias"] = ("confidence_head.proj.bias", (1,))
    if config.serial:
        names["in_proj.weight"] = ("in_proj.weight", (d, 2 * d))
        names |= {f"{n}.weight": (f"{n}.weight", (d,)) for n in ("embed_norm", "feedback_norm")}
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
        drafter: what to save.
        folder: made if missing.
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
    widths = [shape.q_width, shape.kv_width, shape.kv_width]
    q, k, v = torch.split(state[f"{layer}attn.qkv.weight"], widths)
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


def checkpoint_hash(name_or_path: str | os.PathLike[str]) -> str:
    """SHA-256 of a drafter's model.safetensors, first 16 hex digits; recorded in traces."""
    file = drafter_folder(name_or_path) / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
