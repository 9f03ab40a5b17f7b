"""Sample answers from the target: continuous batching, one random stream a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.model.corpus import CorpusInfo, Features, ShardWriter, Text, shards
from dspark_sim.model.layers import rms_normalize
from dspark_sim.model.prompts import TokenPrompt
from dspark_sim.model.sampling import draw
from dspark_sim.model.target import Target, TargetOutput
from dspark_sim.rng import stream

TAP_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class GenerateProgress:
    """Where a generation stands: texts and output tokens finished so far, and how many texts in all."""

    texts: int
    response_tokens: int
    total_texts: int


@dataclass(slots=True)
class _Slot:
    """One running request; ``fed`` tokens are in the cache."""

    prompt: TokenPrompt
    sample: int
    uniforms: np.ndarray
    ids: list[int] = field(default_factory=list)
    fed: int = 0


class Generator:
    """Keeps up to ``slots`` requests running on one target and one preallocated cache."""

    def __init__(self, target: Target, info: CorpusInfo, *, slots: int, max_prompt_tokens: int) -> None:
        self.target = target
        self.info = info
        self.capacity = max_prompt_tokens + info.max_new_tokens
        self.cache = target.new_cache(slots, self.capacity)
        self.running: list[_Slot | None] = [None] * slots
        device, d = target.device, target.config.hidden_size
        if info.taps is not None:
            # Features of running texts, kept by slot and position until the text ends.
            self.taps = torch.zeros(
                slots, self.capacity, len(info.taps), d, dtype=torch.float16, device=device
            )
            self.hidden = torch.zeros(slots, self.capacity, d, dtype=torch.float16, device=device)
            self.lse = torch.full((slots, self.capacity), float("nan"), device=device)

    def run(self, requests: Iterable[tuple[TokenPrompt, int]]) -> Iterator[Text]:
        """Yield each request's text as it ends; ``requests`` are (prompt, sample number)."""
        waiting = iter(requests)
        while True:
            self._admit(waiting)
            live = [s for s, slot in enumerate(self.running) if slot is not None]
            if not live:
                return
            yield from self._finish(live)
            live = [s for s, slot in enumerate(self.running) if slot is not None]
            if live:
                self._decode(live)

    def _admit(self, waiting: Iterator[tuple[TokenPrompt, int]]) -> None:
        """Fill free slots and prefill the newcomers in one ragged pass."""
        new: list[int] = []
        for s, slot in enumerate(self.running):
            if slot is None and (request := next(waiting, None)) is not None:
                prompt, sample = request
                uniforms = stream(self.info.seed, "text", prompt.prompt_id, sample).random(
                    self.info.max_new_tokens
                )
                self.running[s] = _Slot(prompt, sample, uniforms, list(prompt.ids))
                new.append(s)
        if new:
            self._step(new)

    def _decode(self, live: Sequence[int]) -> None:
        self._step(live)

    def _step(self, which: Sequence[int]) -> None:
        """Feed every token not fed yet of slots ``which``, and append one drawn token to each."""
        slots = [slot for s in which if (slot := self.running[s]) is not None]
        width = max(len(slot.ids) - slot.fed for slot in slots)
        # All slots as rows while decoding: a slice of the cache is read without copying it.
        rows = list(range(len(self.running))) if width == 1 else list(which)
        place = {s: n for n, s in enumerate(rows)}
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        positions, valid = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for s, slot in zip(which, slots, strict=True):
            new = slot.ids[slot.fed :]
            ids[place[s], : len(new)] = torch.tensor(new)
            positions[place[s], : len(new)] = torch.arange(slot.fed, len(slot.ids))
            valid[place[s], : len(new)] = True
        device = self.target.device
        out = self.target(
            ids.to(device), positions.to(device), self.cache, torch.tensor(rows, device=device),
            taps=self.info.taps, valid_RT=valid.to(device),
        )  # fmt: skip
        picked = torch.tensor([place[s] for s in which], device=device)
        last = torch.tensor([len(slot.ids) - slot.fed - 1 for slot in slots], device=device)
        lse, tokens = self._draw(self.target.logits(out.hidden_RTd[picked, last]), slots)
        if self.info.taps is not None:
            self._keep(which, slots, picked, out, lse)
        for slot, token in zip(slots, tokens.tolist(), strict=True):
            slot.fed = len(slot.ids)
            slot.ids.append(token)

    def _draw(self, logits_RV: Tensor, slots: Sequence[_Slot]) -> tuple[Tensor, Tensor]:
        """Log-normalisers at the temperature [R] (plain ones at temperature 0) and drawn tokens [R]."""
        temperature = self.info.temperature
        if temperature == 0:
            return logits_RV.logsumexp(-1), logits_RV.argmax(-1)
        scaled = logits_RV / temperature
        top = scaled.amax(-1, keepdim=True)
        weights = (scaled - top).exp_()
        uniform = torch.tensor([slot.uniforms[len(slot.ids) - len(slot.prompt.ids)] for slot in slots])
        return weights.sum(-1).log() + top[:, 0], draw(weights, uniform.to(logits_RV.device))

    def _keep(
        self, which: Sequence[int], slots: Sequence[_Slot], picked: Tensor, out: TargetOutput, lse: Tensor
    ) -> None:
        assert out.taps_RTmd is not None
        for n, (s, slot) in enumerate(zip(which, slots, strict=True)):
            start, end = slot.fed, len(slot.ids)
            taps = out.taps_RTmd[picked[n], : end - start]
            taps = rms_normalize(taps, TAP_NORM_EPS) if self.info.normalize_taps else taps
            self.taps[s, start:end] = taps
            self.hidden[s, start:end] = out.hidden_RTd[picked[n], : end - start]
            self.lse[s, start : end - 1] = float("nan")
            self.lse[s, end - 1] = lse[n]

    def _finish(self, live: Sequence[int]) -> Iterator[Text]:
        """Free the slots whose text has ended, and yield the texts."""
        for s in live:
            slot = self.running[s]
            assert slot is not None
            drawn = len(slot.ids) - len(slot.prompt.ids)
            ended = drawn > 0 and slot.ids[-1] in self.target.config.eos_token_ids
            if ended or drawn >= self.info.max_new_tokens:
                self.running[s] = None
                yield self._text(s, slot)

    def _text(self, s: int, slot: _Slot) -> Text:
        features = None
        if self.info.taps is not None:
            kept = (self.taps[s, : slot.fed], self.hidden[s, : slot.fed], self.lse[s, : slot.fed])
            features = Features(*(part.to("cpu", copy=True) for part in kept))
        prompt = slot.prompt
        ids = np.array(slot.ids, dtype=np.int32)
        return Text(prompt.prompt_id, prompt.domain, slot.sample, len(prompt.ids), ids, features)


def generate_responses(
    target: Target,
    prompts: Sequence[TokenPrompt],
    folder: str | os.PathLike[str],
    *,
    temperature: float = 0.7,
    max_new_tokens: int = 192,
    samples: int = 1,
    taps: Sequence[int] | None = None,
    normalize_taps: bool = True,
    seed: int = 0,
    slots: int = 48,
    worker: int = 0,
    workers: int = 1,
    texts_per_shard: int = 24,
    max_response_tokens: int | None = None,
    on_progress: Callable[[GenerateProgress], None] | None = None,
) -> int:
    """Sample ``samples`` answers to every prompt into a corpus folder; resumes what is there.

    Several processes may fill one folder: worker w of n takes every n-th request. The text of
    (seed, prompt, sample) is the same in any batch and worker, up to float rounding.

    Args:
        target: the model that answers.
        prompts: tokenised prompts; begin with a balanced part if it may be stopped early.
        folder: corpus folder (corpus.py), made if missing.
        temperature: 0 is greedy.
        max_new_tokens: output tokens of a text at most, the end token included.
        samples: answers per prompt.
        taps: layers whose outputs are stored; None stores token ids only.
        normalize_taps: store them RMS-normalised (drafters that normalise see no difference).
        seed: names the random streams.
        slots: requests that run at once.
        worker: number of this process, from 0.
        workers: processes that fill the folder.
        texts_per_shard: texts a killed run may lose.
        max_response_tokens: stop taking new requests once this worker has that many.
        on_progress: called after each finished text.

    Returns:
        Output tokens generated by this call.

    Raises:
        InputError: temperature or max_new_tokens out of range, no prompt, or a folder whose texts were
            made with other settings or of other prompts.
    """
    if temperature < 0 or max_new_tokens < 1 or not prompts:
        raise InputError(
            f"generate: temperature {temperature} must be >= 0, max_new_tokens {max_new_tokens} >= 1, "
            f"prompts ({len(prompts)}) not empty"
        )
    info = CorpusInfo(
        target.config.name,
        temperature,
        seed,
        max_new_tokens,
        tuple(taps) if taps is not None else None,
        normalize_taps,
    )
    requests = [(prompt, sample) for sample in range(samples) for prompt in prompts][worker::workers]
    done = _done(folder, info, prompts)
    todo = [(p, s) for p, s in requests if (p.prompt_id, s) not in done]
    writer = ShardWriter(folder, info, worker, texts_per_shard)
    count = tokens = 0

    def feed() -> Iterator[tuple[TokenPrompt, int]]:
        for request in todo:
            if max_response_tokens is not None and tokens >= max_response_tokens:
                return
            yield request

    longest = max(len(prompt.ids) for prompt in prompts)
    engine = Generator(target, info, slots=min(slots, max(len(todo), 1)), max_prompt_tokens=longest)
    for text in engine.run(feed()):
        writer.add(text)
        count, tokens = count + 1, tokens + text.response_len
        if on_progress is not None:
            on_progress(GenerateProgress(count, tokens, len(todo)))
    writer.flush()
    return tokens


def _done(
    folder: str | os.PathLike[str], info: CorpusInfo, prompts: Sequence[TokenPrompt]
) -> set[tuple[str, int]]:
    """(prompt_id, sample) of the texts that ``folder`` holds, all of them made as ``info`` says.

    Raises:
        InputError: a setting differs, or a prompt of that id read otherwise then.
    """
    asked = {prompt.prompt_id: list(prompt.ids) for prompt in prompts}
    found: set[tuple[str, int]] = set()
    for shard in shards(folder):
        _refuse_other_settings(folder, shard.info, info)
        for n, (prompt_id, _, sample) in enumerate(shard.keys):
            text = shard.text(n, features=False)
            if asked.get(prompt_id, []) not in ([], text.ids[: text.prompt_len].tolist()):
                raise InputError(
                    f"{folder}: holds answers to another prompt '{prompt_id}'; use another folder"
                )
            found.add((prompt_id, sample))
    return found


def _refuse_other_settings(folder: str | os.PathLike[str], then: CorpusInfo, now: CorpusInfo) -> None:
    for name in CorpusInfo.__slots__:
        if getattr(then, name) != getattr(now, name):
            raise InputError(
                f"{folder}: holds texts made with {name} {getattr(then, name)}, now {getattr(now, name)}; "
                "go on with its settings, or use another folder"
            )
