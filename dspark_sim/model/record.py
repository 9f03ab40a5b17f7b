"""The dense recorder: what every drafter would have done from every output position of a text.

The text was sampled from the target alone. Features, target distributions and drafts are recomputed
teacher-forced, all anchors of a text at once; each block is then drawn *given* the text (verify.py),
so that accepted run, confidences and text have the joint law of live full-block decoding.
Shape suffixes: N anchors, G gamma, T positions of a text, d hidden, m taps, W draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.model.corpus import Text
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafting import BlockStep, teacher_forced
from dspark_sim.model.sampling import probabilities
from dspark_sim.model.target import Target
from dspark_sim.model.verify import PAST_END, Blocks, TextAhead, draft_blocks
from dspark_sim.rng import stream


@dataclass(frozen=True, slots=True)
class DrafterRecord:
    """One drafter on one text; row i is the anchor at output token i.

    Attributes:
        accepted_N: uint8.
        confidence_logit_NG, confidence_logit_free_NG: float16, None without a confidence head.
        accept_rate_NG: float16, 1 - TV(p, q) where the draft prefix was accepted, 0 past it.
    """

    accepted_N: NDArray[np.uint8]
    confidence_logit_NG: NDArray[np.float16] | None
    confidence_logit_free_NG: NDArray[np.float16] | None
    accept_rate_NG: NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class _TextPass:
    """What the target says about one text: taps of the fed tokens, p over the response."""

    taps_Tmd: Tensor
    p_TV: Tensor


class Recorder:
    """Records texts of one target with any number of its drafters.

    Texts of the same prompt that come one after the other share its prefill.
    """

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter],
        *,
        temperature: float,
        top_p: float = 1.0,
        seed: int = 0,
        anchors_at_once: int = 64,
    ) -> None:
        """Prepare.

        Args:
            target: the model that wrote the texts.
            drafters: by the names they get in the trace.
            temperature: of target and drafters alike; must be the one the texts were sampled at.
            top_p: likewise.
            seed: of the draws; every anchor of every request has uniform numbers of its own.
            anchors_at_once: blocks drafted together; memory, not results, depends on it.
        """
        if not drafters:
            raise InputError("record: needs at least one drafter")
        self.target = target
        self.drafters = dict(drafters)
        self.temperature = temperature
        self.top_p = top_p
        self.seed = seed
        self.anchors_at_once = anchors_at_once
        self.taps = sorted({layer for d in self.drafters.values() for layer in d.config.target_layer_ids})
        self._cache = target.new_cache(1, 0)
        self._prompt: tuple[int, ...] = ()
        self._prompt_taps = torch.empty(0)

    @torch.inference_mode()
    def record(self, text: Text) -> dict[str, DrafterRecord]:
        """Draft from every output position of ``text``.

        Raises:
            InputError: the text has no output token.
        """
        if text.response_len < 1:
            raise InputError(f"record: text {request_id(text)} has no output token")
        seen = self._read(text)
        return {name: self._drafter(name, drafter, text, seen) for name, drafter in self.drafters.items()}

    def _read(self, text: Text) -> _TextPass:
        """Run the target over all tokens of ``text`` but the last."""
        ids = torch.from_numpy(text.ids.astype(np.int64)).to(self.target.device)
        prompt = tuple(text.ids[: text.prompt_len].tolist())
        if self._cache.capacity < len(ids):
            self._cache, self._prompt = self.target.new_cache(1, len(ids) + 128), ()
        if prompt != self._prompt:
            self._prompt_taps, _ = self._forward(ids[: text.prompt_len], 0)
            self._prompt = prompt
        if text.response_len == 1:  # nothing after token 0: no distribution is asked for
            nothing = torch.zeros(0, self.target.config.vocab_size, device=self.target.device)
            return _TextPass(self._prompt_taps, nothing)
        taps, hidden = self._forward(ids[text.prompt_len : -1], text.prompt_len)
        chunks = [self._probabilities(part) for part in torch.split(hidden, self.anchors_at_once)]
        return _TextPass(torch.cat([self._prompt_taps, taps]), torch.cat(chunks))

    def _forward(self, ids_T: Tensor, first: int) -> tuple[Tensor, Tensor]:
        device = self.target.device
        positions = torch.arange(first, first + len(ids_T), device=device)
        row = torch.zeros(1, dtype=torch.long, device=device)
        out = self.target(ids_T[None], positions[None], self._cache, row, self.taps)
        assert out.taps_RTmd is not None
        return out.taps_RTmd[0], out.hidden_RTd[0]

    def _probabilities(self, hidden_Td: Tensor) -> Tensor:
        return probabilities(self.target.logits(hidden_Td), self.temperature, self.top_p)

    def _drafter(self, name: str, drafter: Drafter, text: Text, seen: _TextPass) -> DrafterRecord:
        """One drafter: blocks at all anchors, a chunk of them at a time."""
        ids = torch.from_numpy(text.ids.astype(np.int64)).to(drafter.device)
        wanted = [self.taps.index(layer) for layer in drafter.config.target_layer_ids]
        taps = seen.taps_Tmd[:, wanted]
        context = drafter.sequence_context(taps, torch.arange(len(taps), device=drafter.device))
        p_TW = seen.p_TV if drafter.config.draft_vocab_ids is None else seen.p_TV[:, drafter.draft_ids]
        gamma, count = drafter.config.gamma, text.response_len
        # Drafters share the numbers: where they agree, their blocks are equal.
        uniform = stream(self.seed, "record", request_id(text)).random((count, gamma, 3), dtype=np.float32)
        uniform_NG3 = torch.from_numpy(uniform).to(drafter.device)
        parts = []
        for anchors in torch.split(torch.arange(count, device=drafter.device), self.anchors_at_once):
            ahead = look_ahead(ids[text.prompt_len :], seen.p_TV, p_TW, drafter, anchors)
            places = text.prompt_len + anchors
            backbone = teacher_forced(drafter, places, ids, context)
            step = BlockStep(drafter, backbone, self.temperature, self.top_p)
            blocks = draft_blocks(step, ids[places], ahead, drafter.draft_ids, uniform_NG3[anchors])
            parts.append(_to_numpy(step, blocks))
        return _concatenate(parts)


def request_id(text: Text) -> str:
    """Name of a text in a trace: ``<prompt id>#<sample>``."""
    return f"{text.prompt_id}#{text.sample}"


def look_ahead(
    output_T: Tensor, p_TV: Tensor, p_TW: Tensor, drafter: Drafter, anchors_N: Tensor
) -> TextAhead:
    """What the text holds after output tokens ``anchors_N``.

    Args:
        output_T: the text's output tokens.
        p_TV: row t is the distribution that output token t + 1 was drawn from.
        p_TW: the same at the tokens of the draft vocabulary.
        drafter: says which tokens it knows, and gamma.
        anchors_N: indices into ``output_T``.
    """
    place_NG = anchors_N[:, None] + torch.arange(drafter.config.gamma, device=anchors_N.device)
    inside = place_NG < len(output_T) - 1
    row = place_NG.where(inside, 0)
    token = output_T[(row + 1).clamp_max(len(output_T) - 1)]
    index = torch.where(inside, drafter.to_draft(token), PAST_END)
    p_of_text = p_TV[row, token] if len(p_TV) else torch.zeros_like(row, dtype=p_TV.dtype)
    return TextAhead(index, p_of_text, anchors_N, p_TW)


def _to_numpy(step: BlockStep, blocks: Blocks) -> DrafterRecord:
    coupled, free = (
        None if logits is None else logits.half().cpu().numpy()
        for logits in (step.confidence_logits(copy) for copy in (0, 1))
    )
    # Rounding may carry a sum of minima a hair above 1.
    rate = blocks.accept_rate_NG.clamp(0, 1).half().cpu().numpy()
    return DrafterRecord(blocks.accepted_N.to(torch.uint8).cpu().numpy(), coupled, free, rate)


def _concatenate(parts: list[DrafterRecord]) -> DrafterRecord:
    def joined(arrays: list[NDArray[np.float16] | None]) -> NDArray[np.float16] | None:
        present = [a for a in arrays if a is not None]
        return np.concatenate(present) if present else None

    return DrafterRecord(
        np.concatenate([p.accepted_N for p in parts]),
        joined([p.confidence_logit_NG for p in parts]),
        joined([p.confidence_logit_free_NG for p in parts]),
        np.concatenate([p.accept_rate_NG for p in parts]),
    )
