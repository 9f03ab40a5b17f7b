"""JSON files as logs have them: one document, a list, or one document a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dspark_sim.errors import DataError

#: Beyond this a count is a mistake, and sums of counts could overflow.
MAX_COUNT = 2**48


def documents(path: Path) -> list[tuple[str, Any]]:
    """Return (place, document) of every document of a JSON or JSON Lines file.

    The items of a list count as documents. Places are ``item N`` (from 0) or ``line N`` (from 1).

    Raises:
        DataError: neither JSON nor JSON Lines; the first line that does not parse is named.
    """
    text = _text(path)
    try:
        whole = json.loads(text)
    except ValueError:
        return list(_lines(path, text))
    except RecursionError:
        raise DataError(path, "", "nested too deeply") from None
    if isinstance(whole, list):
        return [(f"item {i}", item) for i, item in enumerate(whole)]
    return [("item 0", whole)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(path, "", f"not UTF-8 text ({error.reason} at byte {error.start})") from None


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for row, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield f"line {row}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(path, f"line {row}", f"not JSON ({error})") from None


def holding(document: Any, *keys: str) -> Iterator[dict[str, Any]]:
    """Yield every object inside ``document``, itself included, that has one of ``keys``."""
    if isinstance(document, dict):
        if any(key in document for key in keys):
            yield document
        else:
            for value in document.values():
                yield from holding(value, *keys)
    elif isinstance(document, list):
        for value in document:
            yield from holding(value, *keys)


def whole_number(path: Path, place: str, record: dict[str, Any], key: str, least: int = 0) -> int:
    """Return the whole number under ``key``.

    Raises:
        DataError: it is missing, something else, or below ``least``.
    """
    value = number(path, place, record, key)
    if value is None or value % 1 != 0 or not least <= value <= MAX_COUNT:
        most = f", at most {MAX_COUNT:,}" if value is not None and value > MAX_COUNT else ""
        rule = f"{record.get(key)!r}: must be a whole number, at least {least}{most}"
        raise DataError(path, f"{place}, key '{key}'", rule)
    return int(value)


def number(path: Path, place: str, record: dict[str, Any], key: str) -> float | None:
    """Return the number under ``key``; None where it is missing or null.

    Raises:
        DataError: something else is there, or a number that is not finite.
    """
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(path, f"{place}, key '{key}'", f"{value!r}: must be a finite number")
    return value
