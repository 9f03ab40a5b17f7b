"""What a training step reads: texts of a growing corpus, anchors inside them, and the draft vocabulary."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark_sim.errors import DataError, InputError
from dspark_sim.model.corpus import CorpusInfo, Shard, Text, texts
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.losses import IGNORE


def is_held_out(prompt_id: str, percent: int) -> bool:
    """Whether a prompt belongs to the held-out ``percent``: by a hash of its id, so in every run alike."""
    return int.from_bytes(prompt_order(prompt_id)[:4], "big") % 100 < percent


def prompt_order(prompt_id: str) -> bytes:
    """Sort key that shuffles prompts, in every run alike."""
    return hashlib.sha256(prompt_id.encode()).digest()


class TrainSet:
    """Texts of a corpus folder, split by prompt; ``refresh`` picks up shards that have appeared."""

    def __init__(self, folder: str | os.PathLike[str], held_out_percent: int = 3) -> None:
        """Open a corpus with features.

        Raises:
            DataError: no shard there, or shards without features.
        """
        self.folder = Path(folder)
        self.percent = held_out_percent
        self._seen: set[str] = set()
        self.train: list[tuple[Shard, int]] = []
        self.held_out: list[tuple[Shard, int]] = []
        self.refresh()
        if not self.train:
            raise DataError(folder, "", "holds no corpus shard to train on; run the generation first")

    def refresh(self) -> None:
        """Add texts of new shards."""
        for path in sorted(self.folder.glob("shard-*.safetensors")):
            if path.name in self._seen:
                continue
            self._seen.add(path.name)
            shard = Shard(path)
            if shard.info.taps is None:
                raise DataError(path, "taps", "the corpus has no features; make it with generate --features")
            self.info: CorpusInfo = shard.info
            for n, (prompt_id, _, _) in enumerate(shard.keys):
                if self._response_len(shard, n) >= 2:
                    (self.held_out if is_held_out(prompt_id, self.percent) else self.train).append((shard, n))
        lengths = np.array([self._response_len(*where) for where in self.train], dtype=float)
        self.response_tokens = int(lengths.sum())
        self._cumulative = np.cumsum(lengths / max(lengths.sum(), 1))

    def draw(self, random: np.random.Generator) -> Text:
        """One training text, with probability proportional to its response length."""
        index = int(np.searchsorted(self._cumulative, random.random(), side="right"))
        shard, n = self.train[min(index, len(self.train) - 1)]
        return shard.text(n)

    def validation(self, per_domain: int) -> list[Text]:
        """The first ``per_domain`` held-out texts of each domain (without order of arrival)."""
        chosen: list[Text] = []
        counts: Counter[str] = Counter()

        for shard, n in sorted(self.held_out, key=lambda where: prompt_order(where[0].keys[where[1]][0])):
            domain = shard.keys[n][1]
            if counts[domain] < per_domain:
                counts[domain] += 1
                chosen.append(shard.text(n))
        return chosen

    @staticmethod
    def _response_len(shard: Shard, n: int) -> int:
        return int(shard.offsets[n + 1] - shard.offsets[n] - shard.prompt_len[n])


def choose_draft_vocab(
    folder: str | os.PathLike[str], size: int, always: tuple[int, ...] = (), held_out_percent: int = 3
) -> tuple[int, ...]:
    """The ``size`` most frequent token ids of a corpus: responses first, prompts as a tie-breaker.

    Args:
        folder: corpus folder.
        size: tokens wanted.
        always: ids that must be in (the end tokens).
        held_out_percent: prompts left out of the count, those that validation keeps.

    Raises:
        InputError: the corpus has fewer distinct tokens than ``size``.
    """
    counts: Counter[int] = Counter()
    for text in texts(folder):
        if is_held_out(text.prompt_id, held_out_percent):
            continue
        counts.update({int(t): 1000 for t in always})
        for ids, weight in ((text.ids[text.prompt_len :], 10), (text.ids[: text.prompt_len], 1)):
            values, times = np.unique(ids, return_counts=True)
            counts.update({int(v): weight * int(c) for v, c in zip(values, times, strict=True)})
    if len(counts) < size:
        raise InputError(
            f"draft vocabulary: {size} asked for; the corpus has only {len(counts)} distinct tokens: ask for "
            "fewer (--draft-vocab N), or for all of the target's (--draft-vocab 0)"
        )
    return tuple(sorted(token for token, _ in counts.most_common(size)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """K anchors of some texts, packed to the N draft positions that lie inside them.

    Attributes:
        ids_T: token ids of the texts, one after the other, each as far as its last block reads it.
        position_T: their positions in their own text.
        anchors_K, starts_K: where in ``ids_T`` the anchor tokens are, and where their text starts.
        valid_KG: True where the predicted token exists.
        previous_KG: token before each position (the anchor at j = 0); padding holds any token.
        labels_N: predicted token as draft index, ``IGNORE`` where it cannot be drafted.
        target_Nd: the target's final hidden state that predicts it, float32.
        lse_N: its log-normaliser.
        taps_Tmd: tapped states of ``ids_T``.
    """

    ids_T: Tensor
    position_T: Tensor
    anchors_K: Tensor
    starts_K: Tensor
    valid_KG: Tensor
    previous_KG: Tensor
    labels_N: Tensor
    target_Nd: Tensor
    lse_N: Tensor
    taps_Tmd: Tensor


def all_anchors(text: Text) -> Tensor:
    """Every output token that has a token after it, as indices into the text."""
    return torch.arange(text.prompt_len, len(text.ids) - 1)


def draw_anchors(text: Text, count: int, random: np.random.Generator) -> Tensor:
    """At most ``count`` anchors of a text, at random without replacement, ascending."""
    anchors = all_anchors(text)
    if len(anchors) <= count:
        return anchors
    chosen = random.choice(len(anchors), size=count, replace=False)
    return anchors[torch.from_numpy(np.sort(chosen))]


def make_blocks(drafter: Drafter, chosen: Sequence[tuple[Text, Tensor]]) -> Blocks:
    """Gather what the losses need at the anchors of each text (which must have features)."""
    parts = [_text_blocks(drafter.config.gamma, text, anchors) for text, anchors in chosen]
    lengths = [len(part["ids_T"]) for part in parts]
    for part, start in zip(parts, np.cumsum([0, *lengths[:-1]]).tolist(), strict=True):
        part["anchors_K"] = part["anchors_K"] + start
        part["starts_K"] = torch.full_like(part["anchors_K"], start)
    joined = {name: torch.cat([part[name] for part in parts]).to(drafter.device) for name in parts[0]}
    labels = drafter.to_draft(joined.pop("label_ids_N"))
    return Blocks(**joined, labels_N=labels.masked_fill(labels == drafter.config.draft_vocab_size, IGNORE))


def _text_blocks(gamma: int, text: Text, anchors_K: Tensor) -> dict[str, Tensor]:
    """Fields of ``Blocks`` for one text; labels as token ids."""
    assert text.features is not None
    features, ids = text.features, torch.from_numpy(text.ids.astype(np.int64))
    predicted_KG = anchors_K[:, None] + 1 + torch.arange(gamma)
    valid_KG = predicted_KG < len(ids)
    before_KG = (predicted_KG - 1).clamp_max(len(ids) - 1)
    at_N = before_KG[valid_KG]
    # The last token was never fed to the target; no block reads past its own last position.
    fed = min(int(anchors_K.max()) + gamma, len(ids) - 1)
    return {
        "ids_T": ids[:fed],
        "position_T": torch.arange(fed),
        "anchors_K": anchors_K,
        "valid_KG": valid_KG,
        "previous_KG": ids[before_KG],
        "label_ids_N": ids[predicted_KG[valid_KG]],
        "target_Nd": features.hidden_Fd[at_N].float(),
        "lse_N": features.lse_F[at_N],
        "taps_Tmd": features.taps_Fmd[:fed].float(),
    }


def run_blocks(drafter: Drafter, blocks: Blocks) -> Tensor:
    """Block hidden states [K, G, d] of ``blocks``."""
    context = drafter.sequence_context(blocks.taps_Tmd, blocks.position_T)
    return drafter.block_hidden_at(blocks.anchors_K, blocks.ids_T, context, blocks.starts_K)
