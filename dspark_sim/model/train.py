"""Train a drafter against a frozen target's cached features; killed runs resume at the last checkpoint."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.files import atomic_path
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.evaluate import DraftQuality, macro_accepted_len
from dspark_sim.model.trainer import TrainConfig, Trainer
from dspark_sim.model.trainset import TrainSet


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """State of a run, as reported after every step.

    Attributes:
        anchors, total_anchors, step: how far it is.
        anchors_per_s: over the last steps, wall clock.
        loss, ce, l1, confidence: running means.
        accepted_len: macro-average tau of the last validation, None before the first.
        validation: the last validation by domain.
        response_tokens: training tokens in the corpus now.
    """

    anchors: int
    total_anchors: int
    step: int
    anchors_per_s: float
    loss: float
    ce: float
    l1: float
    confidence: float
    accepted_len: float | None
    validation: dict[str, DraftQuality] | None
    response_tokens: int


def add_curve_row(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a CSV file, rewriting it atomically."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as handle:
            rows = list(csv.DictReader(handle))
    rows.append(row)
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, fieldnames=list(row))
        writer.writeheader()
        writer.writerows(rows)


def curve_row(trainer: Trainer, seconds: float) -> dict[str, Any]:
    """One line of the learning curve: losses, tau by domain, conditional acceptance by position."""
    assert trainer.validation is not None
    found = trainer.validation
    row: dict[str, Any] = {"anchors": trainer.anchors, "step": trainer.step, "seconds": round(seconds, 1)}
    row["corpus_tokens"] = trainer.data.response_tokens
    row |= {name: round(value, 5) for name, value in trainer.means.items()}
    row["tau"] = round(macro_accepted_len(found), 4)
    row |= {f"tau_{d}": round(found[d].accepted_len, 4) for d in sorted(found) if d != "all"}
    row |= {f"accept_{j + 1}": round(float(a), 4) for j, a in enumerate(found["all"].conditional_G)}
    return row


def train(
    drafter: Drafter,
    corpus: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    config: TrainConfig | None = None,
    *,
    on_progress: Callable[[TrainProgress], None] | None = None,
    stop_after_s: float | None = None,
) -> Drafter:
    """Train ``drafter`` (bound to its target) on a corpus that may still be growing.

    Args:
        drafter: from ``init_from_target``; trained in place, in float32.
        corpus: folder of shards with features (corpus.py).
        folder: run folder; an interrupted run there is continued.
        config: see ``TrainConfig``.
        on_progress: called after every step.
        stop_after_s: write a checkpoint and return after that many seconds.

    Raises:
        InputError: empty corpus, or a run folder of another drafter.
    """
    config = config or TrainConfig()
    trainer = Trainer(drafter, TrainSet(corpus, config.held_out_percent), config, Path(folder))
    trainer.resume()
    drafter.train().requires_grad_(True)
    started = saved = time.monotonic()
    rate = 0.0
    next_validation = (trainer.anchors // config.validate_every + 1) * config.validate_every
    while trainer.anchors < config.total_anchors:
        began = time.monotonic()
        used = trainer.train_step()
        now = time.monotonic()
        rate = 0.95 * rate + 0.05 * used / (now - began) if rate else used / (now - began)
        finished = trainer.anchors >= config.total_anchors
        if trainer.anchors >= next_validation or finished:
            next_validation += config.validate_every
            if trainer.validate():  # of a few prompts none may be held out
                add_curve_row(trainer.folder / "curve.csv", curve_row(trainer, now - started))
        out_of_time = stop_after_s is not None and now - started > stop_after_s
        if now - saved > config.checkpoint_s or finished or out_of_time:
            trainer.save()
            trainer.data.refresh()
            saved = now
        if on_progress is not None:
            on_progress(_progress(trainer, rate))
        if out_of_time:
            break
    return drafter.requires_grad_(False).eval()


def _progress(trainer: Trainer, rate: float) -> TrainProgress:
    means, found = trainer.means, trainer.validation
    tau = macro_accepted_len(found) if found else None
    return TrainProgress(
        anchors=trainer.anchors,
        total_anchors=trainer.config.total_anchors,
        step=trainer.step,
        anchors_per_s=rate,
        loss=means["total"],
        ce=means["ce"],
        l1=means["l1"],
        confidence=means["confidence"],
        accepted_len=tau,
        validation=found,
        response_tokens=trainer.data.response_tokens,
    )
