"""Code blocks of pages and examples of help texts, as tests run them.

The words after a block's language say how: nothing, in every test run, simulations made small; ``slow``, as
it stands, with the slow tests; ``shortened``, with the slow tests, made small (hours as it stands);
``illustrative (reason)``, not at all; ``exit=N``; ``NAME.py``, ``.yaml``, ``.csv``: a file to write.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.cli.app import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(?P<kind>[a-z]*)[ ]?(?P<info>.*)\n(?P<body>(?:.*\n)*?)^```$", re.MULTILINE)
_LOOP = re.compile(r"^for (?P<name>\w+) in (?P<values>.*); do\n(?P<body>(?:.*\n)*?)done.*$", re.MULTILINE)
#: What shrinks a simulation without changing what it does, by option; not where a command says otherwise.
SMALL = {"--output-tokens": "150", "--effort": "0.1"}
SMALL_OPEN_LOOP = {"--requests": "20"}
#: What shrinks a search, by command, whatever it says itself.
SMALLER = {
    "recommend": ("--max-users", "4", "--seeds", "1", "--policy", "off", "--policy", "static:k=2"),
    "capacity": ("--requests", "20", "--seeds", "1", "--policy", "off", "--policy", "static:k=2"),
}
#: What shrinks work of hours to seconds, by command or script, whatever it says itself.
SHORT = {
    "generate": ("--max-new-tokens", "24"),
    "train": ("--anchors", "96", "--draft-vocab", "100"),
    "refit": ("--anchors", "100", "--all"),
    "record": ("--max-new-tokens", "8", "--requests", "6"),
    "evaluate": ("--per-domain", "1", "--resamples", "100"),
    "replay-check": ("--permutations", "99"),
    "study": ("--per-domain", "2", "--anchors", "96", "--draft-vocab", "100"),
    "profile": ("--rounds", "3", "--tokens", "1,4", "--requests", "1,2", "--contexts", "32,64"),
    "tools/beat_the_paper.py": (
        *("--replicates", "2", "--loads", "4", "--tokens-per-user", "20"),
        *("--traces", "chat", "--profiles", "h200-qwen3-8b"),
    ),
    "tools/rule_ceilings.py": ("--loads", "4"),
    "tools/short_blocks.py": ("--requests", "1", "--lengths", "1", "7"),
    "tools/live_cost.py": ("--requests", "1", "--steps", "4"),
    "benchmarks": ("--rounds", "1", "--share", "0.01", "--out", "figures.json"),
}
#: Steps of setting up that a test does not repeat.
_SET_UP = ("python3 -m venv", ".venv/bin/pip", ". .venv/bin/activate", "pip ", "make ", "git ", "cd ")


@dataclass(frozen=True)
class Block:
    """A fenced block: ``kind`` is its language, words of its info string, body, first line in its page."""

    kind: str
    info: tuple[str, ...]
    body: str
    line: int

    @property
    def illustrative(self) -> bool:
        """Whether it only shows what one would type."""
        return "illustrative" in self.info

    @property
    def reason(self) -> str:
        """Why it only shows what one would type: what stands in parentheses."""
        found = re.search(r"illustrative \((.+)\)$", " ".join(self.info))
        return found[1] if found else ""

    @property
    def slow(self) -> bool:
        """Whether it runs with the slow tests only, as it stands."""
        return "slow" in self.info

    @property
    def shortened(self) -> bool:
        """Whether it runs with the slow tests only, and made short."""
        return "shortened" in self.info

    @property
    def program(self) -> bool:
        """Whether it is something to run, or a file that what is run needs."""
        return self.kind in ("sh", "python") or self.file is not None

    @property
    def code(self) -> int:
        """The exit code that its commands end with."""
        return next((int(word[5:]) for word in self.info if word.startswith("exit=")), 0)

    @property
    def file(self) -> str | None:
        """Name under which a block is written rather than run."""
        return next((word for word in self.info if word.endswith((".py", ".yaml", ".csv"))), None)


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(b["kind"], tuple(b["info"].split()), b["body"], text.count("\n", 0, b.start()) + 1)
        for b in _BLOCK.finditer(text)
    ]


def commands(body: str) -> Iterator[list[str]]:
    """Yield the words of every command of a shell block; steps of setting up are left out.

    Loops over words are unrolled, and what is sent to the background is waited for.
    """
    for line in _unrolled(body).replace("\\\n", " ").splitlines():
        for part in re.split(r"\s&&\s", line):
            words = shlex.split(part, comments=True)
            if not words or " ".join(words).startswith(_SET_UP):
                continue
            words = [word for word in words if word != "&"]
            assert words[0] in ("dspark-sim", ".venv/bin/dspark-sim", "python"), (
                f"not a command of ours: {part}"
            )
            yield ["python", *words[1:]] if words[0] == "python" else words[1:]


def _unrolled(body: str) -> str:
    def repeated(loop: re.Match[str]) -> str:
        values = loop["values"].split()
        return "".join(re.sub(rf"\$\{{?{loop['name']}\}}?", value, loop["body"]) for value in values)

    return _LOOP.sub(repeated, body)


def matched(words: list[str]) -> list[str]:
    """Return words with patterns of files expanded, as a shell does where any file matches."""
    found = [sorted(map(str, Path().glob(word))) or [word] if "*" in word else [word] for word in words]
    return [word for each in found for word in each]


def shrunk(arguments: list[str]) -> list[str]:
    """Return the arguments, with a short simulation where nothing else is asked for."""
    if arguments[0] not in COMMANDS:
        return arguments  # a script, or a name that a page shows to be wrong
    command: Any = load_command(arguments[0], COMMANDS[arguments[0]])
    if inner := getattr(command, "commands", {}):
        command = inner[arguments[1]]
    known = {word for parameter in command.params for word in parameter.opts}
    small = SMALL_OPEN_LOOP if {"--arrivals", "--workload"} & set(arguments) else SMALL
    asked = [(option, value) for option, value in small.items() if option in known - set(arguments)]
    return [*arguments, *(word for pair in asked for word in pair), *SMALLER.get(arguments[0], ())]


def short(arguments: list[str]) -> list[str]:
    """Return the arguments with work of hours made one of seconds."""
    name = arguments[0] if arguments[0] != "python" else arguments[1 + (arguments[1] == "-m")]
    own = SHORT.get(name)
    return shrunk(arguments) if own is None else [*arguments, *own]


def run_page(
    page: Path,
    call: Callable[..., Any],
    *,
    chosen: Callable[[Block], bool],
    changed: Callable[[list[str]], list[str]] = lambda words: words,
) -> int:
    """Run blocks of a page in the working directory; return how many commands and programs ran.

    Args:
        page: a Markdown file.
        call: runs one command, as the fixture ``command`` does.
        chosen: which blocks are run.
        changed: what is done to a command's arguments first.
    """
    names: dict[str, Any] = {"__name__": "__page__"}
    ran = 0
    for block in blocks(page):
        if block.illustrative or not block.program or not chosen(block):
            continue
        place = f"{page.name}:{block.line}"
        if block.file is not None:
            Path(block.file).write_text(block.body)
            ran += 1
        elif block.kind == "python":
            exec(compile(block.body, place, "exec"), names)
            ran += 1
        else:
            for words in commands(block.body):
                _run(matched(changed(words)), call, block.code, place)
                ran += 1
    return ran


def _run(words: list[str], call: Callable[..., Any], code: int, place: str) -> None:
    if words[0] == "python":
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{place}: {' '.join(words)}\n{done.stderr}"
        return
    answer = call(*words)
    assert answer.code == code, f"{place}: {' '.join(words)}\n{answer.err}"
