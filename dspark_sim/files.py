"""Where shipped data lies, and how files are written.

`traces/` and `hw_profiles/` stand at the top of a checkout; an installed wheel carries them inside
the package (``dspark_sim/data/``). Both are found by bare name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dspark_sim.errors import InputError, did_you_mean

_PACKAGE = Path(__file__).resolve().parent


def data_folder(kind: str) -> Path:
    """Return the folder of shipped files of ``kind`` (``traces`` or ``hw_profiles``)."""
    # The wheel's copy first: beside an installed package a foreign folder may bear the same name.
    installed = _PACKAGE / "data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def find(name: str | os.PathLike[str], kind: str, suffix: str) -> Path:
    """Resolve ``name``: a file that exists, else a shipped file of that bare name.

    The suffix may be left off a bare name (``chat`` for ``chat.parquet``). A folder of that name does not
    hide the shipped file: results are often named after their trace. Any other folder is returned, and
    refused by whoever reads it.

    Raises:
        InputError: neither exists; the message lists what is shipped.
    """
    path = Path(name)
    if path.exists() and not path.is_dir():
        return path
    folder = data_folder(kind)
    if path.name == str(name):
        for candidate in (folder / path.name, folder / (path.name + suffix)):
            if candidate.is_file():
                return candidate
    if path.exists():
        return path
    shipped = sorted(p.name.removesuffix(suffix) for p in folder.glob("*" + suffix))
    raise InputError(
        f"{name}: no such file, and no file of that name in the shipped {kind}"
        f"{did_you_mean(path.name.removesuffix(suffix), shipped)}; shipped: {', '.join(shipped) or 'none'}"
    )


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it on success and vanishes on failure.

    The temporary keeps the suffix, because writers choose their format by it.

    Raises:
        InputError: ``path`` is a folder, or no file can be made there.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file in it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.", suffix=target.suffix)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
