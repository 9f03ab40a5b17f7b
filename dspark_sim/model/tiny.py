"""A tiny random pair for tests: milliseconds, no download, and yet a drafter worth verifying.

A random drafter would be accepted by luck alone. Here the target's next-token law leans on the
current token, and a sequential head starts as that very bigram law, so that acceptance is neither
0 nor 1, and confidences differ strongly from block to block.
"""

from __future__ import annotations

import torch

from dspark_sim.model.checkpoints import make_drafter
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafter_config import DrafterConfig
from dspark_sim.model.heads import GatedHead, RnnHead, SequentialHead
from dspark_sim.model.layers import BlockShape, rms_normalize
from dspark_sim.model.target import Target, TargetConfig


def tiny_pair(
    seed: int = 0,
    *,
    vocab: int = 13,
    hidden: int = 16,
    gamma: int = 3,
    draft_vocab: int | None = None,
    head: str = "vanilla",
    layers: int = 3,
    sharpness: float = 1.5,
    normalize_taps: bool = False,
    qk_norm: bool = False,
    serial: bool = False,
) -> tuple[Target, Drafter]:
    """Build a random target and a drafter that knows something of it.

    Args:
        seed: everything is a function of it.
        vocab: target vocabulary.
        hidden: width, a multiple of 8.
        gamma: draft length.
        draft_vocab: tokens the drafter can propose; None for all.
        head: none, vanilla, gated, rnn.
        layers: target layers, at least 2.
        sharpness: standard deviation of the target's logits, about (nats).
        normalize_taps: as in ``DrafterConfig``.
        qk_norm: Qwen3 instead of Llama layers.
        serial: an autoregressive drafter (give ``head="none"``).
    """
    random = torch.Generator().manual_seed(seed)
    shape = BlockShape(hidden, 2 * hidden, 4, 2, hidden // 4, 1e-5, 1e4, qk_norm)
    config = TargetConfig("tiny", vocab, layers, shape, eos_token_ids=(), max_positions=4096)
    target = Target(config)
    _randomize(target, random)
    with torch.no_grad():
        target.embed.normal_(0, 1, generator=random)
        target.lm_head.normal_(0, sharpness * hidden**-0.5, generator=random)
    ids = None
    if draft_vocab is not None:
        ids = tuple(sorted(torch.randperm(vocab, generator=random)[:draft_vocab].tolist()))
    drafter = make_drafter(
        DrafterConfig(
            gamma=gamma,
            target_layer_ids=(0, layers - 2) if layers > 2 else (0,),
            num_layers=1,
            block=shape,
            vocab_size=vocab,
            draft_vocab_ids=ids,
            head=head,
            markov_rank=0 if head == "none" else hidden,
            confidence_with_markov=head != "none",
            normalize_taps=normalize_taps,
            mask_token_id=vocab - 1,
            learned_mask=True,
            num_target_layers=layers,
            serial=serial,
        )
    )
    _randomize(drafter, random)
    drafter.bind_target(target.embed, target.lm_head)
    _teach_bigram(drafter, target)
    return target.eval(), drafter.requires_grad_(False).eval()


def _randomize(module: torch.nn.Module, random: torch.Generator) -> None:
    """Matrices of a scale that keeps activations near 1; norms stay at 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.7 * parameter.shape[1] ** -0.5, generator=random)


def _teach_bigram(drafter: Drafter, target: Target) -> None:
    """Make the head's bias the target's logits for the previous token alone, and spread confidences."""
    config = drafter.config
    with torch.no_grad():
        if drafter.mask is not None:
            drafter.mask.copy_(target.embed[config.mask_token_id])
        if drafter.confidence is not None:
            drafter.confidence.proj.weight.mul_(4.0)
        head = drafter.head
        if not isinstance(head, SequentialHead):
            return
        rows = target.embed if config.full_table else target.embed[drafter.draft_ids]
        # The row for all other tokens, where there is one, stays random.
        head.w1.weight[: len(rows)] = rms_normalize(rows, 1e-5)
        head.w2.weight.copy_(drafter.lm_head)
        # The backbone's own logits become a perturbation of that.
        drafter.norm.weight.mul_(0.5)
        if isinstance(head, GatedHead):
            head.gate.bias.fill_(2.0)
        if isinstance(head, RnnHead):
            head.w2.weight.mul_(2.0)
