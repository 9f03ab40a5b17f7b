"""Code blocks of pages and examples of help texts, as tests run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.cli.app import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(?P<kind>python|sh)[ ]?(?P<info>.*)\n(?P<body>(?:.*\n)*?)^```$", re.MULTILINE)
#: What shrinks a simulation without changing what it does, by option; not where a command says otherwise.
SMALL = {"--output-tokens": "150", "--effort": "0.1"}
SMALL_OPEN_LOOP = {"--requests": "20"}
#: What shrinks a search, by command, whatever it says itself.
SMALLER = {
    "recommend": ("--max-users", "4", "--seeds", "1", "--policy", "off", "--policy", "static:k=2"),
    "capacity": ("--requests", "20", "--seeds", "1", "--policy", "off", "--policy", "static:k=2"),
}
#: Steps of setting up that a test does not repeat.
_SET_UP = ("python3 -m venv", ".venv/bin/pip", "pip ", "make ", "git ", "cd ")


@dataclass(frozen=True)
class Block:
    """A fenced block: ``kind`` sh or python, words of its info string, body, first line in its page."""

    kind: str
    info: tuple[str, ...]
    body: str
    line: int

    @property
    def illustrative(self) -> bool:
        """Whether it only shows what one would type."""
        return "illustrative" in self.info

    @property
    def slow(self) -> bool:
        """Whether it runs with the slow tests only."""
        return "slow" in self.info

    @property
    def code(self) -> int:
        """The exit code that its commands end with."""
        return next((int(word[5:]) for word in self.info if word.startswith("exit=")), 0)

    @property
    def file(self) -> str | None:
        """Name under which a block of Python is written rather than run."""
        return next((word for word in self.info if word.endswith(".py")), None)


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(b["kind"], tuple(b["info"].split()), b["body"], text.count("\n", 0, b.start()) + 1)
        for b in _BLOCK.finditer(text)
    ]


def commands(body: str) -> Iterator[list[str]]:
    """Yield the arguments of every ``dspark-sim`` line of a shell block; steps of setting up are left out."""
    for line in body.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s&&\s", line):
            words = shlex.split(part, comments=True)
            if not words or " ".join(words).startswith(_SET_UP):
                continue
            assert words[0] in ("dspark-sim", ".venv/bin/dspark-sim"), f"not a dspark-sim command: {part}"
            yield words[1:]


def shrunk(arguments: list[str]) -> list[str]:
    """Return the arguments, with a short simulation where nothing else is asked for."""
    if arguments[0] not in COMMANDS:
        return arguments
    command: Any = load_command(arguments[0], COMMANDS[arguments[0]])
    if inner := getattr(command, "commands", {}):
        command = inner[arguments[1]]
    known = {word for parameter in command.params for word in parameter.opts}
    small = SMALL_OPEN_LOOP if {"--arrivals", "--workload"} & set(arguments) else SMALL
    asked = [(option, value) for option, value in small.items() if option in known - set(arguments)]
    return [*arguments, *(word for pair in asked for word in pair), *SMALLER.get(arguments[0], ())]


def run_page(page: Path, call: Callable[..., Any], *, slow: bool) -> int:
    """Run a page's blocks in the working directory; return how many commands and programs ran.

    Args:
        page: a Markdown file.
        call: runs one command, as the fixture ``command`` does.
        slow: run everything, and as it stands; else leave out what is slow, and shrink simulations.
    """
    names: dict[str, Any] = {"__name__": "__page__"}
    ran = 0
    for block in blocks(page):
        if block.illustrative or (block.slow and not slow):
            continue
        if block.kind == "python":
            if block.file is not None:
                Path(block.file).write_text(block.body)
            else:
                exec(compile(block.body, f"{page.name}:{block.line}", "exec"), names)
            ran += 1
            continue
        for arguments in commands(block.body):
            done = call(*(arguments if slow else shrunk(arguments)))
            assert done.code == block.code, f"{page.name}:{block.line}: {' '.join(arguments)}\n{done.err}"
            ran += 1
    return ran
