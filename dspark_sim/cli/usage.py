"""What is wrong with a command line, in the house's one line: what, where, and which rule."""

from __future__ import annotations

import re
from typing import Any

import typer

from dspark_sim.errors import did_you_mean


def usage_words(error: typer.TyperException) -> str:
    """Return what a usage error of typer says, in one line.

    Typer's classes of usage errors are not public, so they are told apart by what they carry.
    """
    kind, ctx = type(error).__name__, getattr(error, "ctx", None)
    parameter = getattr(error, "param", None)
    if kind == "NoArgsIsHelpError":
        return ""
    if kind == "MissingParameter" and parameter is not None:
        return f"{_name(parameter)} is missing{_meaning(parameter)}; {_see(ctx)}"
    if kind == "BadParameter" and parameter is not None:
        return f"{_name(parameter)}{_rule(error)}"
    if kind == "NoSuchOption":
        asked = str(getattr(error, "option_name", ""))
        return f"no option {asked}{did_you_mean(asked, _options(ctx))}; {_see(ctx)}"
    return _other(error.format_message(), ctx)


def _other(words: str, ctx: Any) -> str:
    """Return what an error without a class of its own says, by its words."""
    if found := re.search(r"No such command '([^']*)'", words):
        inner = getattr(getattr(ctx, "command", None), "commands", {})
        return f"no command '{found[1]}'{did_you_mean(found[1], inner)}; {_see(ctx)}"
    if found := re.search(r"unexpected extra arguments?\S* \((.*)\)", words):
        return f"'{found[1]}' is one word too many; {_see(ctx)}"
    return words


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name).strip("[]").rstrip(".").upper()


def _meaning(parameter: Any) -> str:
    words = " ".join(str(getattr(parameter, "help", None) or "").replace("\\[", "[").split())
    return f" ({words.rstrip('.')})" if words else ""


def _see(ctx: Any) -> str:
    return f"see {ctx.command_path if ctx is not None else 'dspark-sim'} --help"


def _options(ctx: Any) -> list[str]:
    parameters = getattr(getattr(ctx, "command", None), "params", ())
    return [word for p in parameters if p.param_type_name == "option" for word in p.opts]


def _rule(error: typer.TyperException) -> str:
    """Return `` VALUE: rule`` of a value that cannot be read."""
    from dspark_sim.specs import rule_words

    cause = error.__cause__
    if cause is None or not hasattr(cause, "errors"):
        return f": {error.message}"
    fault = cause.errors()[0]
    return f" {fault['input']}: {rule_words(fault)}"
