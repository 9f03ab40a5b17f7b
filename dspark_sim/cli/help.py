"""What ``--help`` prints: plain lines, two columns, readable from 80 columns on.

The site's page of the commands (docs/_ext) reads names, kinds and defaults by the same functions.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from rich.text import Text

#: Column [characters] at which the texts of options begin; a longer name has a line of its own.
INDENT = 25
#: Lines are not longer than a table, however wide the terminal [characters].
WIDEST = 100

_KINDS = {int: "N", float: "X", Path: "PATH"}
_TIE = "\x00"
_LIMITS = (("min", "at least"), ("max", "at most"))


def use_for(command: Any) -> None:
    """Make a command, and each command of a group, print its help by this module."""
    command.format_help = lambda ctx, formatter: print_help(command, ctx)
    for inner in getattr(command, "commands", {}).values():
        use_for(inner)


def print_help(command: Any, ctx: Any, sections: dict[str, str] | None = None) -> None:
    """Print usage, words, example, commands, arguments and options of a command on stdout.

    Args:
        command: a command or a group of typer.
        ctx: its context.
        sections: of a group, the heading above a command, by the command's name.
    """
    from rich.console import Console

    console = Console(highlight=False)
    width = min(console.width, WIDEST)
    for line in _page(command, ctx, sections or {}, width):
        console.print(line, soft_wrap=True)


def _page(command: Any, ctx: Any, sections: dict[str, str], width: int) -> Iterator[Text]:
    words, _, example = (command.help or "").partition("Example:")
    arguments, options = parameters(command, "argument"), parameters(command, "option")
    yield from _usage_lines(command, ctx.command_path, width)
    for paragraph in paragraphs(words):
        yield _plain()
        yield from map(_plain, wrapped(paragraph, width))
    if example.strip():
        yield from _heading("Example")
        yield from map(_plain, example_lines(" ".join(example.split()), width))
    yield from _commands(command, ctx, sections, width)
    for heading, group in [("Arguments", arguments), *_by_heading(options)]:
        if group:
            yield from _heading(heading)
            yield from _rows([(names(p), words_of(p)) for p in group], width)


def _usage_lines(command: Any, path: str, width: int) -> Iterator[Text]:
    more = ["COMMAND ..."] if hasattr(command, "commands") else []
    start = f"Usage: {path} "
    lines = textwrap.wrap(
        " ".join([*usage_words(command), *more]), width - len(start), break_on_hyphens=False
    )
    yield _plain(start + (lines[0] if lines else ""))
    yield from (_plain(" " * len(start) + line) for line in lines[1:])


def _commands(command: Any, ctx: Any, sections: dict[str, str], width: int) -> Iterator[Text]:
    if not hasattr(command, "commands"):
        return
    words = command.list_commands(ctx)
    found = {word: command.get_command(ctx, word) for word in words}
    indent = max(map(len, words)) + 4
    for word in words:
        if word in sections or word == words[0]:
            yield from _heading(sections.get(word, "Commands"))
        first = next(iter(paragraphs(found[word].help or "")), "")
        yield from _rows([(word, first)], width, indent)


def _by_heading(options: list[Any]) -> list[tuple[str, list[Any]]]:
    """Return the options under their headings, those without one first; one alone needs no heading."""
    asked = [getattr(option, "rich_help_panel", None) or "Options" for option in options]
    headings: dict[str, list[Any]] = {"Options": []}
    for option, heading in zip(options, asked, strict=True):
        headings.setdefault(heading if asked.count(heading) > 1 else "Options", []).append(option)
    return list(headings.items())


def _rows(rows: list[tuple[str, str]], width: int, indent: int = INDENT) -> Iterator[Text]:
    for name, words in rows:
        lines = wrapped(words, width - indent) or [""]
        if len(name) + 4 > indent:
            yield _plain(f"  {name}", name)
        else:
            yield _plain(f"  {name}".ljust(indent) + lines.pop(0), name)
        yield from (_plain(" " * indent + line) for line in lines)


def _heading(words: str) -> Iterator[Text]:
    yield _plain()
    yield _plain(f"{words}:", f"{words}:", "bold")


def _plain(line: str = "", marked: str = "", style: str = "bold cyan") -> Text:
    from rich.text import Text

    text = Text(line.rstrip())
    if marked:
        start = line.index(marked)
        text.stylize(style, start, start + len(marked))
    return text


def parameters(command: Any, kind: str) -> list[Any]:
    """Return the parameters of a command that are shown; ``kind``: argument or option."""
    return [p for p in command.params if p.param_type_name == kind and not getattr(p, "hidden", False)]


def usage_words(command: Any) -> list[str]:
    """Return what follows a command's name: what it cannot do without, then ``[OPTIONS]``."""
    options = [p for p in parameters(command, "option") if p.name != "help"]
    needed = [f"{max(p.opts, key=len)} {kind_of(p)}" for p in options if p.required]
    arguments = [argument_word(p) for p in parameters(command, "argument")]
    return [*arguments, *needed, *(["[OPTIONS]"] if len(options) > len(needed) else [])]


def argument_word(parameter: Any) -> str:
    """Return ``NAME``, ``NAME...`` where several may be given, in brackets where none need be."""
    word = re.sub(r"[^\w/-]", "", str(parameter.metavar or parameter.name.upper()))
    word += "..." if parameter.nargs != 1 else ""
    return word if parameter.required else f"[{word}]"


def names(parameter: Any) -> str:
    """Return ``--name KIND``, with short and opposite forms; of an argument its word."""
    if parameter.param_type_name == "argument":
        return argument_word(parameter)
    words = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return words if getattr(parameter, "is_flag", False) else f"{words} {kind_of(parameter)}"


def kind_of(parameter: Any) -> str:
    """Return what an option takes: its own word, its choices, N, X, PATH, or TEXT."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", str)
    if parameter.metavar:
        return str(parameter.metavar)
    if get_origin(annotation) is Literal:
        return "|".join(str(choice) for choice in get_args(annotation))
    return _KINDS.get(annotation, "TEXT")


def words_of(parameter: Any) -> str:
    """Return the help of a parameter, its limits and its default."""
    words = plain(getattr(parameter, "help", None) or "")
    limits = [
        f"{said} {getattr(parameter, name)}"
        for name, said in _LIMITS
        if getattr(parameter, name, None) is not None
    ]
    default = default_of(parameter)
    facts = [
        *(["required"] if parameter.required else []),
        *limits,
        *([f"default {default}"] * bool(default)),
    ]
    return f"{words} [{', '.join(facts)}]" if facts else words


def default_of(parameter: Any) -> str:
    """Return the default as one types it, empty where there is none to type."""
    value = parameter.default
    if value is None or value is False or value == [] or callable(value):
        return ""
    if getattr(parameter, "is_flag", False):
        return ""
    return str(value)


def plain(text: str) -> str:
    """Return a help text in one line, without the marks that keep rich from reading its brackets."""
    return " ".join(text.replace("\\[", "[").split())


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring, each in one line."""
    parts = re.split(r"\n\s*\n", textwrap.dedent(text).strip())
    return [line for line in map(plain, parts) if line]


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text; names with hyphens and paths stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def example_lines(example: str, width: int) -> list[str]:
    """Return the lines of an example, indented, joined by backslashes: they run as they stand."""
    whole = re.sub(r"(--?[a-z][\w-]*) (?!-)", rf"\1{_TIE}", example)  # an option and its value: one line
    lines = [line.replace(_TIE, " ") for line in wrapped(whole, width - 8)]
    return [
        ("  " if n == 0 else "      ") + line + (" \\" if n < len(lines) - 1 else "")
        for n, line in enumerate(lines)
    ]
