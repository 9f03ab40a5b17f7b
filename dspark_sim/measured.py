"""Measured sweeps: a CSV file, or a folder of benchmark JSON, as rows of one shape."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.errors import DataError, InputError

COLUMNS = ("arm", "concurrency", "output_tok_per_s", "tok_per_s_per_user")
_STEM = re.compile(r"(?P<arm>.+?)[-_.]c(?:oncurrency)?[-_=]?(?P<load>\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of a sweep.

    Attributes:
        arm: as the sweep names it (``nospec``, ``k7``, ``adaptive``).
        concurrency: users of the closed loop.
        tok_per_s: output tokens a second, mean of the whole run.
        tok_per_s_per_user: 1 / median TPOT; NaN where nobody measured it, or the axis was cut.
    """

    arm: str
    concurrency: int
    tok_per_s: float
    tok_per_s_per_user: float


def read_measured(path: str | os.PathLike[str]) -> list[Measured]:
    """Read a sweep: a CSV file with the columns of :data:`COLUMNS`, or a folder of benchmark results.

    A folder holds the results of ``vllm bench serve --save-result`` or ``sglang.bench_serving``: one JSON
    file a load, named ``ARM-c16.json``, or a JSON line a load in ``ARM.jsonl``. Its rows come by arm and
    load. Lines of a CSV file that start with # are skipped; an empty ``tok_per_s_per_user`` means that
    nobody measured it.

    Raises:
        InputError: no such file, or a folder without results.
        DataError: a column, row or key that breaks the format.
    """
    source = Path(path)
    if source.is_dir():
        return _of_folder(source)
    if not source.is_file():
        raise InputError(f"{path}: no such file or folder")
    return _of_csv(source)


def result_files(folder: Path) -> list[Path]:
    """Return the benchmark results that lie in ``folder``, by name."""
    return sorted([*folder.glob("*.json"), *folder.glob("*.jsonl")])


def _of_folder(source: Path) -> list[Measured]:
    files = result_files(source)
    if not files:
        raise InputError(f"{source}: no .json file in this folder; expected names such as k7-c16.json")
    rows = [row for file in files for row in _of_benchmark(file)]
    twice = [row for row, times in Counter((r.arm, r.concurrency) for r in rows).items() if times > 1]
    if twice:
        arm, load = twice[0]
        raise DataError(source, "results", f"several of arm {arm} at {load} users; keep one, or their mean")
    return sorted(rows, key=lambda row: (row.arm, row.concurrency))


def _of_csv(path: Path) -> list[Measured]:
    lines = [line for line in _text(path).splitlines() if not line.startswith("#")]
    reader = csv.DictReader(lines)
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise DataError(path, f"column {missing[0]}", f"missing; a sweep has {', '.join(COLUMNS)}")
    rows = [_of_row(path, number, row) for number, row in enumerate(reader, start=1)]
    if not rows:
        raise DataError(path, "rows", "none; a sweep has at least one")
    return rows


def _of_row(path: Path, number: int, row: Mapping[str, str]) -> Measured:
    load, rate, user = (_cell(path, number, column, row) for column in COLUMNS[1:])
    if math.isnan(load + rate) or load != int(load):
        raise DataError(
            path, f"row {number}", "needs a whole concurrency and a rate; only the last may be empty"
        )
    if not (row["arm"] or "").strip():
        raise DataError(path, f"row {number}, column arm", "empty; expected a name such as nospec or k7")
    return Measured(row["arm"].strip(), int(load), rate, user)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(path, "content", f"cannot be read as UTF-8 text: {error}") from None


def _cell(path: Path, number: int, column: str, row: Mapping[str, str | None]) -> float:
    text = (row[column] or "").strip()
    return _number(path, f"row {number}, column {column}", text) if text else math.nan


def _of_benchmark(path: Path) -> list[Measured]:
    """Read the results of one file; tok/s/user is 1,000 / median_tpot_ms."""
    name = _STEM.fullmatch(path.stem)
    lines = path.suffix == ".jsonl"
    if name is None and not lines:
        raise DataError(path, "name", "must tell arm and load, as in k7-c16.json")
    texts = [line for line in _text(path).splitlines() if line.strip()] if lines else [_text(path)]
    if not texts:
        raise DataError(path, "content", "is empty; expected a JSON result a line")
    arm, load = (path.stem, None) if name is None else (name["arm"], int(name["load"]))
    return [_of_result(path, arm, load, text) for text in texts]


def _of_result(path: Path, arm: str, named: int | None, text: str) -> Measured:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DataError(path, "content", f"is not JSON: {error}") from None
    rate, tpot = (_key(path, found, key) for key in ("output_throughput", "median_tpot_ms"))
    if named is not None and found.get("max_concurrency") is None:
        return Measured(arm, named, rate, 1e3 / tpot)
    load = _key(path, found, "max_concurrency")
    if load != int(load) or named not in (None, load):
        name = "" if named is None else f", and the name says {named}"
        raise DataError(path, "key max_concurrency", f"{load:g}{name}; expected one whole number of users")
    return Measured(arm, int(load), rate, 1e3 / tpot)


def _key(path: Path, found: Any, key: str) -> float:
    if not isinstance(found, dict) or found.get(key) is None:
        raise DataError(path, f"key {key}", "missing; expected a result of vllm bench serve or bench_serving")
    return _number(path, f"key {key}", found[key])


def _number(path: Path, where: str, text: Any) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise DataError(path, where, f"'{text}' is not a number") from None
    if not 0 < value < math.inf:
        raise DataError(path, where, f"{text} must be a finite number above 0")
    return value
