"""What the tests ask of the toy pair (``model.tiny``): prompts, texts, and laws written out."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import torch

from dspark_sim.model.corpus import CorpusInfo, Text
from dspark_sim.model.generate import Generator
from dspark_sim.model.prompts import TokenPrompt
from dspark_sim.model.sampling import probabilities
from dspark_sim.model.target import Target


def tiny_prompts(count: int, vocab: int, seed: int = 0) -> list[TokenPrompt]:
    """Random prompts of 2 to 5 tokens."""
    random = np.random.default_rng(seed)
    ids = [random.integers(vocab, size=random.integers(2, 6)) for _ in range(count)]
    return [TokenPrompt(f"p{n}", "toy", tuple(map(int, row))) for n, row in enumerate(ids)]


def end_on(target: Target, token: int) -> Target:
    """Let ``token`` end texts."""
    target.config = replace(target.config, eos_token_ids=(token,))
    return target


def tiny_texts(
    target: Target, prompts: list[TokenPrompt], samples: int, max_new: int, temperature: float, seed: int = 5
) -> list[Text]:
    """Texts that the target wrote alone, sample by sample within each prompt."""
    info = CorpusInfo("tiny", temperature, seed, max_new)
    engine = Generator(target, info, slots=64, max_prompt_tokens=max(len(p.ids) for p in prompts))
    texts = engine.run([(p, s) for p in prompts for s in range(samples)])
    return sorted(texts, key=lambda text: (int(text.prompt_id[1:]), text.sample))


def exact_law(
    target: Target, prompt: TokenPrompt, length: int, temperature: float, top_p: float = 1.0
) -> np.ndarray:
    """Probability of each text of ``length`` tokens after ``prompt``, flat in mixed radix."""
    texts = torch.tensor(list(product(range(target.config.vocab_size), repeat=length)))
    ids = torch.cat([torch.tensor(prompt.ids).expand(len(texts), -1), texts], 1)
    cache = target.new_cache(len(ids), ids.shape[1])
    out = target(ids, torch.arange(ids.shape[1]).expand_as(ids), cache, torch.arange(len(ids)))
    logits = target.logits(out.hidden_RTd[:, len(prompt.ids) - 1 : -1])
    p = probabilities(logits, temperature, top_p).double()
    return p.gather(-1, texts[..., None])[..., 0].prod(1).numpy()
