"""A result folder: ``points.parquet`` (one row a point), ``run.json`` (what was asked of what), and what
reports draw: ``details.jsonl`` (a line a point) and ``evidence.json`` (of trace and profile).

All depend on the inputs and the seed alone: no clock, no machine, no path, so that two runs can be
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
from dspark_sim.results.details import DETAIL, has_details
from dspark_sim.results.metrics import Point
from dspark_sim.schema import POINT_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "dspark-sim/results/1"
SERVED_SCHEMA = "dspark-sim/served/1"  # of dspark_sim.results.serving_store
POINTS = "points.parquet"
ABOUT = "run.json"
DETAILS = "details.jsonl"
EVIDENCE = "evidence.json"
UNFINISHED = "points"  # folder of the finished points of a sweep; all that an interrupted one leaves
TEXT = ("policy", "drafter", "lossless")
WHOLE = ("concurrency", "seed", "steps", "output_tokens", "requests")

#: Fields of ``run.json`` in which folders that are read together must agree: the same texts on the
#: same hardware under the same settings, so that only policy, load and seed differ.
SAME = ("trace", "profile", "settings", "version")


@dataclass(frozen=True)
class Results:
    """Points with what they are about.

    Attributes:
        points: each with its detail where the folder has them (:mod:`dspark_sim.results.details`).
        about: the document of ``run.json``.
        evidence: of trace and profile (:mod:`dspark_sim.results.evidence`); None in folders without.
    """

    points: list[Point]
    about: dict[str, Any]
    evidence: dict[str, Any] | None = None


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
    """Write the files of a result folder, atomically each; return their paths.

    The order of the rows is that of ``results.points``; what results lack is not written.
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
    return [folder / POINTS, folder / ABOUT, *_write_more(folder, results)]


def _write_more(folder: Path, results: Results) -> list[Path]:
    paths = []
    if has_details(results.points):
        paths.append(folder / DETAILS)
        write_text(paths[-1], "".join(json.dumps(p[DETAIL]) + "\n" for p in results.points))
    if results.evidence is not None:
        paths.append(folder / EVIDENCE)
        write_text(paths[-1], json.dumps(results.evidence, ensure_ascii=False) + "\n")
    return paths


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
            raise InputError(not_results(folder, name))
    about = _read_about(folder / ABOUT)
    points = _with_details(_read_points(folder / POINTS), folder / DETAILS)
    return Results(points, about, _read_json(folder / EVIDENCE) if (folder / EVIDENCE).is_file() else None)


def not_results(folder: Path, missing: str) -> str:
    """Return the line that says why ``folder``, which lacks a file, cannot be read."""
    finished = len(list((folder / UNFINISHED).glob("*.json")))
    if finished:
        points = "1 point" if finished == 1 else f"{finished} points"
        return f"{folder}: an unfinished sweep, {points}; repeat the sweep to finish it"
    return f"{folder}: not a result folder, {missing} is missing in it"


def _with_details(points: list[Point], path: Path) -> list[Point]:
    details = read_lines(path, len(points))
    return points if details is None else [p | {DETAIL: d} for p, d in zip(points, details, strict=True)]


def read_lines(path: Path, count: int) -> list[Any] | None:
    """Return the ``count`` JSON documents of a file, one a line; None where there is no such file.

    Raises:
        DataError: it holds something else.
    """
    if not path.is_file():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) != count:
        raise DataError(path, "", f"holds {len(lines)} lines for {count} points")
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise DataError(path, "", f"not JSON lines ({error})") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(path, "", f"not JSON ({error})") from None


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
    document = _read_json(path)
    if isinstance(document, dict) and document.get("schema") == SERVED_SCHEMA:
        raise InputError(
            f"{path.parent}: holds requests that arrived in time, not users in a loop, and has no "
            "frontier; `dspark-sim report` makes a page of it"
        )
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
    points = _distinct([p for results in all_results for p in results.points])
    return Results(points, first, _joined([results.evidence for results in all_results]))


def _joined(all_evidence: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the evidence of folders of one trace and profile: all drafters, the longest cost curve."""
    found = [evidence for evidence in all_evidence if evidence is not None]
    if not found:
        return None
    drafters: dict[str, Any] = {}
    for evidence in found:
        drafters |= evidence["drafters"]
    return {
        "drafters": drafters,
        "cost": max((e["cost"] for e in found), key=lambda cost: cost["tokens"][-1]),
    }


def _distinct(points: Sequence[Point]) -> list[Point]:
    """Return the points, each (drafter, policy, concurrency, seed) once."""
    found: dict[tuple[Any, ...], Point] = {}
    for point in points:
        key = tuple(point[name] for name in ("drafter", "policy", "concurrency", "seed"))
        # repr, because NaN is not equal to itself.
        if repr(found.setdefault(key, point)) != repr(point):
            raise InputError(f"two different results for {key[1]} at concurrency {key[2]}, seed {key[3]}")
    return list(found.values())
