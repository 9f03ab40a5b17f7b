"""What pydantic found wrong, in the words of the format: key path, value, rule, cure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from dspark_sim.errors import did_you_mean
from dspark_sim.hardware.form import Location, keys_at

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
    "invalid_key": "unknown key; keys are words",
    "literal_error": "must be {expected}, got {got}",
}


def faults_of(error: ValidationError) -> Iterator[tuple[str, str]]:
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
    rule: str = _CURES.get(kind, item["msg"]).format(got=show(value), **item.get("ctx", {}))
    if kind in ("float_type", "int_type") and isinstance(value, str) and _is_number(value):
        rule += "; YAML took it for text: write it without quotes, and an exponent as 3.35e+12"
    return rule


def _unknown_key(location: Location) -> str:
    key, known = str(location[-1]), keys_at(location[:-1])
    better = _with_unit(location)
    if better:
        unit = better.rpartition("_")[2]
        return f"unknown key: keys carry their unit; write {better} ({_UNIT_NAMES[unit]})"
    return f"unknown key{did_you_mean(key, known)}; known here: {', '.join(known)}"


def _with_unit(location: Location) -> str | None:
    """Return the key that says the unit of a unitless ``location[-1]``, None if that is not what is wrong."""
    key, known = str(location[-1]), keys_at(location[:-1])
    for unit, words in _UNITLESS.items():
        if f"{key}_{unit}" in known:
            return f"{key}_{unit}"
        if key in words:
            ends = [name for name in known if name == unit or name.endswith(f"_{unit}")]
            if len(ends) == 1 or unit in ends:
                return unit if unit in ends else ends[0]
    return None


def _path(location: Location) -> str:
    """Return ``verify.ms[5]`` for ('verify', 'ms', 5); union tags of pydantic are left out."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.startswith("<"):
            text += f".{part}" if text else part
    return text


def show(value: Any) -> str:
    """Return ``value`` as a message shows it, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= 40 else f"a {type(value).__name__} ({shown[:30]}...)"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
