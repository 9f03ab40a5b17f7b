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
        # Arrays of one value: a number costs an operation as much again. A power of two is a shift.
        self._shifts = block_tokens & (block_tokens - 1) == 0
        divisor = block_tokens.bit_length() - 1 if self._shifts else block_tokens
        self._ahead_R: IntArray = np.full(64, self._ahead)
        self._size_R: IntArray = np.full(64, divisor)

    @property
    def used(self) -> int:
        """Blocks that requests hold."""
        return self.total - self.free

    def needed(self, kv_tokens: Tokens) -> Tokens:
        """Return the blocks for ``kv_tokens``, the anchor's included, and a drafted block behind them."""
        return (kv_tokens + self._ahead) // self.block_tokens

    def needed_R(self, base_R: IntArray, row_R: IntArray) -> IntArray:
        """Return :meth:`needed` of ``base_R + row_R``, every step anew, in as few operations as there are."""
        size = row_R.size
        while size > self._ahead_R.size:
            self._ahead_R, self._size_R = np.repeat(self._ahead_R, 2), np.repeat(self._size_R, 2)
        need_R = np.add(base_R, row_R)
        np.add(need_R, self._ahead_R[:size], out=need_R)
        if self._shifts:
            np.right_shift(need_R, self._size_R[:size], out=need_R)
        else:
            np.floor_divide(need_R, self._size_R[:size], out=need_R)
        return need_R

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
