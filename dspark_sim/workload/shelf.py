"""Arrays that lie in files and are mapped into memory: for traces that memory does not hold.

A shelf is a folder, named by what its arrays are made of. An array is written part by part, whole or not at
all, and found again by every later process; the pages of it that are in use are shared, and the kernel drops
them when memory is short.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import InputError
from dspark_sim.files import atomic_path

#: Environment variable: MiB that a trace may take in memory with its tables.
MEMORY = "DSPARK_SIM_TRACE_MIB"
#: Share of this machine's memory that it may take if that says nothing.
_SHARE = 0.25
#: Rows that are made of a large array at once.
AT_ONCE = 1 << 14
_MIB = 1 << 20


class Shelf:
    """Arrays in ``folder``, each a file of numpy's format.

    The pages are mapped to be written as well, because a compiled function takes a read-only array for
    another type; nobody writes them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays: dict[str, NDArray[Any]] = {}

    def array(
        self, name: str, kind: type[np.generic], columns: tuple[int, ...], parts: Iterable[NDArray[Any]]
    ) -> Any:
        """Return the array ``name`` [rows, *columns], mapped; ``parts`` are its rows unless it is there.

        Raises:
            InputError: it cannot be written.
        """
        if name not in self._arrays:
            path = self.folder / f"{name}.npy"
            if not path.is_file():
                _write(path, np.dtype(kind), columns, parts)
            self._arrays[name] = np.asarray(np.load(path, mmap_mode="r+"))
        return self._arrays[name]

    def owns(self, array: NDArray[Any] | None) -> bool:
        """Return whether ``array`` is a whole one of the shelf, or there is none."""
        return array is None or any(array is own for own in self._arrays.values())

    def says(self, note: str) -> bool:
        """Return whether ``note`` was left on the shelf."""
        return (self.folder / note).is_file()

    def note(self, note: str) -> None:
        """Leave ``note`` on the shelf."""
        with atomic_path(self.folder / note):
            pass


def _write(path: Path, kind: np.dtype[Any], columns: tuple[int, ...], parts: Iterable[NDArray[Any]]) -> None:
    """Write an array whose number of rows shows as its parts come: the header is written again at the end."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        rows = 0
        _put(file, path, _header(kind, (0, *columns)))
        for part in parts:
            _put(file, path, np.ascontiguousarray(part, dtype=kind).data)
            rows += len(part)
        file.seek(0)
        _put(file, path, _header(kind, (rows, *columns)))


def _put(file: BinaryIO, path: Path, content: bytes | memoryview) -> None:
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        raise InputError(f"{path.parent}: a trace is laid out there, and: {error.strerror}") from None


def _header(kind: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of numpy's format; its size does not depend on the number of rows."""
    about = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, about)
    return written.getvalue()


def slices(rows: int, at_once: int = AT_ONCE) -> Iterator[slice]:
    """Yield slices that cover ``rows`` rows in order."""
    for first in range(0, rows, at_once):
        yield slice(first, min(first + at_once, rows))


def memory_for_traces() -> int:
    """Return the bytes that a trace may take with its tables before it is mapped instead.

    Raises:
        InputError: the environment says something else than a number of MiB.
    """
    said = os.environ.get(MEMORY)
    if said is None:
        return int(_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        mib = float(said)
    except ValueError:
        mib = -1.0
    if not 0 <= mib < float("inf"):
        raise InputError(f"{MEMORY}={said}: must be a number of MiB, 0 or more")
    return int(mib * _MIB)


def shelf_of(path: Path) -> Shelf:
    """Return the shelf of a file, by its content, under ``XDG_CACHE_HOME`` (or ``~/.cache``)."""
    import hashlib

    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Shelf(home / "dspark-sim" / "traces" / digest[:32])
