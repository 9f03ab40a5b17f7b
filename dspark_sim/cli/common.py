"""What commands share: reading lists and ``--set``, JSON out, progress on a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError


def warn(message: str) -> None:
    """Print one line of warning or note to stderr; stdout stays for results."""
    print(f"dspark-sim: {message}", file=sys.stderr)


def clean(value: Any) -> Any:
    """Return ``value`` with numpy scalars as Python's own, and NaN and infinity as None (JSON's null)."""
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if hasattr(value, "tolist"):
        return clean(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout."""
    print(json.dumps(clean(document), indent=2, ensure_ascii=False, allow_nan=False))


def new_file(path: Path, force: bool) -> Path:
    """Return ``path``, which a command is about to write.

    Raises:
        InputError: there is such a file already, and ``force`` is not said.
    """
    if path.exists() and not force:
        raise InputError(f"{path}: is there already; --force overwrites it")
    return path


def parse_set(assignments: Sequence[str]) -> dict[str, str]:
    """Return ``{path: value}`` of ``--set path=value`` words.

    Raises:
        InputError: a word without ``=`` or with an empty path, or a path set twice.
    """
    found: dict[str, str] = {}
    for word in assignments:
        path, equals, value = word.partition("=")
        if not equals or not path.strip():
            raise InputError(f"--set {word!r}: expected path=value, as in --set capture.limit=512")
        if path.strip() in found:
            raise InputError(f"--set {path.strip()}: set twice; say it once")
        found[path.strip()] = value.strip()
    return found


def parse_int(word: str, what: str, least: int) -> int:
    """Return ``word`` as a whole number >= ``least``.

    Raises:
        InputError: not a whole number, or below ``least``.
    """
    try:
        number = int(word)
    except ValueError:
        raise InputError(f"{what} {word!r}: not a whole number") from None
    if number < least:
        raise InputError(f"{what} {number}: must be at least {least}")
    return number


def parse_concurrency(text: str) -> list[int]:
    """Return the loads of a comma list such as ``1,16,256``, ascending, each once [requests].

    Raises:
        InputError: an entry that is empty, not a whole number, or below 1.
    """
    return list(parse_sizes(text, "--concurrency"))


def parse_sizes(text: str, what: str) -> tuple[int, ...]:
    """Return the whole numbers of a comma list, ascending, each once.

    Raises:
        InputError: an entry that is empty, not a whole number, or below 1.
    """
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        raise InputError(f"{what} {text!r}: holds an empty entry; expected whole numbers, as in 1,16,256")
    return tuple(sorted({parse_int(word, what, 1) for word in words}))


def parse_slas(text: str) -> list[float]:
    """Return the anchors of a comma list such as ``80,120``, as given, each once [tok/s/user].

    Raises:
        InputError: an entry that is not a finite number above 0.
    """
    return list(dict.fromkeys(_positive(word.strip()) for word in text.split(",")))


def _positive(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise InputError(f"--sla {word!r}: not a number; expected tok/s/user, as in --sla 80,120") from None
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"--sla {word}: must be a finite number of tok/s/user above 0")
    return number


def output_folder(path: Path) -> Path:
    """Create the folder ``path`` (parents too) and return it.

    Raises:
        InputError: it cannot be created, is a file, or cannot be written to.
    """
    import os

    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"--out {path}: is or lies under a file; name a folder") from None
    except OSError as error:
        raise InputError(f"--out {path}: cannot create the folder: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"--out {path}: folder is not writable")
    return path


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Yield ``advance(n)``; shows a bar with time left on stderr if that is a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda amount: bar.advance(task, amount)


@contextmanager
def working(label: str) -> Iterator[None]:
    """Show on stderr, if that is a terminal, that work of unknown length goes on, and for how long it has."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(label, total=None)
        yield
