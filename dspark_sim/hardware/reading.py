"""From YAML to a profile: everything wrong is found at once, each fault one line with its cure."""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from dspark_sim.errors import DataError, did_you_mean
from dspark_sim.hardware.profile import FORMAT, HardwareProfile, Source

Location = tuple[int | str, ...]

#: Words that name a quantity but not its unit, and the keys that would say it.
_UNITLESS = {
    "ms": (
        "cost",
        "time",
        "latency",
        "duration",
        "bubble",
        "constant",
        "overhead",
        "pass",
        "serial",
        "value",
    ),
    "tokens": ("size", "sizes", "batch", "batch_size", "batch_tokens", "token", "context"),
    "requests": ("request", "reqs", "users", "concurrency", "batch", "batch_size", "size", "sizes"),
}
_UNIT_NAMES = {"ms": "milliseconds", "tokens": "tokens", "requests": "running requests"}
_CURES = {
    "missing": "missing; this key is required",
    "dataclass_type": "must be a mapping (key: value lines), got {got}",
    "dict_type": "must be a mapping (key: value lines), got {got}",
    "tuple_type": "must be a list, got {got}",
    "too_short": "must not be empty",
    "string_type": "must be text, got {got}; quote it",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false, got {got}",
    "int_type": "must be a whole number, got {got}",
    "int_from_float": "must be a whole number, got {got}",
    "float_type": "must be a number, got {got}",
    "finite_number": "must be a finite number, got {got}",
    "greater_than_equal": "must be at least {ge}, got {got}",
    "literal_error": "must be {expected}, got {got}",
}


class ProfileError(DataError):
    """A profile breaks its format.

    Attributes:
        problems: one line per fault, each naming file, key path, value, rule and cure.
    """

    def __init__(self, path: object, faults: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(str(DataError(path, where, rule)) for where, rule in faults)
        more = len(faults) - 1
        rest = f" (and {more} more: dspark-sim hw check {path})" if more else ""
        super().__init__(path, faults[0][0], faults[0][1] + rest)


class _StrictLoader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader, which silently keeps the last of two equal keys, minus that."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping; refuse a key that stands twice."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                problem = f"key '{key_node.value}' stands twice; keep one"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key_node.value)
        result: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return result


def read_yaml(path: Path) -> Any:
    """Return the document in ``path``.

    Raises:
        ProfileError: not readable as UTF-8 YAML, with the line.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - derives from the safe loader
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(path, [("", f"cannot be read as UTF-8 text: {error}")]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        rule = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ProfileError(path, [(where, f"not valid YAML: {rule}")]) from None


def parse_profile(document: Any, label: str, overrides: Mapping[str, str] | None = None) -> HardwareProfile:
    """Validate a profile document (what YAML gives) and return it.

    Args:
        document: nested mappings and lists.
        label: how messages name the file.
        overrides: dotted path -> YAML text; see :func:`dspark_sim.hardware.profile.load_profile`.

    Raises:
        ProfileError: any rule of the format is broken; all faults are in ``problems``.
    """
    if not isinstance(document, dict):
        raise ProfileError(
            label, [("", f"must be a mapping that starts with 'format: {FORMAT}', got {_show(document)}")]
        )
    if overrides:
        document = _with_overrides(document, overrides, label)
    try:
        profile = _adapter().validate_python(document)
    except ValidationError as error:
        raise ProfileError(label, [_mark_set(fault, overrides or {}) for fault in _faults(error)]) from None
    if faults := list(_unsourced(profile)) + list(_inconsistent(profile)):
        raise ProfileError(label, faults)
    return profile


def _mark_set(fault: tuple[str, str], overrides: Mapping[str, str]) -> tuple[str, str]:
    """Name ``--set`` where an override brought the fault in."""
    where, rule = fault
    for path in overrides:
        if where.startswith(path):
            return f"--set {where}", rule
        if path.startswith(f"{where}."):
            return f"--set {path}", rule
    return where, rule


@cache
def _adapter() -> TypeAdapter[HardwareProfile]:
    return TypeAdapter(HardwareProfile)


def _with_overrides(document: dict[str, Any], overrides: Mapping[str, str], label: str) -> dict[str, Any]:
    """Return a copy of ``document`` with each dotted path replaced; every path must exist in the format."""
    for path, text in overrides.items():
        *parents, last = path.split(".")
        document = node = dict(document)
        for depth, key in enumerate([*parents, last]):
            known = _keys_at(tuple(parents[:depth]))
            if key not in known:
                hint = did_you_mean(path, known_paths())
                raise ProfileError(label, [(f"--set {path}", f"the profile has no such field{hint}")])
            if depth < len(parents):
                node[key] = dict(node[key]) if isinstance(node.get(key), dict) else {}
                node = node[key]
        node[last] = _override_value(text, path, label)
    return document


def _override_value(text: str, path: str, label: str) -> Any:
    try:
        value = yaml.safe_load(text)
        return yaml.safe_load(f"[{text}]") if isinstance(value, str) and "," in text else value
    except yaml.YAMLError:
        raise ProfileError(label, [(f"--set {path}", f"{text!r} is not a YAML value")]) from None


def known_paths() -> list[str]:
    """Return every dotted path of the format that ``--set`` may name."""

    def walk(location: Location) -> Iterator[str]:
        for key in _keys_at(location):
            yield ".".join(map(str, (*location, key)))
            yield from walk((*location, key))

    return list(walk(()))


def _section_at(location: Location) -> Any:
    """Return the dataclass that a key path leads to, None for a plain value."""
    if location[:1] == ("sources",):
        return Source if len(location) == 2 else None
    current: Any = HardwareProfile
    for key in location:
        if not (isinstance(current, type) and is_dataclass(current)):
            return None
        current = _dataclass_in(_hints(current).get(str(key)))
    return current


@cache
def _hints(section: Any) -> dict[str, Any]:
    return get_type_hints(section)


def _dataclass_in(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return next((found for part in get_args(hint) if (found := _dataclass_in(part))), None)
    return hint if is_dataclass(hint) else None


@cache
def _keys_at(location: Location) -> tuple[str, ...]:
    section = _section_at(location)
    return tuple(f.name for f in fields(section)) if section else ()


def _faults(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield (key path, rule and cure) of each fault; a key named without unit hides the fault it causes."""
    found = error.errors(include_url=False)
    unknown = [e["loc"] for e in found if e["type"] == "unexpected_keyword_argument"]
    replaced = {(*loc[:-1], key) for loc in unknown if (key := _with_unit(loc))}
    for item in found:
        location = item["loc"]
        if item["type"] == "missing" and location in replaced:
            continue
        yield _path(location), _rule(item, location)


def _rule(item: Any, location: Location) -> str:
    kind, value = item["type"], item["input"]
    if kind == "unexpected_keyword_argument":
        return _unknown_key(location)
    if kind == "value_error":
        return str(item["ctx"]["error"])
    rule: str = _CURES.get(kind, item["msg"]).format(got=_show(value), **item.get("ctx", {}))
    if kind in ("float_type", "int_type") and isinstance(value, str) and _is_number(value):
        rule += "; YAML took it for text: write it without quotes, and an exponent as 3.35e+12"
    return rule


def _unknown_key(location: Location) -> str:
    key, known = str(location[-1]), _keys_at(location[:-1])
    better = _with_unit(location)
    if better:
        unit = better.rpartition("_")[2]
        return f"unknown key: keys carry their unit; write {better} ({_UNIT_NAMES[unit]})"
    return f"unknown key{did_you_mean(key, known)}; known here: {', '.join(known)}"


def _with_unit(location: Location) -> str | None:
    """Return the key that says the unit of a unitless ``location[-1]``, None if that is not what is wrong."""
    key, known = str(location[-1]), _keys_at(location[:-1])
    for unit, words in _UNITLESS.items():
        if f"{key}_{unit}" in known:
            return f"{key}_{unit}"
        if key in words:
            ends = [name for name in known if name == unit or name.endswith(f"_{unit}")]
            if len(ends) == 1 or unit in ends:
                return unit if unit in ends else ends[0]
    return None


def _unsourced(profile: HardwareProfile) -> Iterator[tuple[str, str]]:
    wanted = ["verify", "host.constant_ms", "host.bubble_ms"]
    wanted += [name for name in ("capture", "eager", "attention") if getattr(profile, name) is not None]
    wanted += [f"draft.{kind}" for kind in profile.draft.kinds]
    for path in wanted:
        if path not in profile.sources:
            yield f"sources.{path}", "missing; say how the number was got: {how: measured, source: ...}"
    for path in profile.sources:
        if path not in known_paths():
            yield f"sources.{path}", f"the profile has no field '{path}'{did_you_mean(path, known_paths())}"


def _inconsistent(profile: HardwareProfile) -> Iterator[tuple[str, str]]:
    if (profile.capture is None) != (profile.eager is None):
        missing = "eager" if profile.eager is None else "capture"
        yield missing, "missing; capture and eager belong together: what a step costs past the capture limit"
    if profile.attention is None and profile.verify.context_tokens is None:
        yield "attention", "missing; add it, or say with verify.context_tokens that the table contains it"
    if profile.attention is not None and profile.verify.context_tokens is not None:
        yield "attention", "counted twice: verify.context_tokens says that the verify table contains it"
    if profile.verify.lookup == "ceil_to_capture" and profile.capture is None:
        yield "verify.lookup", "ceil_to_capture needs a capture section; use linear or floor without graphs"


def _path(location: Location) -> str:
    """Return ``verify.ms[5]`` for ('verify', 'ms', 5); union tags of pydantic are left out."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.startswith("<"):
            text += f".{part}" if text else part
    return text


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"a {type(value).__name__} ({shown[:30]}...)"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
