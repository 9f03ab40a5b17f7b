"""What a drafter is, apart from its weights."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_sim.errors import InputError
from dspark_sim.model.heads import HEAD_KINDS
from dspark_sim.model.layers import BlockShape


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """What a drafter is.

    Attributes:
        gamma: tokens a block drafts.
        target_layer_ids: tapped target layers, ascending; their outputs are the context features.
        num_layers: backbone layers.
        block: sizes of one layer (hidden size and norms as the target's).
        vocab_size: the target's vocabulary, V.
        draft_vocab_ids: token ids the drafter can propose, ascending; None for all. Lossless
            either way: q is zero outside, and the residual is taken over the full vocabulary.
        head: none, vanilla, gated, rnn.
        markov_rank: r; 0 without head.
        full_previous: W_1 has a row for every token although the draft vocabulary is reduced.
        confidence: whether there is a confidence head.
        confidence_with_markov: whether it reads W_1[x_{j-1}] beside h_j.
        confidence_statistics: whether it also reads how peaked q_j is (confidence.py); an extension of ours.
        normalize_taps: RMS-normalise every tapped state by itself before ``fc``. Attention sinks
            reach 24,900 where other tokens have an rms of 2 to 33, and late layers would drown
            early ones. The reference feeds raw states (False).
        mask_token_id: the token whose embedding fills the mask positions.
        learned_mask: a trained vector instead of that embedding (vocabularies without a mask token).
        num_target_layers: layers of the target it belongs to.
        serial: an autoregressive module (serial.py) instead of the parallel block.
    """

    gamma: int
    target_layer_ids: tuple[int, ...]
    num_layers: int
    block: BlockShape
    vocab_size: int
    draft_vocab_ids: tuple[int, ...] | None = None
    head: str = "vanilla"
    markov_rank: int = 128
    full_previous: bool = False
    confidence: bool = True
    confidence_with_markov: bool = True
    confidence_statistics: bool = False
    normalize_taps: bool = False
    mask_token_id: int = 0
    learned_mask: bool = False
    num_target_layers: int = 0
    serial: bool = False

    def __post_init__(self) -> None:
        """Refuse what no drafter can be."""
        if self.gamma < 1 or self.num_layers < 1 or not self.target_layer_ids:
            raise InputError("drafter: gamma, layers and tapped layers must each be at least 1")
        if self.head not in HEAD_KINDS or (self.head == "none") != (self.markov_rank == 0):
            raise InputError(
                f"drafter: head {self.head!r} with markov_rank {self.markov_rank} (0 means no head)"
            )
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise InputError(
                f"drafter: mask_token_id {self.mask_token_id} is outside 0..{self.vocab_size - 1}"
            )
        ids = self.draft_vocab_ids
        if ids is not None and (
            list(ids) != sorted(set(ids)) or not 0 <= ids[0] <= ids[-1] < self.vocab_size
        ):
            raise InputError(
                "drafter: draft_vocab_ids must ascend, without repeats, inside the target's vocabulary"
            )

    @property
    def kind(self) -> str:
        """``mtp`` if serial, ``dflash`` without a head, else ``dspark``."""
        if self.serial:
            return "mtp"
        return "dflash" if self.head == "none" else "dspark"

    @property
    def draft_vocab_size(self) -> int:
        """Tokens the drafter can propose."""
        return self.vocab_size if self.draft_vocab_ids is None else len(self.draft_vocab_ids)

    @property
    def full_table(self) -> bool:
        """Whether W_1 is indexed by token id (else by draft index, one last row for all others)."""
        return self.draft_vocab_ids is None or self.full_previous

    @property
    def previous_size(self) -> int:
        """Rows of W_1."""
        return self.vocab_size if self.full_table else self.draft_vocab_size + 1


def target_tap_layers(num_layers: int, taps: int = 5) -> tuple[int, ...]:
    """Reference spacing of tapped layers: from layer 1 to the third from the end (1, 9, 17, 25, 33 of 36)."""
    last = num_layers - 3
    return tuple(sorted({int(1.5 + n * (last - 1) / max(taps - 1, 1)) for n in range(taps)}))
