"""Specs at the door: ``NAME:key=value,key=value``, bound to the arguments of a function.

The keyword-only arguments of the function *are* the options: their annotations say type and range
(``Annotated[float, Gt(0)]``), their defaults what may be left out. Nothing else declares them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_type_hints

from dspark_sim.errors import InputError, did_you_mean

_REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Bound:
    """A spec that passed: its normalised form, and the arguments to call the function with."""

    label: str
    values: dict[str, Any]


def choose(what: str, name: str, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Return the function called ``name``.

    Raises:
        InputError: there is none; the message names the nearest and lists all.
    """
    if name not in known:
        raise InputError(f"unknown {what} '{name}'{did_you_mean(name, known)}; known: {', '.join(known)}")
    return known[name]


def options(function: Callable[..., Any]) -> dict[str, Any]:
    """Return option -> default of a function; ``inspect.Parameter.empty`` where it must be given."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def bind(
    what: str,
    spec: str,
    function: Callable[..., Any],
    bare: Sequence[str] = (),
    extra: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
) -> Bound:
    """Bind the options of ``spec`` to ``function``.

    Args:
        what: noun for messages, such as ``arrivals``.
        spec: ``NAME`` or ``NAME:word,word``; a word is ``key=value``, or the value of a bare argument.
        function: what the name stands for.
        bare: arguments of the function whose values stand without a key, in order, such as a path.
        extra: options that are not the function's own: name -> (annotation, default); last in labels.

    Raises:
        InputError: an unknown option, a value of the wrong type or out of range, an option that is
            missing or given twice.
    """
    name, _, words = spec.partition(":")
    place = f"{what} '{spec}'"
    own = {**dict.fromkeys(bare, _REQUIRED), **options(function)}
    known = own | {key: default for key, (_, default) in extra.items()}
    given = _assignments(place, words, bare)
    for key in given:
        if key not in known:
            raise InputError(f"{place}: no option '{key}'{did_you_mean(key, known)}; {_takes(name, known)}")
    for key, default in known.items():
        if default is _REQUIRED and key not in given:
            raise InputError(f"{place}: '{key}' is missing; {_takes(name, known)}")
    hints = _hints(place, function, own) | {key: hint for key, (hint, _) in extra.items()}
    values = {key: _value(place, key, given[key], hints[key]) for key in known if key in given}
    shown = [_shown(key, value, bare) for key, value in values.items() if value != known[key]]
    return Bound(f"{name}:{','.join(shown)}" if shown else name, values)


def _hints(place: str, function: Callable[..., Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotation of each option; the type of its default, or text, where it has none."""
    try:
        written = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InputError(f"{place}: an annotation does not resolve: {error}") from None
    guessed = {key: str if default is _REQUIRED else type(default) for key, default in own.items()}
    return guessed | written


def _takes(name: str, known: Mapping[str, Any]) -> str:
    words = [key if default is _REQUIRED else f"{key} ({default})" for key, default in known.items()]
    return f"{name} takes: {', '.join(words) or 'no option'}"


def _assignments(place: str, words: str, bare: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    unnamed = list(bare)
    for word in words.split(",") if words.strip() else []:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals and unnamed and key:
            key, value = unnamed.pop(0), key
        elif not equals or not key or not value:
            raise InputError(f"{place}: '{word.strip()}' is not key=value")
        if key in found:
            raise InputError(f"{place}: '{key}' is given twice")
        found[key] = value
    return found


def _value(place: str, key: str, word: str, hint: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(hint, config={"allow_inf_nan": False})
    try:
        return adapter.validate_strings(word)
    except ValidationError as error:
        raise InputError(f"{place}: {key} = {word}: {rule_words(error.errors()[0])}") from None


_RULES = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "literal_error": "must be {expected}",
}


def rule_words(fault: Mapping[str, Any]) -> str:
    """Return the rule that a value breaks, in words, from one of pydantic's error records."""
    rule = _RULES.get(fault["type"])
    if rule is not None:
        return rule.format(**fault.get("ctx", {}))
    words = str(fault["msg"]).replace("Input should", "must").removeprefix("Value error, ")
    return words.rstrip(".")


def _shown(key: str, value: Any, bare: Sequence[str]) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = f"{value:.12g}" if isinstance(value, float) else text
    return text if key in bare else f"{key}={text}"
