"""Files around ``refit``: the drafter and its notes, texts it never saw, the drafter with its new head."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.model.checkpoints import drafter_folder, load_drafter, save_drafter
from dspark_sim.model.corpus import Text
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.loading import load_target, read_json
from dspark_sim.model.runtime import SHIPPED_DTYPE
from dspark_sim.model.trainset import TrainSet

_NOTES = ("target", "training")
_HELD_OUT = 3  # percent, what ``train`` keeps apart


@dataclass(frozen=True, slots=True)
class Opened:
    """A drafter, the notes of its config.json, and the percent of prompts its training kept apart."""

    drafter: Drafter
    notes: Mapping[str, Any]
    held_out: int


def open_drafter(name_or_path: str, target: str, held_out: int | None) -> Opened:
    """Load a drafter with its target; ``held_out`` None: as its notes say, else as ``train`` does.

    Raises:
        InputError: either does not load.
    """
    raw = read_json(drafter_folder(name_or_path) / "config.json")
    notes = {key: raw[key] for key in _NOTES if key in raw}
    trained = notes.get("training", {}).get("config", {}).get("held_out_percent", _HELD_OUT)
    drafter = load_drafter(name_or_path, load_target(target))
    return Opened(drafter, notes, int(trained) if held_out is None else held_out)


def unseen_texts(corpus: str | os.PathLike[str], held_out: int | None) -> tuple[Iterator[Text], float]:
    """Return texts of the prompts kept apart (None: all texts) in an order of shards, and the temperature.

    Raises:
        DataError: no corpus with features there.
    """
    data = TrainSet(corpus, 3 if held_out is None else held_out)
    places = data.held_out if held_out is not None else [*data.train, *data.held_out]
    # Domains come in blocks where a corpus was generated length by length: take every k-th text first.
    stride = max(1, len(places) // 97)
    order = [n for first in range(stride) for n in range(first, len(places), stride)]
    return (places[n][0].text(places[n][1]) for n in order), data.info.temperature or 1.0


def save_refitted(
    drafter: Drafter, opened: Opened, folder: str | os.PathLike[str], how: Mapping[str, Any]
) -> Path:
    """Write the drafter in float16, without the target's own tensors; notes say how its head was fitted."""
    notes = {**opened.notes, "confidence_refit": dict(how)}
    save_drafter(drafter, folder, with_target=False, dtype=SHIPPED_DTYPE, notes=notes)
    return Path(folder)
