"""The published numbers that the cases need: small CSV files, their source in the first line."""

from __future__ import annotations

import csv
from pathlib import Path

_FOLDER = Path(__file__).with_name("data")


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of ``data/NAME.csv``, one mapping header -> text a row."""
    return list(csv.DictReader(_lines(name)[1:]))


def source_of(name: str) -> str:
    """Return where the numbers of ``data/NAME.csv`` come from, in words."""
    return _lines(name)[0].removeprefix("# source: ")


def path_of(name: str) -> Path:
    """Return where ``data/NAME.csv`` lies."""
    return _FOLDER / f"{name}.csv"


def _lines(name: str) -> list[str]:
    return path_of(name).read_text(encoding="utf-8").splitlines()
