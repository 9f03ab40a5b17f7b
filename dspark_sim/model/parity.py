"""Compare a checkpoint's numbers with tensors that a reference implementation computed on it.

A folder holds ``target/``, ``drafter/`` and ``expected.safetensors``: prefill, rounds of greedy drafting
with a growing cache (``round0.*``, ...), and one teacher-forced pass with its losses (``tf.*``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dspark_sim.errors import DataError
from dspark_sim.model.checkpoints import load_drafter
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.heads import SequentialHead
from dspark_sim.model.layers import KVCache
from dspark_sim.model.loading import load_target
from dspark_sim.model.losses import draft_losses, log_normalizer, position_weights
from dspark_sim.model.target import Target

TOLERANCE = 1e-5


def parity_report(
    folder: str | os.PathLike[str], *, tolerance: float = TOLERANCE, double: bool = False
) -> dict[str, Any]:
    """Recompute every tensor of ``expected.safetensors`` and say how far it is from the expected one.

    A tensor passes if its largest deviation is at most ``tolerance`` (*absolute*), or at most that share of
    the tensor's largest magnitude (*relative*); token ids and counts pass if they are equal. ``beyond``
    counts the elements that deviate by more than ``tolerance`` both absolutely and from their own value: sums
    of magnitude 40 in float32 leave such elements near zero, in the reference as well (compare a report with
    ``double``, which has no rounding of its own to speak of).

    Args:
        folder: holds target/, drafter/ and expected.safetensors.
        tolerance: largest error that passes.
        double: compute in float64 instead of float32.

    Returns:
        ``{"schema", "folder", "dtype", "tolerance", "tensors": {name: {"absolute", "relative", "scale",
        "elements", "beyond", "passes"}}, "largest", "missed", "unread", "ok"}``; ``passes`` is "equal",
        "absolute", "relative" or None; ``largest`` is the largest of the smaller of both errors; ``missed``
        names what does not pass, ``unread`` what the file holds that is neither input nor recomputed.

    Raises:
        InputError: a part is missing or does not load.
    """
    folder = Path(folder)
    path = folder / "expected.safetensors"
    if not path.is_file():
        raise DataError(path, "", "no such file; a parity folder holds target/, drafter/ and it")
    dtype = torch.float64 if double else torch.float32
    target = load_target(folder / "target", dtype=dtype)
    drafter = load_drafter(folder / "drafter", dtype=dtype)
    check = _Check(_expected(path), path, tolerance)
    with torch.no_grad():
        _rounds(target, drafter, check)
        _teacher_forced(target, drafter, check)
    missed = [name for name, row in check.tensors.items() if row["passes"] is None]
    return {
        "schema": "dspark-sim/parity/1",
        "folder": str(folder),
        "dtype": str(dtype).removeprefix("torch."),
        "tolerance": tolerance,
        "tensors": check.tensors,
        "largest": max(min(row["absolute"], row["relative"]) for row in check.tensors.values()),
        "missed": missed,
        "unread": sorted(set(check.expected) - set(check.tensors) - check.inputs),
        "ok": not missed,
    }


def _expected(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(path, "", f"not a safetensors file ({error})") from None


class _Check:
    """Compares each tensor computed with the one expected."""

    def __init__(self, expected: Mapping[str, Tensor], path: Path, tolerance: float) -> None:
        self.expected = expected
        self.path = path
        self.tolerance = tolerance
        self.tensors: dict[str, dict[str, Any]] = {}
        self.inputs: set[str] = set()

    def want(self, name: str) -> Tensor:
        """The expected tensor; what is only asked for is an input."""
        if name not in self.expected:
            raise DataError(self.path, name, "tensor is missing")
        self.inputs.add(name)
        return self.expected[name]

    def __call__(self, name: str, found: Tensor) -> None:
        """Compare ``found`` with the expected tensor ``name``."""
        wanted = self.want(name)
        if found.numel() != wanted.numel():
            raise DataError(
                self.path, name, f"has {wanted.numel()} values, this checkpoint gives {found.numel()}"
            )
        deviation = (found.reshape(wanted.shape).double() - wanted.double()).abs()
        magnitude = wanted.double().abs()
        absolute, scale = float(deviation.max()), float(magnitude.max())
        self.tensors[name] = {
            "absolute": absolute,
            "relative": absolute / scale if scale else absolute,
            "scale": scale,
            "elements": wanted.numel(),
            "beyond": int((deviation > self.tolerance * magnitude.clamp_min(1.0)).sum()),
            "passes": self._passes(absolute, scale, wanted.is_floating_point()),
        }

    def _passes(self, absolute: float, scale: float, real: bool) -> str | None:
        """By which rule a tensor passes, None if by none."""
        if absolute == 0.0:
            return "equal"
        if not real:
            return None
        if absolute <= self.tolerance:
            return "absolute"
        return "relative" if absolute <= self.tolerance * scale else None


def _rounds(target: Target, drafter: Drafter, check: _Check) -> None:
    """Prefill, then rounds of greedy drafting; every round extends the context by what was kept."""
    taps, row = drafter.config.target_layer_ids, torch.tensor([0])
    ids = check.want("prompt_ids")
    capacity = ids.shape[1] + sum(t.shape[1] for n, t in check.expected.items() if "verify_input_ids" in n)
    cache, context = target.new_cache(1, capacity), drafter.new_cache(1, capacity + drafter.config.gamma)
    positions = torch.arange(ids.shape[1])[None]
    out = target(ids, positions, cache, row, taps)
    check("prefill_context_features", out.taps_RTmd)
    first = target.logits(out.hidden_RTd[:, -1])
    check("prefill_logits_last", first)
    drafter.extend_context(out.taps_RTmd, positions, context, row)
    number = 0
    committed = [ids[0], first.argmax(-1)]
    while f"round{number}.anchor_id" in check.expected:
        name = f"round{number}."
        _draft(drafter, context, check, name)
        verify = check.want(name + "verify_input_ids")
        positions = check.want(name + "anchor_position").view(1, 1) + torch.arange(verify.shape[1])
        out = target(verify, positions, cache, row, taps)
        logits = target.logits(out.hidden_RTd)
        check(name + "verify_logits", logits)
        kept = _greedy_accepted(verify[0], logits[0])
        check(name + "accepted", torch.tensor(kept))
        committed.append(torch.cat((verify[0, 1 : kept + 1], logits[0, kept].argmax(-1, keepdim=True))))
        check(name + "committed", committed[-1])
        drafter.extend_context(out.taps_RTmd[:, : kept + 1], positions[:, : kept + 1], context, row)
        number += 1
    check("output_ids", torch.cat(committed))


def _draft(drafter: Drafter, context: KVCache, check: _Check, name: str) -> None:
    """One block, greedily: hidden states, logits before and after the head, tokens, confidences."""
    anchor, position = check.want(name + "anchor_id").view(1), check.want(name + "anchor_position").view(1)
    hidden = drafter.block_hidden(anchor, position, context, torch.tensor([0]))
    base = drafter.base_logits(hidden)
    check(name + "block_hidden", hidden)
    check(name + "base_logits", base)
    previous, state = anchor, None
    before, logits = [], []
    for j in range(drafter.config.gamma):
        bias, state = drafter.head_bias(j, previous, hidden[:, j], state)
        before.append(previous)
        logits.append(base[:, j] + bias)
        previous = drafter.to_full(logits[-1].argmax(-1))
    check(name + "draft_logits", torch.stack(logits, 1))
    check(name + "draft_tokens", torch.stack([*before[1:], previous], 1))
    if drafter.confidence is not None:
        check(name + "confidence", drafter.confidence_logits(hidden, torch.stack(before, 1)).sigmoid())


def _greedy_accepted(verify_T: Tensor, logits_TV: Tensor) -> int:
    """Draft tokens that equal the target's argmax, counted up to the first that does not."""
    same = verify_T[1:] == logits_TV[:-1].argmax(-1)
    return int(same.long().cumprod(0).sum())


def _teacher_forced(target: Target, drafter: Drafter, check: _Check) -> None:
    """Blocks at fixed anchors of one text, and the three losses at temperature 1."""
    ids_T, anchors_K = check.want("tf.input_ids")[0], check.want("tf.anchors")[0]
    positions, gamma = torch.arange(len(ids_T)), drafter.config.gamma
    out = target(
        ids_T[None], positions[None], target.new_cache(1, len(ids_T)), torch.tensor([0]),
        drafter.config.target_layer_ids,
    )  # fmt: skip
    assert out.taps_RTmd is not None
    context = drafter.sequence_context(out.taps_RTmd[0], positions)
    hidden = drafter.block_hidden_at(anchors_K, ids_T, context)
    before_KG = anchors_K[:, None] + torch.arange(gamma)
    previous, final = ids_T[before_KG], out.hidden_RTd[0][before_KG]
    check("tf.hidden", hidden)
    check("tf.target_ids", ids_T[before_KG + 1])
    check("tf.draft_logits", drafter.block_logits(hidden, previous))
    check("tf.target_logits", target.logits(final))
    confidence = None
    if drafter.confidence is not None:
        confidence = drafter.confidence_logits(hidden, previous)
        check("tf.confidence", confidence.sigmoid())
    latent = drafter.head.block_latent(drafter.previous_index(previous), hidden)
    final_Nd = final.flatten(0, 1)
    losses = draft_losses(
        hidden_Nd=hidden.flatten(0, 1),
        latent_Nr=None if latent is None else latent.flatten(0, 1),
        w2_Vr=drafter.head.w2.weight if isinstance(drafter.head, SequentialHead) else None,
        lm_head_Vd=drafter.lm_head,
        target_Nd=final_Nd,
        lse_N=log_normalizer(final_Nd, target.lm_head, 1.0).to(hidden.dtype),
        labels_N=drafter.to_draft(ids_T[before_KG + 1]).flatten(),
        weights_N=position_weights(gamma, 4.0).to(hidden.dtype).repeat(len(anchors_K)),
        confidence_N=None if confidence is None else confidence.flatten(),
    )
    check("tf.acceptance_rate", losses.accept_N)
    check("tf.loss_ce", losses.ce)
    check("tf.loss_l1", losses.l1)
    if confidence is not None:
        check("tf.loss_confidence", losses.confidence)
        check("tf.loss_total", losses.total)
