"""The DSpark drafter: a parallel backbone fed with target features, a sequential head, a confidence head.

Formulas: arXiv 2607.05147, sections 2-3. A block at anchor position i holds the anchor token and
gamma - 1 mask tokens at positions i .. i+gamma-1; it sees the context strictly before i (projected
target features) and all of itself; its hidden state j predicts the token at i+1+j.
Shape suffixes: see layers.py; K here counts anchors.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dspark_sim.errors import InputError
from dspark_sim.model.confidence import ConfidenceHead
from dspark_sim.model.context import SequenceContext, unseen
from dspark_sim.model.drafter_config import DrafterConfig
from dspark_sim.model.heads import SequentialHead, make_head
from dspark_sim.model.layers import (
    DecoderLayer,
    KVCache,
    RMSNorm,
    as_rows,
    attend,
    attend_shared,
    rms_normalize,
    rope_tables,
)

TAP_NORM_EPS = 1e-6


class Drafter(nn.Module):
    """Drafts gamma tokens at once, and says how sure it is of each.

    The embedding and LM head are the target's: ``bind_target`` (or the loader) sets them. They are
    frozen buffers, never trained.
    """

    embed: Tensor
    lm_head: Tensor
    draft_ids: Tensor
    draft_index: Tensor

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        d, eps = config.block.hidden_size, config.block.rms_norm_eps
        self.fc = nn.Linear(len(config.target_layer_ids) * d, d, bias=False)
        self.hidden_norm = RMSNorm(d, eps)
        self.layers = nn.ModuleList(DecoderLayer(config.block) for _ in range(config.num_layers))
        self.norm = RMSNorm(d, eps)
        draft_size = config.draft_vocab_size
        self.head = make_head(config.head, config.previous_size, draft_size, config.markov_rank, d)
        self.mask = nn.Parameter(torch.zeros(d)) if config.learned_mask else None
        rank = config.markov_rank if config.confidence_with_markov else 0
        self.confidence = ConfidenceHead(d, rank, config.confidence_statistics) if config.confidence else None
        self.register_buffer("embed", torch.empty(0, d), persistent=False)
        self.register_buffer("lm_head", torch.empty(0, d), persistent=False)
        ids = (
            torch.arange(draft_size)
            if config.draft_vocab_ids is None
            else torch.tensor(config.draft_vocab_ids)
        )
        index = torch.full((config.vocab_size,), draft_size)
        index[ids] = torch.arange(draft_size)
        self.register_buffer("draft_ids", ids, persistent=False)
        self.register_buffer("draft_index", index, persistent=False)

    def bind_target(self, embed_Vd: Tensor, lm_head_Vd: Tensor) -> Drafter:
        """Share the target's embedding, and the rows of its LM head that can be drafted; return self.

        Raises:
            InputError: they do not have the size of this drafter's config.
        """
        size = (self.config.vocab_size, self.config.block.hidden_size)
        if tuple(embed_Vd.shape) != size or tuple(lm_head_Vd.shape) != size:
            raise InputError(
                f"drafter: made for a target with embedding {list(size)}, this one has {list(embed_Vd.shape)}"
            )
        self.embed = embed_Vd.detach()
        head = lm_head_Vd.detach()
        self.lm_head = head if self.config.draft_vocab_ids is None else head[self.draft_ids.to(head.device)]
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.fc.weight.device

    # ---- vocabulary

    def to_full(self, draft_tokens: Tensor) -> Tensor:
        """Token ids of draft-vocabulary indices, any shape."""
        return self.draft_ids[draft_tokens]

    def to_draft(self, token_ids: Tensor) -> Tensor:
        """Draft-vocabulary indices of token ids; ``draft_vocab_size`` where a token cannot be drafted."""
        return self.draft_index[token_ids]

    def spread(self, draft_values: Tensor, fill: float = 0.0) -> Tensor:
        """Values over the draft vocabulary [..., Vd] laid out over the full one [..., V]."""
        if self.config.draft_vocab_ids is None:
            return draft_values
        full = draft_values.new_full((*draft_values.shape[:-1], self.config.vocab_size), fill)
        full[..., self.draft_ids] = draft_values
        return full

    # ---- context

    def context_features(self, taps_md: Tensor) -> Tensor:
        """H_ctx [..., d] = RMSNorm(fc(taps)) of tapped target states [..., m, d]."""
        taps = taps_md.to(self.fc.weight.dtype)
        if self.config.normalize_taps:
            taps = rms_normalize(taps, TAP_NORM_EPS)
        context: Tensor = self.hidden_norm(self.fc(taps.flatten(-2)))
        return context

    def new_cache(self, rows: int, capacity: int) -> KVCache:
        """An empty context cache; ``capacity`` must leave gamma positions after the last anchor."""
        weight = self.fc.weight
        return KVCache(
            self.config.num_layers,
            rows,
            capacity,
            self.config.block,
            device=weight.device,
            dtype=weight.dtype,
        )

    def extend_context(
        self,
        taps_RTmd: Tensor,
        positions_RT: Tensor,
        cache: KVCache,
        rows_R: Tensor,
        valid_RT: Tensor | None = None,
    ) -> None:
        """Write the context keys and values of tokens the target has processed and kept.

        Args:
            taps_RTmd: the target's tapped states of these tokens.
            positions_RT: absolute positions, int64.
            cache: from ``new_cache``.
            rows_R: cache rows.
            valid_RT: False entries are not written; None for all.
        """
        valid = torch.ones_like(positions_RT, dtype=torch.bool) if valid_RT is None else valid_RT
        row_N, col_N = valid.nonzero(as_tuple=True)
        position_N = positions_RT[row_N, col_N]
        context = self.sequence_context(taps_RTmd[row_N, col_N], position_N)
        for index, (k, v) in enumerate(zip(context.keys, context.values, strict=True)):
            cache.write(index, (rows_R[row_N], position_N), k, v)

    def sequence_context(self, taps_Tmd: Tensor, positions_T: Tensor) -> SequenceContext:
        """Context keys and values of T tokens, without a cache (differentiable)."""
        features = self.context_features(taps_Tmd)
        rope = rope_tables(positions_T, self.config.block)
        pairs = [self._layer(n).attn.project_kv(features, rope) for n in range(self.config.num_layers)]
        return SequenceContext(tuple(k for k, _ in pairs), tuple(v for _, v in pairs))

    # ---- block

    def block_inputs(self, anchor_ids_K: Tensor) -> Tensor:
        """Block input embeddings [K, G, d]: the anchor token, then masks."""
        mask = self.mask if self.mask is not None else self.embed[self.config.mask_token_id]
        anchor = F.embedding(anchor_ids_K, self.embed)
        masks = mask.expand(anchor_ids_K.shape[0], self.config.gamma - 1, -1)
        return torch.cat((anchor[:, None], masks.to(anchor.dtype)), 1)

    def block_hidden(
        self, anchor_ids_R: Tensor, positions_R: Tensor, cache: KVCache, rows_R: Tensor
    ) -> Tensor:
        """Hidden states [R, G, d] of one block a row, as used live.

        The block's own keys go into the cache at the positions it stands on; ``extend_context``
        overwrites them with the context of the tokens that were kept.

        Args:
            anchor_ids_R: token ids of the anchors.
            positions_R: their absolute positions; context up to position - 1 must be written.
            cache: from ``new_cache``.
            rows_R: cache rows.

        Raises:
            InputError: a block does not fit the cache.
        """
        gamma, shape = self.config.gamma, self.config.block
        positions_RG = positions_R[:, None] + torch.arange(gamma, device=positions_R.device)
        length = int(positions_RG.max()) + 1
        if length > cache.capacity:
            raise InputError(
                f"drafter cache: a block up to position {length - 1} exceeds capacity {cache.capacity}"
            )
        rope = rope_tables(positions_RG, shape)
        slots = torch.arange(length, device=positions_R.device)
        mask_RGL = (slots <= positions_RG[:, -1:])[:, None].expand(-1, gamma, -1)
        where = (rows_R.repeat_interleave(gamma), positions_RG.flatten())
        x = self.block_inputs(anchor_ids_R)
        for index in range(self.config.num_layers):
            layer = self._layer(index)
            q, k, v = layer.attn.project(layer.attn_norm(x), rope)
            cache.write(index, where, k.flatten(0, 1), v.flatten(0, 1))
            x = layer.finish(x, attend(q, *cache.read(index, as_rows(rows_R), length), mask_RGL))
        hidden: Tensor = self.norm(x)
        return hidden

    def block_hidden_at(
        self,
        anchors_K: Tensor,
        ids_T: Tensor,
        context: SequenceContext,
        starts_K: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [K, G, d] of blocks at many anchors of a text, teacher-forced.

        Equals ``block_hidden`` at each anchor up to rounding; differentiable.

        Args:
            anchors_K: indices into ``ids_T`` of the anchor tokens.
            ids_T: the text's token ids, or those of several texts one after the other.
            context: ``sequence_context`` of ``ids_T`` (at least up to the last anchor).
            starts_K: where the text of each anchor starts in ``ids_T``; None: at 0.
        """
        gamma, shape = self.config.gamma, self.config.block
        slots = torch.arange(context.keys[0].shape[0], device=anchors_K.device)
        starts = torch.zeros_like(anchors_K) if starts_K is None else starts_K
        hidden_K1T = unseen(slots, anchors_K, starts)
        rope = rope_tables(
            (anchors_K - starts)[:, None] + torch.arange(gamma, device=anchors_K.device), shape
        )
        x = self.block_inputs(ids_T[anchors_K])
        for index in range(self.config.num_layers):
            layer = self._layer(index)
            q, k, v = layer.attn.project(layer.attn_norm(x), rope)
            x = layer.finish(
                x, attend_shared(q, (context.keys[index], context.values[index]), (k, v), hidden_K1T)
            )
        hidden: Tensor = self.norm(x)
        return hidden

    # ---- heads

    def base_logits(self, hidden: Tensor) -> Tensor:
        """U = LMhead(h) over the draft vocabulary, [..., Vd], float32."""
        return F.linear(hidden, self.lm_head).float()

    def previous_index(self, token_ids: Tensor) -> Tensor:
        """Rows of W_1 for token ids: themselves, or draft indices with one row for all other tokens."""
        return token_ids if self.config.full_table else self.draft_index[token_ids]

    def head_bias(
        self, j: int, previous_ids: Tensor, hidden: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """``head.step`` with token ids of the full vocabulary as ``previous_ids``."""
        bias, state = self.head.step(j, self.previous_index(previous_ids), hidden, state)
        return bias.float(), state

    def block_logits(self, hidden_KGd: Tensor, previous_ids_KG: Tensor) -> Tensor:
        """Corrected logits U + B [K, G, Vd] of blocks with given tokens (anchor first)."""
        logits = self.base_logits(hidden_KGd)
        latent = self.head.block_latent(self.previous_index(previous_ids_KG), hidden_KGd)
        if latent is None:
            return logits
        assert isinstance(self.head, SequentialHead)
        bias: Tensor = self.head.w2(latent)
        return logits + bias.float()

    def confidence_features(
        self, hidden: Tensor, previous_ids: Tensor, draft_logits: Tensor | None = None
    ) -> Tensor:
        """What the confidence head reads [..., width]; arguments and errors as of ``confidence_logits``."""
        if self.confidence is None:
            raise InputError("drafter: it has no confidence head")
        markov = None
        if self.config.confidence_with_markov and isinstance(self.head, SequentialHead):
            markov = self.head.w1(self.previous_index(previous_ids))
        return self.confidence.features(hidden, markov, draft_logits)

    def confidence_logits(
        self, hidden: Tensor, previous_ids: Tensor, draft_logits: Tensor | None = None
    ) -> Tensor:
        """Confidence logits [...] from h_j [..., d], the tokens before [...] (full-vocabulary ids) and,
        for a head with statistics, the corrected draft logits [..., Vd].

        Raises:
            InputError: this drafter has no confidence head, or ``draft_logits`` are missing.
        """
        features = self.confidence_features(hidden, previous_ids, draft_logits)
        assert self.confidence is not None
        logits: Tensor = self.confidence(features)
        return logits.float()

    def _layer(self, index: int) -> DecoderLayer:
        layer = self.layers[index]
        assert isinstance(layer, DecoderLayer)
        return layer
