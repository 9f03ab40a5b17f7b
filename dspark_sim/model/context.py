"""What the blocks of a drafter may see of a text when many are computed at once.

Shape suffixes: see layers.py; K counts anchors.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class SequenceContext:
    """Context keys and values of one whole text, for ``block_hidden_at``.

    Attributes:
        keys, values: a [T, heads, D] tensor per layer.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


def unseen(slots_T: Tensor, anchors_K: Tensor, starts_K: Tensor) -> Tensor:
    """Context that a block may not see, [K, 1, T]: from its anchor on, and before its text."""
    return ((slots_T >= anchors_K[:, None]) | (slots_T < starts_K[:, None]))[:, None]
