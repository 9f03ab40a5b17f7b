"""The registry of verification policies, and the specs that name them.

A spec is ``NAME`` or ``NAME:key=value,key=value``, or ``./mine.py:rule,key=value`` for a rule in a
file of the user's own. Importing this module imports no rule: the folder is searched when a rule is
first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.policies.base import Between, Policy, PolicyInfo, Reads, Rule
from dspark_sim.schema import DraftKind, Verdict

MAX_LAG = 64
_REQUIRED = inspect.Parameter.empty
_USER_SPEC = re.compile(r"(?P<path>.+?\.py):(?P<rule>[^,:=]*)(?:,(?P<options>.*))?")
_INFO: dict[Rule, PolicyInfo] = {}


def policy(
    name: str,
    *,
    source: str,
    reads: Reads,
    verdict: Verdict | Callable[[int], Verdict] = "not-lossless",
    example: str | None = None,
    draft_kind: DraftKind | None = None,
    default_lag: int = 0,
) -> Callable[[Rule], Rule]:
    """Declare a rule, and return the function itself (callable and testable by its own name).

    Args:
        name: name at the door.
        source: where the rule comes from.
        reads: what decides the sum of the lengths (:data:`~dspark_sim.policies.base.Reads`).
        verdict: verdict at temperature > 0, or a function of the lag; a rule that claims nothing is
            taken for ``not-lossless``.
        example: a valid spec; needed where an option has no default.
        draft_kind: what a step drafts; None: the block of the trace's drafter.
        default_lag: engine steps of lag where the spec gives none.
    """

    def register(rule: Rule) -> Rule:
        _INFO[rule] = PolicyInfo(
            name=name,
            rule=rule,
            source=source,
            reads=reads,
            draft_kind=draft_kind,
            needs_confidence=reads != "none",
            default_lag=default_lag,
            verdict=verdict if callable(verdict) else lambda lag: verdict,
            options=_options(name, rule),
            example=example or name,
        )
        return rule

    return register


def policies() -> list[PolicyInfo]:
    """Return every rule of the folder, by name."""
    return list(_shipped().values())


def parse_policy(spec: str, lag: int | None = None) -> Policy:
    """Return the policy that ``spec`` names, bound to its options.

    Args:
        spec: ``NAME:key=value,...`` or ``PATH.py:RULE,key=value,...``.
        lag: lag of a rule that reads lagged survivals, where the spec itself gives none.

    Raises:
        InputError: an unknown rule or option, a value of the wrong type or out of range, an option
            that is missing or given twice, a user's file that does not load.
    """
    info, words = _find(spec.strip())
    given = _assignments(info, words)
    bound_lag = _lag(info, given.pop("lag", None) if info.reads == "lagged" else None, lag)
    options = {name: _value(info, name, word) for name, word in given.items() if _known(info, name)}
    missing = [name for name, default in info.options.items() if default is _REQUIRED and name not in options]
    if missing:
        raise InputError(f"policy {info.name} needs the option {missing[0]}, as in {info.example}")
    label = _label(info, options, bound_lag)
    return Policy(info, label, _defaults(info) | options, bound_lag)


def _options(name: str, rule: Rule) -> dict[str, Any]:
    parameters = list(inspect.signature(rule).parameters.values())
    others = parameters[1:]
    if not parameters or any(p.kind is not inspect.Parameter.KEYWORD_ONLY or p.name == "lag" for p in others):
        raise InputError(
            f"policy {name}: a rule takes the view, then keyword-only options (after *), none named lag"
        )
    return {p.name: p.default for p in others}


def _defaults(info: PolicyInfo) -> dict[str, Any]:
    return {name: default for name, default in info.options.items() if default is not _REQUIRED}


@cache
def _shipped() -> dict[str, PolicyInfo]:
    folder = importlib.import_module("dspark_sim.policies")
    found = [
        info
        for module in pkgutil.iter_modules(folder.__path__, folder.__name__ + ".")
        for info in _rules_of(importlib.import_module(module.name))
    ]
    return {info.name: info for info in sorted(found, key=lambda info: info.name)}


def _rules_of(module: ModuleType) -> list[PolicyInfo]:
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    return [_INFO[f] for f in functions if f in _INFO and f.__module__ == module.__name__]


def _find(spec: str) -> tuple[PolicyInfo, str]:
    """Return the rule that a spec names, and the text of its options."""
    user = _USER_SPEC.fullmatch(spec)
    if user:
        return _user_rule(user["path"], user["rule"]), user["options"] or ""
    name, _, words = spec.partition(":")
    if name not in _shipped():
        raise InputError(
            f"unknown policy '{name}'{did_you_mean(name, _shipped())}; known: {', '.join(_shipped())}, "
            "or ./FILE.py:RULE"
        )
    return _shipped()[name], words


def _user_rule(path: str, name: str) -> PolicyInfo:
    module = _load(path)
    functions = {key: f for key, f in vars(module).items() if inspect.isfunction(f)}
    by_name = {_INFO[f].name: f for f in functions.values() if f in _INFO} | functions
    rule = by_name.get(name)
    if rule is None:
        raise InputError(
            f"policy file {path} has no rule '{name}'{did_you_mean(name, by_name)}; "
            f"it has: {', '.join(by_name) or 'none'}"
        )
    if rule not in _INFO:
        policy(name, source=path, reads="current")(rule)
    info = _INFO[rule]
    label = f"{Path(path).as_posix()}:{name}"
    return replace(info, name=label, example=label)


def _load(path: str) -> ModuleType:
    if not Path(path).is_file():
        raise InputError(f"policy file {path}: no such file")
    loader = importlib.util.spec_from_file_location("dspark_sim_user_policy", path)
    assert loader is not None, "a .py path has a loader"
    assert loader.loader is not None, "a .py path has a loader"
    module = importlib.util.module_from_spec(loader)
    try:
        loader.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"policy file {path} does not load: {type(error).__name__}: {error}") from error
    return module


def _assignments(info: PolicyInfo, words: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words.split(",") if words.strip() else []:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            raise InputError(f"policy {info.name}: '{word}' is not key=value, as in {info.example}")
        if key in found:
            raise InputError(f"policy {info.name}: option {key} is given twice")
        found[key] = value
    return found


def _known(info: PolicyInfo, name: str) -> bool:
    if name in info.options:
        return True
    known = [*info.options, *(["lag"] if info.reads == "lagged" else [])]
    raise InputError(
        f"policy {info.name} has no option '{name}'{did_you_mean(name, known)}; "
        f"it takes: {', '.join(known) or 'none'}"
    )


def _lag(info: PolicyInfo, word: str | None, fallback: int | None) -> int:
    if info.reads != "lagged":
        return info.default_lag
    if word is None and fallback is None:
        return info.default_lag
    lag = _number(info, "lag", word, int) if word is not None else fallback
    return int(_within(info, "lag", lag, Between(0, MAX_LAG)))


def _value(info: PolicyInfo, name: str, word: str) -> Any:
    """Return the value of an option, as its annotation in the rule's signature wants it."""
    hint = _hints(info).get(name, type(info.options[name]))
    bounds = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Between)]
    kind = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if get_origin(kind) is Literal:
        return _choice(info, name, word, get_args(kind))
    if kind is bool:
        return _choice(info, name, word, ("false", "true")) == "true"
    if kind in (int, float):
        value = _number(info, name, word, kind)
        return _within(info, name, value, bounds[0]) if bounds else value
    return word


def _hints(info: PolicyInfo) -> Mapping[str, Any]:
    try:
        return get_type_hints(info.rule, include_extras=True)
    except NameError as error:
        raise InputError(f"policy {info.name}: an annotation does not resolve: {error}") from error


def _choice(info: PolicyInfo, name: str, word: str, choices: tuple[str, ...]) -> str:
    if word not in choices:
        raise InputError(
            f"policy {info.name}: option {name} is '{word}'{did_you_mean(word, choices)}; "
            f"it must be one of: {', '.join(choices)}"
        )
    return word


def _number(info: PolicyInfo, name: str, word: str, kind: type[int] | type[float]) -> float:
    try:
        value = kind(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        what = "a whole number" if kind is int else "a finite number"
        raise InputError(f"policy {info.name}: option {name} is '{word}'; it must be {what}")
    return value


def _within(info: PolicyInfo, name: str, value: Any, bounds: Between) -> Any:
    if not bounds.low <= value <= bounds.high:
        raise InputError(
            f"policy {info.name}: option {name} is {value}; it must be {bounds.low:g} to {bounds.high:g}"
        )
    return value


def _label(info: PolicyInfo, options: Mapping[str, Any], lag: int) -> str:
    shown = {key: options[key] for key in info.options if key in options}
    words = [f"{key}={_text(value)}" for key, value in shown.items() if value != info.options[key]]
    if lag != info.default_lag:
        words.append(f"lag={lag}")
    separator = "," if info.name.partition(":")[2] else ":"
    return separator.join([info.name, ",".join(words)]) if words else info.name


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)
