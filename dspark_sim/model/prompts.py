"""Prompts: reading the JSON Lines files, and turning them into token ids by the chat template."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark_sim.errors import DataError
from dspark_sim.model.loading import target_folder


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as a file gives it.

    Attributes:
        prompt_id: the file's ``id``; recorded instead of the text.
        domain: math, code, chat, ...
        text: the first user turn.
    """

    prompt_id: str
    domain: str
    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt ready for the target: templated, tokenised, ending where the answer starts."""

    prompt_id: str
    domain: str
    ids: tuple[int, ...]


def read_prompts(path: str | os.PathLike[str]) -> list[Prompt]:
    """Read a JSON Lines file of prompts (keys ``id``, ``domain``, ``turns``), first turns only.

    Raises:
        DataError: missing file, a line that is not JSON, or a key missing; names the line.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(path, "", f"cannot be read ({error.strerror})") from None
    prompts = [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise DataError(path, "", "holds no prompt; one JSON object a line is needed")
    return prompts


def _parse(path: Path, number: int, line: str) -> Prompt:
    try:
        raw = json.loads(line)
        turns = raw["turns"]
        if not (isinstance(turns, list) and turns and isinstance(turns[0], str) and turns[0].strip()):
            raise DataError(
                path, f"line {number}", "'turns' must be a list that starts with a non-empty text"
            )
        return Prompt(str(raw["id"]), str(raw["domain"]), turns[0])
    except json.JSONDecodeError as error:
        raise DataError(path, f"line {number}", f"not JSON: {error.msg}") from None
    except (KeyError, TypeError) as error:
        raise DataError(path, f"line {number}", f"needs the keys id, domain, turns ({error})") from None


class ChatTokenizer:
    """Tokenizer and chat template of a target folder (tokenizer.json, chat_template.jinja)."""

    def __init__(self, name_or_path: str | os.PathLike[str]) -> None:
        """Load from the folder of a target.

        Raises:
            DataError: a file is missing.
        """
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        folder = target_folder(name_or_path)
        if not (folder / "tokenizer.json").is_file():
            raise DataError(folder / "tokenizer.json", "", "no such file")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(_template_source(folder))

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text`` as it stands; nothing is added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, special tokens kept."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def chat_ids(self, text: str) -> list[int]:
        """Token ids of one user turn, up to where the assistant's answer starts."""
        turn = [{"role": "user", "content": text}]
        return self.encode(self._template.render(messages=turn, add_generation_prompt=True))

    def prepare(self, prompts: Iterable[Prompt], max_tokens: int | None = None) -> list[TokenPrompt]:
        """Tokenise ``prompts``, leaving out those of more than ``max_tokens`` tokens."""
        ready = (TokenPrompt(p.prompt_id, p.domain, tuple(self.chat_ids(p.text))) for p in prompts)
        return [p for p in ready if max_tokens is None or len(p.ids) <= max_tokens]


def _template_source(folder: Path) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    if config.is_file():
        template = json.loads(config.read_text(encoding="utf-8")).get("chat_template")
        if isinstance(template, str):
            return template
    raise DataError(
        folder, "chat_template.jinja", "no such file, and tokenizer_config.json has no chat_template"
    )


def interleave(groups: Sequence[Sequence[TokenPrompt]]) -> list[TokenPrompt]:
    """Round-robin over ``groups`` until the longest is used up, so that any beginning is balanced."""
    longest = max((len(group) for group in groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]
