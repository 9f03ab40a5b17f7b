"""The result folder of served requests: ``points.parquet`` (a row a run) and ``run.json``.

Beside them lie the records of every run, one row a request
(:func:`dspark_sim.results.serving.write_requests`). Nested figures become columns: ``ttft_ms.p99``,
``slo.tpot_p99.attainment``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_sim.files import atomic_path, write_text
from dspark_sim.results.store import ABOUT, POINTS, SERVED_SCHEMA


def flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested figures as columns with dotted names."""
    found: dict[str, Any] = {}
    for name, entry in figures.items():
        if isinstance(entry, Mapping):
            found |= flat(entry, f"{prefix}{name}.")
        else:
            found[prefix + name] = entry
    return found


def write_served(folder: Path, runs: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> list[Path]:
    """Write the runs, in their order, and what they are about, atomically each; return the paths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [flat(run) for run in runs]
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    with atomic_path(folder / POINTS) as temporary:
        pq.write_table(table, temporary)
    document = {"schema": SERVED_SCHEMA} | dict(about)
    write_text(folder / ABOUT, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return [folder / POINTS, folder / ABOUT]
