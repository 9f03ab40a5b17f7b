"""The building blocks that target and drafter share, and the KV cache both write by position.

Shape suffixes here and in the other files of this folder:
    R rows (requests)          T tokens of a padded row     N tokens, packed (padding left out)
    H query heads              K key/value heads            D head width
    L cache positions          d hidden size                m tapped layers
    G gamma                    V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The sizes of one decoder layer, of the Llama family or (``qk_norm``) of the Qwen3 family."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e4
    qk_norm: bool = False

    @property
    def q_width(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key (or value) heads together."""
        return self.num_kv_heads * self.head_dim


class RMSNorm(nn.Module):
    """x / rms(x) * weight, the mean square taken in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x`` (any shape)."""
        return rms_normalize(x, self.eps) * self.weight


def rms_normalize(x: Tensor, eps: float) -> Tensor:
    """X / sqrt(mean(x^2) + eps) over the last dimension, without parameters; dtype of ``x``."""
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def as_heads(x: Tensor, head_dim: int) -> Tensor:
    """Split the last dimension into heads: [..., heads * D] to [..., heads, D]."""
    return x.reshape(*x.shape[:-1], -1, head_dim)


def rope_tables(positions: Tensor, shape: BlockShape) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles, each [..., 1, D] in float32, for ``positions`` [...]."""
    exponent = torch.arange(0, shape.head_dim, 2, device=positions.device).float() / shape.head_dim
    angle = positions[..., None].float() * shape.rope_theta**-exponent
    angle = torch.cat((angle, angle), -1)[..., None, :]
    return angle.cos(), angle.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary positions to ``x`` [..., heads, D], halves rotated (the Hugging Face order)."""
    cos, sin = rope
    left, right = x.chunk(2, -1)
    return (x * cos + torch.cat((-right, left), -1) * sin).to(x.dtype)


class KVCache:
    """Keys and values of every layer, written by absolute position.

    Cropping is free: readers mask by position, and a rejected entry is overwritten by the next
    token that lands on its position.

    Attributes:
        keys, values: [layers, rows, K, capacity, D].
    """

    def __init__(
        self,
        layers: int,
        rows: int,
        capacity: int,
        shape: BlockShape,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        size = (layers, rows, shape.num_kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(size, device=device, dtype=dtype)
        self.values = torch.zeros(size, device=device, dtype=dtype)

    @property
    def capacity(self) -> int:
        """Positions a row can hold."""
        return self.keys.shape[3]

    @property
    def rows(self) -> int:
        """Requests the cache can hold."""
        return self.keys.shape[1]

    def write(self, layer: int, where: tuple[Tensor, Tensor], keys_NKD: Tensor, values_NKD: Tensor) -> None:
        """Store packed keys and values at ``where`` = (row_N, position_N)."""
        row_N, position_N = where
        self.keys[layer][row_N, :, position_N] = keys_NKD
        self.values[layer][row_N, :, position_N] = values_NKD

    def read(self, layer: int, rows: Tensor | slice, length: int) -> tuple[Tensor, Tensor]:
        """Return keys and values [R, K, length, D]; a slice of rows costs no copy."""
        return self.keys[layer][rows][:, :, :length], self.values[layer][rows][:, :, :length]


def as_rows(rows_R: Tensor) -> Tensor | slice:
    """``rows_R`` as a slice where it counts up by one, so that reading the cache copies nothing."""
    first, count = int(rows_R[0]), rows_R.numel()
    counting = torch.arange(first, first + count, device=rows_R.device)
    return slice(first, first + count) if torch.equal(rows_R, counting) else rows_R


class Attention(nn.Module):
    """Grouped-query attention with fused projections; q and k normalised per head in Qwen3."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.shape = shape
        self.qkv = nn.Linear(shape.hidden_size, shape.q_width + 2 * shape.kv_width, bias=False)
        self.o = nn.Linear(shape.q_width, shape.hidden_size, bias=False)
        norm = shape.qk_norm
        self.q_norm: nn.Module = RMSNorm(shape.head_dim, shape.rms_norm_eps) if norm else nn.Identity()
        self.k_norm: nn.Module = RMSNorm(shape.head_dim, shape.rms_norm_eps) if norm else nn.Identity()

    def project(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [..., H, D], keys and values [..., K, D] of ``x`` [..., d], positions applied."""
        shape = self.shape
        q, k, v = torch.split(self.qkv(x), [shape.q_width, shape.kv_width, shape.kv_width], -1)
        q = self.q_norm(as_heads(q, shape.head_dim))
        k = self.k_norm(as_heads(k, shape.head_dim))
        return rotate(q, rope), rotate(k, rope), as_heads(v, shape.head_dim)

    def project_kv(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys and values alone, each [..., K, D] (drafter context has no queries)."""
        shape = self.shape
        k, v = F.linear(x, self.qkv.weight[shape.q_width :]).chunk(2, -1)
        k = self.k_norm(as_heads(k, shape.head_dim))
        return rotate(k, rope), as_heads(v, shape.head_dim)


class MLP(nn.Module):
    """Gated SiLU feed-forward, gate and up fused into one matrix."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.gate_up = nn.Linear(shape.hidden_size, 2 * shape.intermediate_size, bias=False)
        self.down = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] to [..., d]."""
        gate, up = self.gate_up(x).chunk(2, -1)
        out: Tensor = self.down(F.silu(gate) * up)
        return out


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP; who attends to what is decided by the caller."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.attn = Attention(shape)
        self.mlp_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Residual after attention (``attended`` [..., H*D]), then the feed-forward part; [..., d]."""
        x = x + self.attn.o(attended)
        fed: Tensor = self.mlp(self.mlp_norm(x))
        return x + fed


def attend(q_RTHD: Tensor, keys_RKLD: Tensor, values_RKLD: Tensor, mask_RTL: Tensor) -> Tensor:
    """Masked attention, [R, T, H*D]; True in ``mask_RTL`` means "may see".

    Query heads that share a key head are laid out as further queries, so keys are never repeated.
    """
    rows, tokens, heads, width = q_RTHD.shape
    kv_heads = keys_RKLD.shape[1]
    group = heads // kv_heads
    q = q_RTHD.transpose(1, 2).reshape(rows, kv_heads, group * tokens, width)
    mask = mask_RTL[:, None].expand(rows, group, tokens, -1).reshape(rows, 1, group * tokens, -1)
    out = F.scaled_dot_product_attention(q, keys_RKLD, values_RKLD, attn_mask=mask)
    return out.reshape(rows, heads, tokens, width).transpose(1, 2).reshape(rows, tokens, heads * width)


def attend_shared(
    q_KGHD: Tensor, context_TCD: tuple[Tensor, Tensor], block_KGCD: tuple[Tensor, Tensor], hidden_K1T: Tensor
) -> Tensor:
    """One softmax over a context that K blocks share and each block's own keys, [K, G, H*D].

    Written out so that the context's keys are not copied K times. Here K counts blocks and C key
    heads; the pairs are (keys, values). ``hidden_K1T`` marks context that a block may not see.
    """
    blocks, gamma, heads, width = q_KGHD.shape
    (ctx_k, ctx_v), (own_k, own_v) = context_TCD, block_KGCD
    kv_heads = own_k.shape[2]
    q = q_KGHD.reshape(blocks, gamma, kv_heads, heads // kv_heads, width) * width**-0.5
    context = torch.einsum("kgcnd,tcd->kcngt", q, ctx_k)
    context = context.masked_fill(hidden_K1T[:, None, None], float("-inf"))
    block = torch.einsum("kgcnd,kscd->kcngs", q, own_k)
    weights = torch.cat((context, block), -1).softmax(-1)
    seen, own = weights[..., : context.shape[-1]], weights[..., context.shape[-1] :]
    out = torch.einsum("kcngt,tcd->kgcnd", seen, ctx_v) + torch.einsum("kcngs,kscd->kgcnd", own, own_v)
    return out.reshape(blocks, gamma, heads * width)
