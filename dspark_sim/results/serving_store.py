"""The result folder of served requests: ``points.parquet`` (a row a run), ``run.json``, ``details.jsonl``.

Beside them lie the records of every run, one row a request
(:func:`dspark_sim.results.serving.write_requests`). Nested figures become columns: ``ttft_ms.p99``,
``slo.tpot_p99.attainment``. The details (:mod:`dspark_sim.results.serving_details`) are a line a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.errors import DataError, InputError
from dspark_sim.files import atomic_path, write_text
from dspark_sim.results.details import DETAIL, has_details
from dspark_sim.results.serving_tables import parts
from dspark_sim.results.store import ABOUT, DETAILS, POINTS, SERVED_SCHEMA, not_results, read_lines

#: Fields of ``run.json`` in which folders that are read together must agree.
SAME = ("trace", "profile", "settings", "version", "traffic", "serving", "slos")
#: Columns that every folder of served requests has.
_NEEDED = ("rate_scale", "offered_per_s", "policy", "drafter", "seed", "lossless", "requests", "measured",
           "tok_per_s_per_gpu", "ttft_ms.p99", "tpot_ms.p99", "e2e_ms.p99", "knee_passed")  # fmt: skip
_CAPACITY = "capacity.json"


@dataclass(frozen=True)
class Served:
    """Runs with what they are about.

    Attributes:
        runs: figures of each (:func:`dspark_sim.open_loop.figures_of`), with its detail where the folder
            has them.
        about: the document of ``run.json``.
    """

    runs: list[dict[str, Any]]
    about: dict[str, Any]


def is_served(folder: Path) -> bool:
    """Whether ``folder`` holds requests that arrived in time."""
    try:
        document = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("schema") == SERVED_SCHEMA


def one_kind(folders: Sequence[Path]) -> bool:
    """Return whether folders, all alike, hold served requests (or users in a loop).

    Raises:
        InputError: some hold one, some the other.
    """
    kinds = {folder: is_served(folder) for folder in folders if (folder / ABOUT).is_file()}
    served, loop = ([folder for folder, kind in kinds.items() if kind is wanted] for wanted in (True, False))
    if served and loop:
        raise InputError(
            f"{served[0]} holds requests that arrived in time, {loop[0]} users in a loop: their figures mean "
            "different things; give folders of one kind"
        )
    return bool(served)


def flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested figures as columns with dotted names."""
    found: dict[str, Any] = {}
    for name, entry in figures.items():
        if isinstance(entry, Mapping):
            found |= flat(entry, f"{prefix}{name}.")
        else:
            found[prefix + name] = entry
    return found


def nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns with dotted names as nested figures: what :func:`flat` was given."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        *path, last = parts(name)
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def bare(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures of runs without their details."""
    return [{name: value for name, value in run.items() if name != DETAIL} for run in runs]


def write_served(folder: Path, runs: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> list[Path]:
    """Write the runs, in their order, and what they are about, atomically each; return the paths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [flat(run) for run in bare(runs)]
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    with atomic_path(folder / POINTS) as temporary:
        pq.write_table(table, temporary)
    document = {"schema": SERVED_SCHEMA} | dict(about)
    write_text(folder / ABOUT, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    paths = [folder / POINTS, folder / ABOUT]
    if has_details(list(map(dict, runs))):
        paths.append(folder / DETAILS)
        write_text(paths[-1], "".join(json.dumps(run[DETAIL]) + "\n" for run in runs))
    return paths


def read_served(folder: Path) -> Served:
    """Read what :func:`write_served` wrote.

    Raises:
        InputError: the folder holds the answers of a search for capacity.
        DataError: a file in it is not what this version writes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if (folder / _CAPACITY).is_file():
        raise InputError(
            f"{folder}: holds the answer of a search for capacity, in {_CAPACITY} and its picture; give "
            "folders of `dspark-sim run`"
        )
    path = folder / POINTS
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise InputError(not_results(folder, POINTS)) from None
    except pa.ArrowInvalid as error:
        raise DataError(path, "", f"not a readable parquet file ({str(error).splitlines()[0]})") from None
    for name in _NEEDED:
        if name not in table.column_names:
            raise DataError(path, name, "column is missing; written by another version?")
    runs = [nested(row) for row in table.to_pylist()]
    if not runs:
        raise DataError(path, "", "holds no runs")
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    details = read_lines(folder / DETAILS, len(runs))
    if details is not None:
        runs = [run | {DETAIL: detail} for run, detail in zip(runs, details, strict=True)]
    return Served(runs, {name: value for name, value in about.items() if name != "schema"})


def merge_served(folders: Sequence[Path]) -> Served:
    """Read several folders of served requests as one.

    Raises:
        InputError: they differ in what they were asked, or hold different figures for the same run.
    """
    all_served = [read_served(folder) for folder in folders]
    first = all_served[0].about
    for folder, served in zip(folders, all_served, strict=True):
        different = [name for name in SAME if served.about.get(name) != first.get(name)]
        if different:
            raise InputError(f"{folder} and {folders[0]} differ in {', '.join(different)}: not comparable")
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in (run for served in all_served for run in served.runs):
        key = tuple(run[name] for name in ("drafter", "policy", "rate_scale", "seed"))
        if repr(found.setdefault(key, run)) != repr(run):
            raise InputError(f"two different results for {key[1]} at rate scale {key[2]:g}, seed {key[3]}")
    return Served(list(found.values()), first)
