"""One training run: the step, and checkpoints that a killed run resumes from.

A run folder holds ``ckpt-ANCHORS/`` (drafter, optimizer state, ``state.json``); each appears whole by a
rename, and the newest two are kept. Nothing is pickled.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.model.checkpoint_config import drafter_config
from dspark_sim.model.checkpoints import drafter_state, make_drafter, save_drafter
from dspark_sim.model.corpus import Text
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafter_config import DrafterConfig
from dspark_sim.model.evaluate import DraftQuality, evaluate_texts
from dspark_sim.model.heads import SequentialHead
from dspark_sim.model.loading import read_json, read_safetensors
from dspark_sim.model.losses import Losses, LossWeights, draft_losses, position_weights
from dspark_sim.model.runtime import tiny_values_as_zero
from dspark_sim.model.serial import SerialDrafter
from dspark_sim.model.target import Target
from dspark_sim.model.trainset import Blocks, TrainSet, draw_anchors, make_blocks, run_blocks
from dspark_sim.rng import stream


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Everything that decides a training run, beside drafter and corpus.

    Attributes:
        total_anchors: anchors until the learning rate has fallen to zero.
        texts_per_step, anchors_per_text: a step's batch.
        lr: peak learning rate, after ``warmup`` (share of the run), then cosine to ``final_lr``.
        clip: largest gradient norm.
        held_out_percent: prompts kept for validation.
        validation_texts: held-out texts per domain.
        validate_every: anchors between validations.
        checkpoint_s: seconds between checkpoints.
        bf16: matrix products of backbone and gradients in bfloat16 (weights, losses and optimizer
            stay in float32); None decides by what the device is fast at.
        compiled: the backbone's pass through ``torch.compile``; None: on accelerators. On a CPU core it
            saves a twelfth of the pass and costs 40 seconds at the start.
    """

    total_anchors: int = 350_000
    texts_per_step: int = 2
    anchors_per_text: int = 24
    lr: float = 7e-4
    final_lr: float = 2e-5
    warmup: float = 0.02
    clip: float = 1.0
    held_out_percent: int = 3
    validation_texts: int = 8
    validate_every: int = 25_000
    checkpoint_s: float = 120.0
    bf16: bool | None = None
    compiled: bool | None = None
    seed: int = 0
    loss: LossWeights = field(default_factory=LossWeights)

    def __post_init__(self) -> None:
        """Refuse a learning rate that is none (InputError)."""
        if not 0 < self.lr < math.inf:
            raise InputError(f"training: learning rate {self.lr:g} must be a number above 0")

    def lr_at(self, anchors: int) -> float:
        """Learning rate after ``anchors``."""
        done = min(anchors / self.total_anchors, 1.0)
        if done < self.warmup:
            return self.lr * (done + 1e-3) / (self.warmup + 1e-3)
        cosine = 0.5 * (1 + math.cos(math.pi * (done - self.warmup) / (1 - self.warmup)))
        return self.final_lr + (self.lr - self.final_lr) * cosine


def init_from_target(config: DrafterConfig, target: Target, seed: int = 0) -> Drafter:
    """A drafter whose layers, final norm and mask vector are copies of the target's.

    The backbone starts as the target's last layers and ``fc`` as 0.1 random plus the identity on
    the last tap: after equal training this is far ahead of a random start (cross-entropy 6.5
    against 8.1 after 9,000 anchors in the feasibility study).
    """
    torch.manual_seed(seed)
    drafter = make_drafter(config).to(device=target.device)
    if config.block == target.config.block and config.num_layers <= target.config.num_layers:
        for ours, theirs in zip(drafter.layers, list(target.layers)[-config.num_layers :], strict=True):
            ours.load_state_dict({k: v.float() for k, v in theirs.state_dict().items()})
    with torch.no_grad():
        d = config.block.hidden_size
        drafter.fc.weight.mul_(0.1)
        drafter.fc.weight[:, -d:] += torch.eye(d, device=target.device)
        drafter.norm.weight.copy_(target.norm.weight)
        if isinstance(drafter, SerialDrafter):
            # Starts as: the feature of the position before, plus a little of the token's embedding.
            drafter.in_proj.weight.mul_(0.1)
            drafter.in_proj.weight[:, :d] += torch.eye(d, device=target.device)
        if drafter.mask is not None:
            drafter.mask.copy_(target.embed[config.mask_token_id])
    return drafter.bind_target(target.embed.float(), target.lm_head.float())


def fast_bf16(device: torch.device) -> bool:
    """Whether bfloat16 matrix products are faster than float32 ones (accelerators, AVX512-BF16)."""
    if device.type != "cpu":
        return True
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(supported is not None and supported())


def step_losses(
    drafter: Drafter,
    batch: list[tuple[Text, Tensor]],
    temperature: float,
    loss: LossWeights,
    *,
    bf16: bool = False,
    run: Callable[[Drafter, Blocks], Tensor] = run_blocks,
) -> Losses:
    """All losses of one batch of (text, anchors); ``run`` is ``run_blocks``, or that function compiled."""
    blocks = make_blocks(drafter, batch)
    with torch.autocast(drafter.device.type, torch.bfloat16, enabled=bf16):
        hidden_KGd = run(drafter, blocks)
    hidden_KGd, valid = hidden_KGd.float(), blocks.valid_KG
    weights_G = position_weights(drafter.config.gamma, loss.decay, drafter.device)
    latent = drafter.head.block_latent(drafter.previous_index(blocks.previous_KG), hidden_KGd)
    confidence = None
    if drafter.confidence is not None:
        confidence = drafter.confidence_logits(hidden_KGd, blocks.previous_KG)[valid]
    return draft_losses(
        hidden_Nd=hidden_KGd[valid],
        latent_Nr=None if latent is None else latent[valid],
        w2_Vr=drafter.head.w2.weight if isinstance(drafter.head, SequentialHead) else None,
        lm_head_Vd=drafter.lm_head,
        target_Nd=blocks.target_Nd,
        lse_N=blocks.lse_N,
        labels_N=blocks.labels_N,
        weights_N=weights_G.expand(len(valid), -1)[valid],
        confidence_N=confidence,
        temperature=temperature,
        loss=loss,
        fast=bf16,
    )


class Trainer:
    """One training run: drafter, optimizer, and how far they are."""

    def __init__(self, drafter: Drafter, data: TrainSet, config: TrainConfig, folder: Path) -> None:
        self.drafter = drafter
        self.data = data
        self.config = config
        self.folder = folder
        self.temperature = data.info.temperature or 1.0
        self.bf16 = fast_bf16(drafter.device) if config.bf16 is None else config.bf16
        on_accelerator = drafter.device.type != "cpu"
        compiled = on_accelerator if config.compiled is None else config.compiled
        # Texts and batches differ in length from step to step: one program for all of them.
        self.run = torch.compile(run_blocks, dynamic=True) if compiled else run_blocks
        self.step = 0
        self.anchors = 0
        self.means: dict[str, float] = {}
        self.validation: dict[str, DraftQuality] | None = None
        self.optimizer = torch.optim.AdamW(
            drafter.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )

    @tiny_values_as_zero()
    def train_step(self) -> int:
        """One optimizer step; returns the anchors it used."""
        random = stream(self.config.seed, "train-step", self.step)
        batch = []
        for _ in range(self.config.texts_per_step):
            text = self.data.draw(random)
            batch.append((text, draw_anchors(text, self.config.anchors_per_text, random)))
        losses = step_losses(
            self.drafter, batch, self.temperature, self.config.loss, bf16=self.bf16, run=self.run
        )
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr_at(self.anchors)
        self.optimizer.step()
        for name in ("total", "ce", "l1", "confidence"):
            value = float(getattr(losses, name).detach())
            self.means[name] = 0.99 * self.means.get(name, value) + 0.01 * value
        used = sum(len(anchors) for _, anchors in batch)
        self.step += 1
        self.anchors += used
        return used

    def validate(self) -> dict[str, DraftQuality]:
        """Replay the held-out texts and add a row to the learning curve."""
        texts = self.data.validation(self.config.validation_texts)
        self.validation = evaluate_texts(self.drafter, texts, self.temperature)
        return self.validation

    def save(self) -> None:
        """Write a checkpoint, whole or not at all, and drop all but the newest two."""
        self.folder.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=self.folder, prefix=".ckpt."))
        save_drafter(self.drafter, building / "drafter", with_target=False)
        save_file(self._optimizer_tensors(), str(building / "optimizer.safetensors"))
        state = {
            "step": self.step,
            "anchors": self.anchors,
            "means": self.means,
            "config": asdict(self.config),
        }
        (building / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
        final = self.folder / f"ckpt-{self.anchors:09d}"
        if final.exists():
            shutil.rmtree(building)
        else:
            os.replace(building, final)
        for old in checkpoints(self.folder)[:-2]:
            shutil.rmtree(old, ignore_errors=True)

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for name, parameter in self.drafter.named_parameters():
            for key in ("exp_avg", "exp_avg_sq"):
                if key in (state := self.optimizer.state.get(parameter, {})):
                    tensors[f"{key}.{name}"] = state[key].cpu().contiguous()
        return tensors or {"empty": torch.zeros(1)}

    def resume(self) -> bool:
        """Continue from the newest checkpoint of the folder; False where there is none."""
        found = checkpoints(self.folder)
        if not found:
            return False
        newest = found[-1]
        drafter = newest / "drafter"
        tensors = read_safetensors(drafter)
        if drafter_config(read_json(drafter / "config.json"), tensors, drafter) != self.drafter.config:
            raise InputError(f"{newest}: holds a drafter of another configuration; give another folder")
        self.drafter.load_state_dict(drafter_state(tensors, self.drafter.config, drafter))
        state = read_json(newest / "state.json")
        self._compare(newest, state.get("config", {}))
        self.step, self.anchors, self.means = state["step"], state["anchors"], state["means"]
        saved = load_file(str(newest / "optimizer.safetensors"))
        for name, parameter in self.drafter.named_parameters():
            if f"exp_avg.{name}" in saved:
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(self.step), device=parameter.device),
                    **{k: saved[f"{k}.{name}"].to(parameter.device) for k in ("exp_avg", "exp_avg_sq")},
                }
        return True

    def _compare(self, checkpoint: Path, then: Mapping[str, Any]) -> None:
        now = asdict(self.config)
        for name in _FIXED:
            if then.get(name, now[name]) != now[name]:
                raise InputError(
                    f"{checkpoint}: begun with {name} {then[name]}, now {now[name]}; go on with its own, or "
                    "give another folder"
                )


#: What a run keeps from its start to its end; its length may be changed, and how it is watched.
_FIXED = ("lr", "seed", "texts_per_step", "anchors_per_text", "held_out_percent", "loss")


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints of a run folder, oldest first."""
    return sorted(p for p in folder.glob("ckpt-*") if (p / "state.json").is_file())
