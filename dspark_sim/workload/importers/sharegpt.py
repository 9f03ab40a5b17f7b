"""ShareGPT-like conversations: texts without times, of which only lengths are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt

from dspark_sim.errors import DataError
from dspark_sim.workload.importers.common import requests
from dspark_sim.workload.importers.documents import documents
from dspark_sim.workload.importers.registry import importer
from dspark_sim.workload.workloads import Workload

Measure = Callable[[str], int]
_ASSISTANT = ("gpt", "chatgpt", "bing", "bard", "assistant", "model")


@importer(
    "sharegpt",
    gives="workload",
    file="JSON with conversations [{from, value}] or messages [{role, content}]",
)
def sharegpt(
    path: Path, *, turns: Literal["first", "all"] = "first", tokens_per_word: Annotated[float, Gt(0)] = 4 / 3
) -> Workload:
    """Read conversations; lengths are words (split at white space) times ``tokens_per_word``.

    4/3 is the rule of thumb for English (100 tokens are about 75 words); code and other languages
    have more. :func:`conversations` takes a tokenizer instead.

    Args:
        path: JSON or JSON Lines.
        turns: ``first``: the first answer of each conversation; ``all``: every answer is a request
            whose prompt is everything before it.
        tokens_per_word: tokens counted for a word.

    Raises:
        DataError: a document is no conversation, or none has an answer.
    """
    note = f"lengths are words times {tokens_per_word:.4g} tokens, not a tokenizer's count"
    return conversations(path, lambda text: round(len(text.split()) * tokens_per_word), turns, note)


def conversations(
    path: Path,
    measure: Measure,
    turns: Literal["first", "all"] = "first",
    note: str = "lengths by a tokenizer",
) -> Workload:
    """Read conversations with lengths by ``measure``, a function of a text such as
    ``lambda text: len(tokenizer.encode(text))``.

    Raises:
        DataError: a document is no conversation, or none has an answer.
    """
    pairs = [
        pair
        for place, document in documents(path)
        for pair in _answers(_messages(path, place, document), measure, turns)
    ]
    if not pairs:
        raise DataError(path, "", "no conversation has a question and an answer")
    prompt, output = np.array(pairs, dtype=np.int64).T
    notes = [note, f"{turns} answer{'s' if turns == 'all' else ''} of each conversation"]
    return requests(path, "sharegpt", prompt_tokens=prompt, output_tokens=output, notes=notes)


def _answers(messages: list[tuple[str, str]], measure: Measure, turns: str) -> list[tuple[int, int]]:
    """Return (prompt, output) lengths of a conversation's answers."""
    pairs: list[tuple[int, int]] = []
    context = 0
    for speaker, text in messages:
        tokens = measure(text)
        if speaker in _ASSISTANT and context:
            pairs.append((context, tokens))
        context += tokens
    return pairs[:1] if turns == "first" else pairs


def _messages(path: Path, place: str, document: Any) -> list[tuple[str, str]]:
    if isinstance(document, dict):
        for key, names in {"conversations": ("from", "value"), "messages": ("role", "content")}.items():
            if key in document:
                items = enumerate(document[key] or [])
                return [_message(path, f"{place}, {key}[{i}]", item, names) for i, item in items]
    raise DataError(path, place, "no conversation: must have the key 'conversations' or 'messages'")


def _message(path: Path, place: str, message: Any, names: tuple[str, str]) -> tuple[str, str]:
    speaker, text = map(message.get, names) if isinstance(message, dict) else (None, None)
    if not isinstance(speaker, str) or not isinstance(text, str):
        raise DataError(path, place, f"must be an object with the texts '{names[0]}' and '{names[1]}'")
    return speaker, text
