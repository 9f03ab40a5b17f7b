"""What the site reads off the project: the commands, pages that no index names, notes of the contract.

The page of the commands, docs/reference/cli.md, is written whenever the site is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dspark_sim.cli.app import COMMANDS, load_command
from dspark_sim.cli.help import default_of, names, paragraphs, parameters, plain, usage_words

PAGE = Path(__file__).parent.parent / "reference" / "cli.md"
_ENTRY = re.compile(r"[a-z]+(?:[-/][a-z]+)*")  # a line of the index that names a page
INTRODUCTION = """\
# Commands

`dspark-sim COMMAND --help` prints the same. Exit codes, colours, progress, completion:
[command line](../command-line.md). Every example runs; a test runs it.
"""


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", lambda _: write())
    app.connect("source-read", _add_unlisted)
    app.connect("autodoc-process-docstring", _keep_lines)
    return {"parallel_read_safe": True}


def _add_unlisted(app: Any, page: str, source: list[str]) -> None:
    """Make the index name the pages that the folder holds: no page is lost, none is missed."""
    if page != "index":
        return
    folder = PAGE.parent.parent
    there = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.md")}
    lines = source[0].split("\n")
    source[0] = "\n".join(line for line in lines if not _ENTRY.fullmatch(line) or line in there)
    found = sorted(path.stem for path in folder.glob("*.md"))
    listed = {"index", *re.findall(r"^\S+$", source[0], re.MULTILINE)}
    unlisted = [name for name in found if name not in listed]
    if unlisted:
        source[0] += "\n```{toctree}\n:caption: More\n:maxdepth: 1\n\n" + "\n".join(unlisted) + "\n```\n"


def _keep_lines(*told: Any) -> None:
    """Show the field lists of the policy contract as they are written, line by line."""
    _, what, name, _, _, lines = told
    if what == "class" and name.startswith("dspark_sim.policies.base."):
        first, *rest = lines
        lines[:] = [first, "", "::", "", *(f"    {line}" for line in rest)]


def write() -> None:
    """Write the page, if it changed."""
    text = page()
    if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """Return the reference of all commands as Markdown."""
    return "\n".join([INTRODUCTION, *(part for name in COMMANDS for part in sections(name))])


def sections(name: str) -> Iterator[str]:
    """Yield the section of a command, and of each command of a group."""
    command = load_command(name, COMMANDS[name])
    inner = getattr(command, "commands", {})
    yield f"## {name}\n"
    if not inner:
        yield from _body(name, command)
        return
    yield f"{_prose(command.help or '')}\n"
    for word, each in inner.items():
        yield f"### {name} {word}\n"
        yield from _body(f"{name} {word}", each)


def _body(name: str, command: Any) -> Iterator[str]:
    words, _, example = (command.help or "").partition("Example:")
    shown = [*parameters(command, "argument"), *parameters(command, "option")]
    shown = [p for p in shown if p.name != "help"]
    yield f"```text\ndspark-sim {name} {' '.join(usage_words(command))}\n```\n"
    yield f"{_prose(words)}\n"
    if example.strip():
        yield f"```sh\n{' '.join(example.split())}\n```\n"
    if shown:
        yield "| | | default |\n| --- | --- | --- |"
        yield "\n".join(map(_row, shown)) + "\n"


def _row(parameter: Any) -> str:
    words = _cell(getattr(parameter, "help", None) or "")
    repeats = " Repeats." if getattr(parameter, "multiple", False) and "repeat" not in words else ""
    default = default_of(parameter)
    last = "required" if parameter.required else f"`{default}`" if default else ""
    name = names(parameter).replace("|", " or ")
    return f"| `{name}` | {words}{repeats} | {last} |"


def _cell(text: str) -> str:
    return _marks(plain(text)).replace("|", "\\|")


def _prose(text: str) -> str:
    """Return paragraphs of help as Markdown: breaks of lines inside a paragraph do not count."""
    return "\n\n".join(_marks(paragraph).replace("<", "\\<") for paragraph in paragraphs(text))


def _marks(text: str) -> str:
    return text.replace("[", "\\[")
