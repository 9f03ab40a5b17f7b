"""The autoregressive baseline: a one-layer module that drafts a block in k serial passes (EAGLE/MTP style).

Pass j stands at position i + j of an anchor i. Its input joins a feature with the embedding of the
token at that position: the target's feature of position i - 1 at j = 0, the module's own last output
afterwards. Context keys and values are projections of the target's features alone, as in the
parallel backbone: at every anchor the state is a function of the text, never of earlier drafts, so
that one dense recording serves any policy. Shape suffixes: see layers.py; K counts anchors, B rows
of one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dspark_sim.errors import InputError
from dspark_sim.model.context import SequenceContext, unseen
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafter_config import DrafterConfig
from dspark_sim.model.layers import KVCache, RMSNorm, as_rows, attend, attend_shared, rope_tables


class FeatureCache(KVCache):
    """Context keys and values, and beside them the features the first pass of a block starts from.

    Attributes:
        features: [rows, capacity, d].
    """

    features: Tensor


@dataclass(frozen=True, slots=True)
class FeatureContext(SequenceContext):
    """Context of one whole text with its features [T, d]."""

    features: Tensor


class SerialDrafter(Drafter):
    """Drafts one token a pass; same interface as ``Drafter``, and the same losses train it."""

    def __init__(self, config: DrafterConfig) -> None:
        if not config.serial or config.head != "none" or config.num_layers != 1:
            raise InputError("serial drafter: it has one layer and no sequential head")
        super().__init__(config)
        d, eps = config.block.hidden_size, config.block.rms_norm_eps
        self.embed_norm = RMSNorm(d, eps)
        self.feedback_norm = RMSNorm(d, eps)
        self.in_proj = nn.Linear(2 * d, d, bias=False)

    # ---- context

    def new_cache(self, rows: int, capacity: int) -> FeatureCache:
        """An empty context cache; ``capacity`` must leave gamma positions after the last anchor."""
        weight, shape = self.fc.weight, self.config.block
        cache = FeatureCache(1, rows, capacity, shape, device=weight.device, dtype=weight.dtype)
        cache.features = weight.new_zeros(rows, capacity, shape.hidden_size)
        return cache

    def extend_context(
        self,
        taps_RTmd: Tensor,
        positions_RT: Tensor,
        cache: KVCache,
        rows_R: Tensor,
        valid_RT: Tensor | None = None,
    ) -> None:
        """Write keys, values and features of tokens the target has processed and kept; see ``Drafter``."""
        super().extend_context(taps_RTmd, positions_RT, cache, rows_R, valid_RT)
        assert isinstance(cache, FeatureCache)
        valid = torch.ones_like(positions_RT, dtype=torch.bool) if valid_RT is None else valid_RT
        row_N, col_N = valid.nonzero(as_tuple=True)
        features_Nd = self.context_features(taps_RTmd[row_N, col_N])
        cache.features[rows_R[row_N], positions_RT[row_N, col_N]] = features_Nd

    def sequence_context(self, taps_Tmd: Tensor, positions_T: Tensor) -> FeatureContext:
        """Context of T tokens, without a cache (differentiable)."""
        features = self.context_features(taps_Tmd)
        k, v = self._layer(0).attn.project_kv(features, rope_tables(positions_T, self.config.block))
        return FeatureContext((k,), (v,), features)

    # ---- passes

    def one_pass(
        self,
        feature_Bd: Tensor,
        token_ids_B: Tensor,
        positions_B: Tensor,
        look: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """One serial pass: hidden states [B, d] that predict the next token, and the next features.

        Args:
            feature_Bd: the target's feature of the position before, or the last pass's output.
            token_ids_B: token at this position.
            positions_B: absolute positions.
            look: attention of (q [B, 1, H, D], k, v [B, 1, K, D]) over context and own passes.
        """
        layer, shape = self._layer(0), self.config.block
        embedded = self.embed_norm(F.embedding(token_ids_B, self.embed))
        x = self.in_proj(torch.cat((feature_Bd, embedded), -1))[:, None]
        q, k, v = layer.attn.project(layer.attn_norm(x), rope_tables(positions_B[:, None], shape))
        x = layer.finish(x, look(q, k, v))[:, 0]
        return self.norm(x), self.feedback_norm(x)

    def block_hidden_at(
        self, anchors_K: Tensor, ids_T: Tensor, context: SequenceContext, starts_K: Tensor | None = None
    ) -> Tensor:
        """Hidden states [K, G, d] of blocks fed with the text's own tokens (teacher forcing)."""
        passes = SharedPasses(self, anchors_K, context, starts_K)
        last = len(ids_T) - 1
        hidden = [passes.run(j, ids_T[(anchors_K + j).clamp_max(last)]) for j in range(self.config.gamma)]
        return torch.stack(hidden, 1)

    def block_hidden(
        self, anchor_ids_R: Tensor, positions_R: Tensor, cache: KVCache, rows_R: Tensor
    ) -> Tensor:
        """Refused: later passes read tokens that are drawn from earlier ones; use ``CachedPasses``."""
        raise InputError("serial drafter: its block is not computed at once; step through it")


class SharedPasses:
    """Passes at many anchors of a text (training, recording); copies of a block share its context."""

    def __init__(
        self,
        drafter: SerialDrafter,
        anchors_K: Tensor,
        context: SequenceContext,
        starts_K: Tensor | None = None,
    ) -> None:
        """Arguments as those of ``Drafter.block_hidden_at``."""
        assert isinstance(context, FeatureContext)
        starts = torch.zeros_like(anchors_K) if starts_K is None else starts_K
        self.drafter = drafter
        self.context = (context.keys[0], context.values[0])
        slots = torch.arange(len(context.keys[0]), device=anchors_K.device)
        self.hidden_B1T = unseen(slots, anchors_K, starts)
        self.position_B = anchors_K - starts
        # An anchor at the very start of a text has no token before it.
        before = context.features[(anchors_K - 1).clamp_min(0)]
        self.feature_Bd = before * (self.position_B > 0)[:, None]
        self.own: tuple[Tensor, Tensor] | None = None

    def run(self, j: int, token_ids_B: Tensor) -> Tensor:
        """Hidden states [B, d] of pass ``j``, in order; B may grow to a multiple (copies) after j = 0."""
        copies = len(token_ids_B) // len(self.position_B)
        if copies > 1:
            self.position_B, self.feature_Bd = (
                self.position_B.repeat(copies),
                self.feature_Bd.repeat(copies, 1),
            )
            self.hidden_B1T = self.hidden_B1T.repeat(copies, 1, 1)
            if self.own is not None:
                k, v = self.own
                self.own = (k.repeat(copies, 1, 1, 1), v.repeat(copies, 1, 1, 1))
        at = self.position_B + j
        hidden, self.feature_Bd = self.drafter.one_pass(self.feature_Bd, token_ids_B, at, self._look)
        return hidden

    def _look(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.own is not None:
            k, v = torch.cat((self.own[0], k), 1), torch.cat((self.own[1], v), 1)
        self.own = (k, v)
        return attend_shared(q, self.context, self.own, self.hidden_B1T)


class CachedPasses:
    """Passes of one block a row on a cache (live decoding)."""

    def __init__(self, drafter: SerialDrafter, positions_R: Tensor, cache: KVCache, rows_R: Tensor) -> None:
        """Start blocks at ``positions_R`` of rows ``rows_R``.

        Raises:
            InputError: a block does not fit the cache.
        """
        assert isinstance(cache, FeatureCache)
        longest = int(positions_R.max()) + drafter.config.gamma
        if longest > cache.capacity:
            raise InputError(
                f"drafter cache: a block up to position {longest - 1} exceeds capacity {cache.capacity}"
            )
        self.drafter, self.cache, self.rows_R = drafter, cache, rows_R
        self.positions_R = positions_R
        before = cache.features[rows_R, (positions_R - 1).clamp_min(0)]
        self.feature_Rd = before * (positions_R > 0)[:, None]

    def run(self, j: int, token_ids_R: Tensor) -> Tensor:
        """Hidden states [R, d] of pass ``j``, in order."""
        positions_R = self.positions_R + j

        def look(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            # Own keys stand where the context of the tokens that are kept will overwrite them.
            self.cache.write(0, (self.rows_R, positions_R), k[:, 0], v[:, 0])
            length = int(positions_R.max()) + 1
            slots = torch.arange(length, device=positions_R.device)
            mask_R1L = (slots <= positions_R[:, None])[:, None]
            return attend(q, *self.cache.read(0, as_rows(self.rows_R), length), mask_R1L)

        hidden, self.feature_Rd = self.drafter.one_pass(self.feature_Rd, token_ids_R, positions_R, look)
        return hidden
