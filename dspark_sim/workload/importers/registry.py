"""Which formats exist, and the specs that name them.

A spec is ``FORMAT`` or ``FORMAT:key=value,...``: the keyword-only arguments of the importer are its
options. The modules of the package are searched when a format is first asked for.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from dspark_sim.errors import InputError
from dspark_sim.specs import bind, choose
from dspark_sim.workload.acceptance import AcceptanceRecords
from dspark_sim.workload.workloads import Workload

Imported = Workload | AcceptanceRecords
Importer = Callable[..., Imported]
Gives = Literal["workload", "acceptance"]


@dataclass(frozen=True, slots=True)
class ImporterInfo:
    """A format: its name, what the file holds, what it becomes."""

    name: str
    function: Importer
    gives: Gives
    file: str


_INFO: dict[Importer, ImporterInfo] = {}


def importer(name: str, *, gives: Gives, file: str) -> Callable[[Importer], Importer]:
    """Declare an importer, and return the function itself.

    Args:
        name: format at the door.
        gives: ``workload`` (a request table) or ``acceptance`` (records of rounds).
        file: the file it reads, in words.
    """

    def register(function: Importer) -> Importer:
        _INFO[function] = ImporterInfo(name, function, gives, file)
        return function

    return register


@cache
def _formats() -> dict[str, ImporterInfo]:
    folder = importlib.import_module("dspark_sim.workload.importers")
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.iter_modules(folder.__path__, folder.__name__ + ".")
    ]
    functions = [f for m in modules for _, f in inspect.getmembers(m, inspect.isfunction) if f in _INFO]
    return {info.name: info for info in sorted(map(_INFO.__getitem__, set(functions)), key=lambda i: i.name)}


def importers() -> list[ImporterInfo]:
    """Return every format, by name."""
    return list(_formats().values())


def import_file(spec: str, path: Path) -> Imported:
    """Read ``path`` in the format that ``spec`` names.

    Raises:
        InputError: an unknown format or option, a value out of range, no such file or a folder.
        DataError: the file breaks a rule of its format.
    """
    known = {name: info.function for name, info in _formats().items()}
    function = choose("format", spec.partition(":")[0], known)
    bound = bind("format", spec, function)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    imported: Imported = function(path, **bound.values)
    return imported
