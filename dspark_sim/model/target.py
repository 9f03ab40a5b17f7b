"""The frozen target: a decoder of the Llama or Qwen3 family with hidden-state taps.

Own code instead of transformers' because speculative decoding wants a cache written by position
(rejections cost nothing), ragged rows without padding work, and taps before the final norm.
Shape suffixes: see layers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dspark_sim.errors import InputError
from dspark_sim.model.layers import BlockShape, DecoderLayer, KVCache, RMSNorm, as_rows, attend, rope_tables


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """What a target is.

    Attributes:
        name: name or path it was loaded by; recorded in traces.
        vocab_size: V, rows of the LM head.
        num_layers: decoder layers.
        block: sizes of one layer.
        eos_token_ids: tokens that end a text.
        max_positions: positions the model was trained for.
        family: ``llama`` or ``qwen3``.
    """

    name: str
    vocab_size: int
    num_layers: int
    block: BlockShape
    eos_token_ids: tuple[int, ...] = ()
    max_positions: int = 8192
    family: str = "llama"

    @property
    def hidden_size(self) -> int:
        """Width d of the hidden states."""
        return self.block.hidden_size


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """What one forward pass returns; rows are padded with zeros where not valid.

    Attributes:
        hidden_RTd: after the final norm; ``Target.logits`` of it predicts the next token.
        taps_RTmd: outputs of the tapped layers (residual stream, no norm), None without taps.
    """

    hidden_RTd: Tensor
    taps_RTmd: Tensor | None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the tokens of one pass stand in their batch and in the cache.

    Attributes:
        row_N, col_N: places of the N packed tokens in [R, T].
        shape_RT: R and T.
        whole: whether every place of [R, T] is taken.
        rope: rotary tables of the packed tokens.
        mask_RTL: what each token may see.
        read_rows: cache rows.
        where: cache row and position of each packed token.
        length: cache positions that are read.
    """

    row_N: Tensor
    col_N: Tensor
    shape_RT: tuple[int, int]
    whole: bool
    rope: tuple[Tensor, Tensor]
    mask_RTL: Tensor
    read_rows: Tensor | slice
    where: tuple[Tensor, Tensor]
    length: int


class Target(nn.Module):
    """Causal language model, inference only.

    Its numbers depend on the shape of a batch only by float rounding (about 1e-4 on logits in
    float32), so draft-time and verify-time passes must use the same dtype, not the same shape.
    """

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size), requires_grad=False)
        self.layers = nn.ModuleList(DecoderLayer(config.block) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.block.rms_norm_eps)
        # Rebound to the embedding by the loader where the checkpoint ties them.
        self.lm_head = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size), requires_grad=False)
        self.requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.embed.device

    @property
    def dtype(self) -> torch.dtype:
        """Float type of weights, cache and hidden states."""
        return self.embed.dtype

    def new_cache(self, rows: int, capacity: int) -> KVCache:
        """An empty cache for ``rows`` requests of at most ``capacity`` positions each."""
        return KVCache(
            self.config.num_layers, rows, capacity, self.config.block, device=self.device, dtype=self.dtype
        )

    @torch.no_grad()
    def forward(  # noqa: PLR0917 -- two matching tensors, where they go, what is wanted
        self,
        ids_RT: Tensor,
        positions_RT: Tensor,
        cache: KVCache,
        rows_R: Tensor,
        taps: Sequence[int] | None = None,
        valid_RT: Tensor | None = None,
    ) -> TargetOutput:
        """Run ``ids_RT`` at ``positions_RT``, reading and writing rows ``rows_R`` of ``cache``.

        A token sees every cache position up to its own, so each row's positions below its first
        must have been written before (by the tokens that hold them now). Tokens where ``valid_RT``
        is False are skipped: neither computed nor written.

        Args:
            ids_RT: int64 token ids.
            positions_RT: int64 absolute positions, counting up along T.
            cache: from ``new_cache``.
            rows_R: int64 cache rows, no row twice.
            taps: decoder layers whose outputs are wanted (-1: the embedding), ascending.
            valid_RT: bool, None for all.

        Returns:
            Hidden states [R, T, d] and taps [R, T, m, d].

        Raises:
            InputError: a position does not fit the cache.
        """
        return self.run(ids_RT, self.place(positions_RT, cache, rows_R, valid_RT), cache, taps)

    def place(
        self, positions_RT: Tensor, cache: KVCache, rows_R: Tensor, valid_RT: Tensor | None = None
    ) -> Placement:
        """Work out where tokens stand; arguments and errors as in ``forward``. The host reads them here."""
        valid = torch.ones_like(positions_RT, dtype=torch.bool) if valid_RT is None else valid_RT
        row_N, col_N = valid.nonzero(as_tuple=True)
        position_N = positions_RT[row_N, col_N]
        length = int(position_N.max()) + 1
        if length > cache.capacity:
            raise InputError(
                f"target cache: position {length - 1} does not fit a capacity of {cache.capacity}"
            )
        return Placement(
            row_N=row_N,
            col_N=col_N,
            shape_RT=(positions_RT.shape[0], positions_RT.shape[1]),
            whole=valid_RT is None or bool(valid.all()),
            rope=rope_tables(position_N, self.config.block),
            mask_RTL=torch.arange(length, device=self.device) <= positions_RT[..., None],
            read_rows=as_rows(rows_R),
            where=(rows_R[row_N], position_N),
            length=length,
        )

    @torch.no_grad()
    def run(
        self, ids_RT: Tensor, at: Placement, cache: KVCache, taps: Sequence[int] | None = None
    ) -> TargetOutput:
        """Run ``ids_RT`` where they were placed; the host waits for nothing, so a graph can capture it."""
        row_N, col_N = at.row_N, at.col_N
        x_Nd = self.embed[ids_RT[row_N, col_N]]
        wanted = list(taps or ())
        kept = [x_Nd] if -1 in wanted else []
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            q, k, v = layer.attn.project(layer.attn_norm(x_Nd), at.rope)
            cache.write(index, at.where, k, v)
            q_RTHD = q.view(*at.shape_RT, *q.shape[1:]) if at.whole else _pad(q, at.shape_RT, row_N, col_N)
            out_RTd = attend(q_RTHD, *cache.read(index, at.read_rows, at.length), at.mask_RTL)
            x_Nd = layer.finish(x_Nd, out_RTd[row_N, col_N])
            if index in wanted:
                kept.append(x_Nd)
        hidden = _pad(self.norm(x_Nd), at.shape_RT, row_N, col_N)
        tapped = _pad(torch.stack(kept, 1), at.shape_RT, row_N, col_N) if taps else None
        return TargetOutput(hidden, tapped)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [..., V] of final hidden states [..., d], in float32."""
        return F.linear(hidden, self.lm_head).float()


def _pad(x: Tensor, shape_RT: tuple[int, ...], row_N: Tensor, col_N: Tensor) -> Tensor:
    """Scatter packed ``x`` [N, ...] to [R, T, ...], zeros elsewhere."""
    out = x.new_zeros(*shape_RT, *x.shape[1:])
    out[row_N, col_N] = x
    return out
