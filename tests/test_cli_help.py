"""Every ``--help`` is readable on 80 columns: nothing cut, nothing squeezed, examples to copy."""

from __future__ import annotations

import re
import shlex

import pytest

from dspark_sim.cli.app import COMMANDS, SECTIONS, dispatch, load_command
from dspark_sim.cli.help import INDENT, WIDEST, names, parameters, plain


def pages() -> dict[str, object]:
    """Return every command and each command of a group, by its words."""
    found = {}
    for name, target in COMMANDS.items():
        command = load_command(name, target)
        inner = getattr(command, "commands", {})
        found |= {f"{name} {word}": each for word, each in inner.items()} if inner else {name: command}
    return found


PAGES = pages()


@pytest.fixture
def page_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Print a help page at a width, and return its lines."""

    def call(words: str, columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        assert dispatch([*words.split(), "--help"]) == 0
        return capsys.readouterr().out.rstrip("\n").split("\n")

    return call


@pytest.mark.parametrize("name", ["", "trace", "hw", "policy", *PAGES])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_cut(page_of, name):
    lines = page_of(name, 80)
    assert [line for line in lines if len(line) > 80] == []
    assert "…" not in "\n".join(lines)
    assert max(map(len, page_of(name, 300))) <= WIDEST


@pytest.mark.parametrize("name", PAGES)
def test_texts_of_options_have_a_wide_column_and_are_whole(page_of, name):
    lines = page_of(name, 80)
    for parameter in [*parameters(PAGES[name], "argument"), *parameters(PAGES[name], "option")]:
        start = next(
            n for n, line in enumerate(lines) if re.match(rf"  {re.escape(names(parameter))}( |$)", line)
        )
        rest = lines[start + 1 :]
        more = rest[: next((n for n, line in enumerate(rest) if line[:INDENT].strip()), None)]
        first = lines[start].removeprefix(f"  {names(parameter)}")
        words = plain(" ".join([first, *more]))
        assert words.startswith(plain(parameter.help or "")), names(parameter)
        assert parameter.help, f"{names(parameter)} says nothing"
        assert not more or all(line.startswith(" " * INDENT) or not line for line in more)


@pytest.mark.parametrize("name", PAGES)
def test_an_example_can_be_copied_as_it_is_printed(page_of, name):
    lines = page_of(name, 80)
    start = lines.index("Example:") + 1
    shown = "\n".join(lines[start : lines.index("", start)]).replace("\\\n", " ")
    _, _, written = (PAGES[name].help or "").partition("Example:")
    assert shlex.split(shown) == shlex.split(" ".join(written.split()))
    assert not re.search(r"--[a-z-]+ \\$", shown, re.MULTILINE), "an option and its value share a line"


def test_the_top_page_groups_all_commands(page_of):
    lines = page_of("", 80)
    assert all(f"{heading}:" in lines for heading in SECTIONS.values())
    assert set(SECTIONS) <= set(COMMANDS)
    assert next(iter(SECTIONS)) == next(iter(COMMANDS)), "no command stands above the first heading"
    shown = [line.split()[0] for line in lines if re.match(r"  [a-z]", line)]
    assert shown == list(COMMANDS)


def test_completion_is_offered_once_at_the_top(page_of):
    assert "--install-completion" in "\n".join(page_of("", 80))
    assert "--install-completion" not in "\n".join(page_of("hw", 80))
