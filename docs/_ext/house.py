"""What the site reads off the project: the commands, pages that no index names, notes of the contract.

The page of the commands, docs/reference/cli.md, is written whenever the site is built.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from dspark_sim.cli.app import COMMANDS, load_command

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
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    shown = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    options = [p for p in shown if p.name != "help"]
    usage = " ".join(["dspark-sim", name, *map(_usage, arguments), *(["[OPTIONS]"] if options else [])])
    yield f"```text\n{usage}\n```\n"
    yield f"{_prose(words)}\n"
    if example.strip():
        yield f"```sh\n{' '.join(example.split())}\n```\n"
    if arguments or options:
        yield "| | | default |\n| --- | --- | --- |"
        yield "\n".join(_row(p) for p in [*arguments, *options]) + "\n"


def _usage(parameter: Any) -> str:
    word = parameter.metavar or parameter.name.upper()
    return word if parameter.required else f"[{word.strip('[]')}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names = f"`{_usage(parameter)}`"
    else:
        kind = "" if getattr(parameter, "is_flag", False) else f" {_kind(parameter)}"
        names = " ".join(f"`{word}{kind}`" for word in parameter.opts)
    words = _cell(getattr(parameter, "help", None) or "")
    repeats = " Repeats." if getattr(parameter, "multiple", False) and "repeat" not in words else ""
    return f"| {names} | {words}{repeats} | {_default(parameter)} |"


def _kind(parameter: Any) -> str:
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", str)
    if get_origin(annotation) is Literal:
        return " or ".join(str(choice) for choice in get_args(annotation))
    return {int: "N", float: "X", Path: "PATH"}.get(annotation, "TEXT")


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or value is False or value == [] or callable(value):
        return ""
    return f"`{value}`" if str(value) else ""


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\\[", "[")).replace("|", "\\|").replace("[", "\\[").strip()


def _prose(text: str) -> str:
    """Return paragraphs of help as Markdown: breaks of lines inside a paragraph do not count."""
    paragraphs = re.split(r"\n\s*\n", textwrap.dedent(text.replace("\\[", "[")).strip())
    return "\n\n".join(" ".join(part.split()).replace("[", "\\[").replace("<", "\\<") for part in paragraphs)
