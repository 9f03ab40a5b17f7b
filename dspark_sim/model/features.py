"""Target features of texts that are known already: what generation stores, recomputed from token ids.

Token ids of a corpus are a megabyte, its features gigabytes: ids are kept, and this brings the rest back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark_sim.model.corpus import CorpusInfo, Features, Text, done_keys, write_shard
from dspark_sim.model.generate import TAP_NORM_EPS
from dspark_sim.model.layers import rms_normalize
from dspark_sim.model.losses import log_normalizer
from dspark_sim.model.target import Target


def recompute_features(
    target: Target,
    info: CorpusInfo,
    texts: Sequence[Text],
    folder: str | os.PathLike[str],
    *,
    taps: Sequence[int],
    texts_per_shard: int = 24,
    on_progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write shards with features for ``texts`` (from ``read_texts``); resumes what is there.

    Args:
        target: the model that wrote the texts.
        info: as ``read_texts`` gave it; its temperature decides the log-normalisers.
        texts: texts without features.
        folder: corpus folder, made if missing.
        taps: layers whose outputs are stored.
        texts_per_shard: texts that run through the target together and share a shard.
        on_progress: called with (texts done, texts in all) after each shard.

    Returns:
        Texts written by this call.
    """
    folder = Path(folder)
    info = replace(info, taps=tuple(taps))
    done = done_keys(folder)
    todo = [text for text in texts if text.key not in done]
    # Equal lengths together: padded attention is cheap then.
    todo.sort(key=lambda text: len(text.ids))
    number = len(list(folder.glob("shard-90-*.safetensors")))
    for start in range(0, len(todo), texts_per_shard):
        part = todo[start : start + texts_per_shard]
        found = text_features(target, info, part)
        full = [replace(text, features=features) for text, features in zip(part, found, strict=True)]
        write_shard(folder / f"shard-90-{number:05d}.safetensors", info, full)
        number += 1
        if on_progress is not None:
            on_progress(min(start + texts_per_shard, len(todo)), len(todo))
    return len(todo)


@torch.no_grad()
def text_features(target: Target, info: CorpusInfo, texts: Sequence[Text]) -> list[Features]:
    """Features of the fed tokens of ``texts``, in one ragged pass."""
    fed = [len(text.ids) - 1 for text in texts]
    ids_RT = torch.zeros(len(texts), max(fed), dtype=torch.long)
    for row, text in enumerate(texts):
        ids_RT[row, : fed[row]] = torch.from_numpy(text.ids[:-1].astype(np.int64))
    positions_RT = torch.arange(max(fed)).expand_as(ids_RT)
    valid_RT = positions_RT < torch.tensor(fed)[:, None]
    rows_R = torch.arange(len(texts), device=target.device)
    cache = target.new_cache(len(texts), max(fed))
    device = target.device
    out = target(
        ids_RT.to(device), positions_RT.to(device), cache, rows_R, info.taps, valid_RT.to(device)
    )  # fmt: skip
    assert out.taps_RTmd is not None
    return [
        _features(target, info, text, out.taps_RTmd[row, : fed[row]], out.hidden_RTd[row, : fed[row]])
        for row, text in enumerate(texts)
    ]


def _features(target: Target, info: CorpusInfo, text: Text, taps_Fmd: Tensor, hidden_Fd: Tensor) -> Features:
    """One text's features as a corpus stores them."""
    taps = rms_normalize(taps_Fmd, TAP_NORM_EPS) if info.normalize_taps else taps_Fmd
    first = text.prompt_len - 1
    lse_F = torch.full((len(hidden_Fd),), float("nan"), device=hidden_Fd.device)
    lse_F[first:] = log_normalizer(hidden_Fd[first:], target.lm_head, info.temperature or 1.0)
    return Features(taps.half().cpu(), hidden_Fd.half().cpu(), lse_F.cpu())
