"""Tables of a trace in files that several processes map into memory: one copy, whoever reads it.

A table goes by the content of the confidences that it is made of, so that no process reads another's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dspark_sim.files import atomic_path
from dspark_sim.workload.traces import DrafterTrace

Table = NDArray[np.float32]
_folders: list[Path] = []


def look_in(folder: str | None) -> None:
    """Look for tables in ``folder`` first from now on, in this process; None: nowhere."""
    _folders[:] = [Path(folder)] if folder is not None else []


def mapped(drafter: DrafterTrace, kind: str, shape: tuple[int, int], parts: Iterable[Table]) -> Table:
    """Return the table of that kind: mapped into memory if a file has it, else made of ``parts``.

    The table of a trace that is mapped itself is written beside it.
    """
    for folder in _folders if drafter.home is None else ():
        path = _path(folder, drafter, kind)
        if path.is_file():
            # Pages are shared until somebody writes, which nobody does; read-only arrays are another type
            # to the compiler.
            return np.asarray(np.load(path, mmap_mode="c"))
    table: Table = drafter.laid_out(kind, np.float32, shape, parts)
    return table


def write(folder: Path, drafter: DrafterTrace, kind: str, table: Table) -> None:
    """Write a table where :func:`look_in` finds it, unless it is there."""
    if _path(folder, drafter, kind).exists():
        return
    with atomic_path(_path(folder, drafter, kind)) as temporary:
        np.save(temporary, table)


def _path(folder: Path, drafter: DrafterTrace, kind: str) -> Path:
    digest = hashlib.sha256(f"{drafter.gamma} {drafter.calibration}".encode())
    for logits in (drafter.confidence_logit_NG, drafter.confidence_logit_free_NG):
        if logits is not None:
            digest.update(np.ascontiguousarray(logits).data)
    return folder / f"{digest.hexdigest()[:32]}-{kind}.npy"
