"""The registry of verification policies, and the specs that name them.

A spec is ``NAME`` or ``NAME:key=value,key=value``, or ``./mine.py:rule,key=value`` for a rule in a
file of the user's own. Importing this module imports no rule: the folder is searched when a rule is
first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Le

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.policies.base import Basis, Policy, PolicyInfo, Reads, Rule
from dspark_sim.schema import DraftKind, Verdict
from dspark_sim.specs import bind, choose, options

_USER_SPEC = re.compile(r"(?P<path>.+?\.py):(?P<rule>[^,:=]*)(?:,(?P<options>.*))?")
_Lag = Annotated[int, Ge(0), Le(64)]
_Rule = TypeVar("_Rule", bound=Rule)
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
    basis: Basis = "own",
) -> Callable[[_Rule], _Rule]:
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
        basis: what the rule was checked against.
    """

    def register(rule: _Rule) -> _Rule:
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
            basis=basis,
            stateful=len(_positional(rule)) > 1,
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
    name, info, words, prefix = _find(spec.strip())
    lagged = info.reads == "lagged"
    if lagged and lag is not None and not re.search(r"(^|,)\s*lag\s*=", words):
        words = f"{words},lag={lag}".lstrip(",")
    extra = {"lag": (_Lag, info.default_lag)} if lagged else {}
    bound = bind("policy", f"{name}:{words}" if words else name, info.rule, extra=extra)
    bound_lag = bound.values.pop("lag", info.default_lag)
    defaults = {key: default for key, default in info.options.items() if key not in bound.values}
    label = prefix + bound.label.replace(":", ",", 1) if prefix else bound.label
    return Policy(info, label, defaults | bound.values, bound_lag)


def _options(name: str, rule: Rule) -> dict[str, Any]:
    """Return option -> default, checked: view, perhaps a state, then keyword-only options, none named lag."""
    found = options(rule)
    places = _positional(rule)
    others = len(inspect.signature(rule).parameters) - len(found) - len(places)
    if others or places[1:] not in ([], ["state"]) or not places or "lag" in found:
        raise InputError(
            f"policy {name}: a rule takes the view, its 'state' if it has one, then keyword-only options "
            "(after *), none named lag"
        )
    return found


def _positional(rule: Rule) -> list[str]:
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, p in inspect.signature(rule).parameters.items() if p.kind in by_place]


def _find(spec: str) -> tuple[str, PolicyInfo, str, str]:
    """Return the name of the rule, the rule, the text of its options, and its file's part of the label."""
    user = _USER_SPEC.fullmatch(spec)
    if user:
        prefix = f"{Path(user['path']).as_posix()}:"
        return user["rule"], _user_rule(user["path"], user["rule"]), user["options"] or "", prefix
    name, _, words = spec.partition(":")
    if name.endswith(".py"):
        found = ", ".join(_rules_in(_load(name))) or "none"
        raise InputError(f"policy {spec}: name a rule of the file, {name}:RULE; it has: {found}")
    rule = choose("policy", name, {key: info.rule for key, info in _shipped().items()})
    return name, _INFO[rule], words.strip(), ""


@cache
def _shipped() -> dict[str, PolicyInfo]:
    folder = importlib.import_module("dspark_sim.policies")
    modules = pkgutil.iter_modules(folder.__path__, folder.__name__ + ".")
    found = [info for module in modules for info in _rules_of(importlib.import_module(module.name))]
    return {info.name: info for info in sorted(found, key=lambda info: info.name)}


def _rules_of(module: ModuleType) -> list[PolicyInfo]:
    return [_INFO[f] for f in vars(module).values() if inspect.isfunction(f) and f in _INFO]


def _user_rule(path: str, name: str) -> PolicyInfo:
    module = _load(path)
    functions = {key: f for key, f in vars(module).items() if inspect.isfunction(f)}
    by_name = {_INFO[f].name: f for f in functions.values() if f in _INFO} | functions
    rule = by_name.get(name)
    if rule is None:
        rules = _rules_in(module)
        raise InputError(
            f"policy file {path} has no rule '{name}'{did_you_mean(name, by_name)}; "
            f"it has: {', '.join(rules) or 'none'}"
        )
    if rule not in _INFO:
        policy(name, source=path, reads="current")(rule)
    return _INFO[rule]


def _rules_in(module: ModuleType) -> list[str]:
    """Return the names of the rules that a user's file defines itself; what it imports is not listed."""
    own = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__}
    names = [_INFO[f].name if f in _INFO else name for name, f in own.items() if f in _INFO or _fits(name, f)]
    return list(dict.fromkeys(names))


def _fits(name: str, function: Rule) -> bool:
    """Return whether a plain function has the form of a rule."""
    try:
        _options(name, function)
    except InputError:
        return False
    return not name.startswith("_")


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
