"""The keys of the profile format, read off its dataclasses: for suggestions and for ``--set``."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from dspark_sim.hardware.sections import Source
from dspark_sim.hardware.structure import HardwareProfile

#: Keys and list indices from the top of the file to a value.
Location = tuple[int | str, ...]


def known_paths() -> list[str]:
    """Return every dotted path of the format that ``--set`` may name."""

    def walk(location: Location) -> Iterator[str]:
        for key in keys_at(location):
            yield ".".join(map(str, (*location, key)))
            yield from walk((*location, key))

    return list(walk(()))


def is_known(path: str) -> bool:
    """Return whether the format has a key at a dotted path, without walking all of it."""
    *parents, last = path.split(".")
    return last in keys_at(tuple(parents))


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
def keys_at(location: Location) -> tuple[str, ...]:
    """Return the keys that may stand in the mapping at ``location``; none for a plain value."""
    section = _section_at(location)
    return tuple(f.name for f in fields(section)) if section else ()
