"""Paged KV blocks of one replica: a ledger of how many are free."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from dspark_sim.schema import IntArray

Tokens = TypeVar("Tokens", int, IntArray)


class KvBlocks:
    """Blocks of ``block_tokens`` tokens; a block belongs to one request.

    Args:
        total: blocks of the replica.
        block_tokens: tokens of one request in a block.
        watermark: share of the blocks that admission leaves free, so that the running ones can grow.
        lookahead: draft tokens whose KV a step may write beside the anchor's.
    """

    def __init__(self, total: int, block_tokens: int, watermark: float, lookahead: int) -> None:
        self.total = self.free = total
        self.block_tokens = block_tokens
        self.kept_free = int(np.ceil(watermark * total))
        self._ahead = lookahead + block_tokens - 1

    @property
    def used(self) -> int:
        """Blocks that requests hold."""
        return self.total - self.free

    def needed(self, kv_tokens: Tokens) -> Tokens:
        """Return the blocks for ``kv_tokens``, the anchor's included, and a drafted block behind them."""
        return (kv_tokens + self._ahead) // self.block_tokens

    def take_if_admissible(self, blocks: int) -> bool:
        """Allocate ``blocks`` for a new request if they lie above the watermark, or the cache is empty."""
        fits = blocks <= self.free - self.kept_free or blocks <= self.free == self.total
        if fits:
            self.free -= blocks
        return fits

    def take(self, blocks: int) -> None:
        """Allocate ``blocks``; the caller has asked whether they are there."""
        assert 0 <= blocks <= self.free
        self.free -= blocks

    def give_back(self, blocks: int) -> None:
        """Free ``blocks``."""
        assert 0 <= blocks <= self.used
        self.free += blocks
