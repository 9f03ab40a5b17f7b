"""A result folder: ``points.parquet`` (one row a point) and ``run.json`` (what was asked of what).

Both depend on the inputs and the seed alone: no clock, no machine, no path, so that two runs can be
compared byte for byte. Columns carry unit and meaning in their field metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.errors import DataError, InputError
from dspark_sim.files import atomic_path, write_text
from dspark_sim.results.metrics import Point
from dspark_sim.schema import POINT_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "dspark-sim/results/1"
POINTS = "points.parquet"
ABOUT = "run.json"
TEXT = ("policy", "drafter", "lossless")
WHOLE = ("concurrency", "seed", "steps", "output_tokens", "requests")

#: Fields of ``run.json`` in which folders that are read together must agree: the same texts on the
#: same hardware under the same settings, so that only policy, load and seed differ.
SAME = ("trace", "profile", "settings", "version")


@dataclass(frozen=True)
class Results:
    """Points with what they are about (the document of ``run.json``)."""

    points: list[Point]
    about: dict[str, Any]


def unit(column: str) -> str:
    """Return the unit of a column of a point, ``""`` if it has none."""
    found = re.search(r"\[([^\]]+)\]$", POINT_COLUMNS[column])
    return found.group(1) if found else ""


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = dict.fromkeys(TEXT, pa.string()) | dict.fromkeys(WHOLE, pa.int64())
    return pa.schema(
        [
            pa.field(name, kinds.get(name, pa.float64()), metadata={"unit": unit(name), "meaning": meaning})
            for name, meaning in POINT_COLUMNS.items()
        ]
    )


def write_results(folder: Path, results: Results) -> list[Path]:
    """Write ``points.parquet`` and ``run.json`` into ``folder``, atomically each; return their paths.

    The order of the rows is that of ``results.points``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    arrays = [_array([p[field.name] for p in results.points], field.type) for field in schema]
    table = pa.Table.from_arrays(arrays, schema=schema)
    with atomic_path(folder / POINTS) as temporary:
        pq.write_table(table, temporary)
    document = {"schema": SCHEMA} | results.about
    write_text(folder / ABOUT, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return [folder / POINTS, folder / ABOUT]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column, built from its buffers: pyarrow's constructors import pandas, a third of a second."""
    import pyarrow as pa

    if kind == pa.string():
        words = [value.encode() for value in values]
        ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(words))]
    else:
        buffers = [None, pa.py_buffer(np.array(values, dtype=np.int64 if kind == pa.int64() else np.float64))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def read_results(folder: Path) -> Results:
    """Read what :func:`write_results` wrote.

    Raises:
        InputError: there is no result folder.
        DataError: a file in it is not what this version writes.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such result folder; `dspark-sim sweep --out {folder}` makes one")
    for name in (POINTS, ABOUT):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: not a result folder, {name} is missing in it")
    return Results(_read_points(folder / POINTS), _read_about(folder / ABOUT))


def _read_points(path: Path) -> list[Point]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise DataError(path, "", f"not a readable parquet file ({str(error).splitlines()[0]})") from None
    for field in _schema():
        if field.name not in table.column_names:
            raise DataError(path, field.name, f"column is missing; expected {field.type}")
        if table.schema.field(field.name).type != field.type:
            raise DataError(
                path, field.name, f"type is {table.schema.field(field.name).type}; expected {field.type}"
            )
    if not table.num_rows:
        raise DataError(path, "", "holds no points")
    points: list[Point] = table.select(list(POINT_COLUMNS)).to_pylist()
    return points


def _read_about(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(path, "", f"not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise DataError(path, "schema", f"expected '{SCHEMA}'; written by another version?")
    del document["schema"]
    return document


def merge(folders: Sequence[Path]) -> Results:
    """Read several result folders as one.

    Raises:
        InputError: they differ in trace, profile, settings or version, or hold different numbers
            for the same point.
    """
    all_results = [read_results(folder) for folder in folders]
    first = all_results[0].about
    for folder, results in zip(folders, all_results, strict=True):
        different = [name for name in SAME if results.about.get(name) != first.get(name)]
        if different:
            raise InputError(f"{folder} and {folders[0]} differ in {', '.join(different)}: not comparable")
    return Results(_distinct([p for results in all_results for p in results.points]), first)


def _distinct(points: Sequence[Point]) -> list[Point]:
    """Return the points, each (drafter, policy, concurrency, seed) once."""
    found: dict[tuple[Any, ...], Point] = {}
    for point in points:
        key = tuple(point[name] for name in ("drafter", "policy", "concurrency", "seed"))
        # repr, because NaN is not equal to itself.
        if repr(found.setdefault(key, point)) != repr(point):
            raise InputError(f"two different results for {key[1]} at concurrency {key[2]}, seed {key[3]}")
    return list(found.values())
