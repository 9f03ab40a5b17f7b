"""How functions are compiled, where they are kept, and how the state is handed to them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import njit, types
from numba.experimental import structref

from dspark_sim.engine.compiled.layout import (
    Asked,
    Costs,
    Run,
    Sent,
    State,
    Tables,
    World,
)

#: Modules here that hold no compiled function.
_PYTHON = ("__init__", "building", "machine", "recording")

#: Decorator of functions that compiled functions call. Division by zero is what it is in numpy.
inner = njit(error_model="numpy")


def entry(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, at its first call, and keep it on disk.

    What is kept goes by the sources of all compiled functions: one that calls another holds a copy of it,
    and would not notice that its source has changed. Without a folder to write to, nothing is kept.
    """
    folder, config = _folder(), numba.config
    before = getattr(config, "CACHE_DIR", "")
    try:
        setattr(config, "CACHE_DIR", str(folder or ""))  # noqa: B010
        return njit(error_model="numpy", cache=folder is not None)(function)
    finally:
        setattr(config, "CACHE_DIR", before)  # noqa: B010


@cache
def _folder() -> Path | None:
    sources = sorted(path for path in Path(__file__).parent.glob("*.py") if path.stem not in _PYTHON)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    digest.update(f"{numba.__version__}".encode())
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(home).expanduser() / "dspark-sim" / f"numba-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


class _Struct(types.StructRef):
    """A tuple of arrays behind one pointer, inside compiled code: passing it on costs nothing."""

    def preprocess_fields(self, fields: Any) -> Any:
        """Fields hold values of any content, whatever constant they were made with."""
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


@structref.register
class _TablesType(_Struct):
    pass


class _Tables(structref.StructRefProxy):
    pass


@structref.register
class _CostsType(_Struct):
    pass


class _Costs(structref.StructRefProxy):
    pass


@structref.register
class _AskedType(_Struct):
    pass


class _Asked(structref.StructRefProxy):
    pass


@structref.register
class _SentType(_Struct):
    pass


class _Sent(structref.StructRefProxy):
    pass


@structref.register
class _StateType(_Struct):
    pass


class _State(structref.StructRefProxy):
    pass


@structref.register
class _RunType(_Struct):
    pass


class _Run(structref.StructRefProxy):
    pass


@structref.register
class _WorldType(_Struct):
    pass


class _World(structref.StructRefProxy):
    pass


for _proxy, _type, _tuple in (
    (_Tables, _TablesType, Tables),
    (_Costs, _CostsType, Costs),
    (_Asked, _AskedType, Asked),
    (_Sent, _SentType, Sent),
    (_State, _StateType, State),
    (_Run, _RunType, Run),
    (_World, _WorldType, World),
):
    structref.define_constructor(_proxy, _type, list(_tuple._fields))


def _pointed(world: World) -> Any:
    return _World(
        world.terms,
        _Tables(*world.tables),
        _Costs(*world.true),
        _Costs(*world.believed),
        _Asked(*world.asked),
        _Sent(*world.sent),
        _State(*world.state),
        _Run(*world.run),
        world.reserve,
    )


def _as_it_is(world: World) -> World:
    return world


#: A world as structures behind pointers, with the same names; itself where nothing is compiled.
pointed: Any = _as_it_is if getattr(numba.config, "DISABLE_JIT", 0) else inner(_pointed)
