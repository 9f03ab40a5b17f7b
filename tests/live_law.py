"""Texts that live speculative decoding of a tiny pair emits, against the target's exact law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from chi_square import fit
from table_pair import cells
from tiny_pair import exact_law, tiny_prompts

from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.model.live import LiveDecoder, LiveSettings, decode_live
from dspark_sim.model.prompts import TokenPrompt
from dspark_sim.model.tiny import tiny_pair
from dspark_sim.policies.registry import parse_policy

PROMPT = tiny_prompts(1, vocab=6)[0]


def staircase() -> HardwareProfile:
    """A step whose every token costs a tenth of its base, so that budgets vary."""
    found = load_profile("h800.yaml", None)
    table = replace(found.verify, tokens=(1, 2), ms=(1.0, 1.0005), lookup="linear", beyond="last_two")
    return replace(found, verify=table, capture=replace(found.capture, sizes="table"))


def pair_of(head: str, draft_vocab: int | None = 4):
    """A pair of six tokens and gamma 3; ``serial`` is the autoregressive drafter."""
    kind = {"head": "none", "serial": True} if head == "serial" else {"head": head}
    return tiny_pair(2, vocab=6, gamma=3, draft_vocab=draft_vocab, **kind)


def decoded(
    pair, policy: str, profile, sampling: dict, *, requests: list[tuple[TokenPrompt, int]], length: int
):
    """Texts [requests, length] that live decoding under ``policy`` emits, and the verify lengths."""
    settings = LiveSettings(parse_policy(policy), profile, 400, max_new_tokens=length, seed=3, **sampling)
    decoder = LiveDecoder(*pair, settings, max_prompt_tokens=5)
    log = decode_live(decoder, requests, meta={})
    texts = [decoder.texts[f"{prompt.prompt_id}#{sample}"] for prompt, sample in requests]
    return texts, log.verify_len_M


def live_law(
    pair,
    policy: str,
    profile,
    *,
    temperature: float,
    top_p: float = 1.0,
    requests: int = 6000,
    length: int = 4,
) -> tuple[tuple[float, float, int], np.ndarray]:
    """Chi-square of the texts of many samples of one prompt, and the verify lengths."""
    wanted = [(PROMPT, sample) for sample in range(requests)]
    sampling = {"temperature": temperature, "top_p": top_p}
    texts, lengths = decoded(pair, policy, profile, sampling, requests=wanted, length=length)
    law = exact_law(pair[0], PROMPT, length, temperature, top_p)
    return fit(cells(torch.tensor(texts), 6), law), lengths
