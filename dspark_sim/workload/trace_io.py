"""Trace format v1: parquet, one row a request, metadata under the key ``dspark_sim``.

Columns: ``request_id``, ``domain``, ``prompt_tokens``, ``output_tokens``, ``arrival_s`` (nullable), and
per drafter D: ``D.accepted`` list<uint8> of length output_tokens; ``D.confidence_logit``,
``D.confidence_logit_free`` and ``D.accept_rate``, optional, lists of fixed-size float16 lists of gamma.
Logits, not probabilities: .9998 as a float16 probability is 1.0, which no calibration can mend.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import DataError
from dspark_sim.files import atomic_path, find
from dspark_sim.schema import TRACE_FORMAT, IntArray
from dspark_sim.workload.shelf import memory_for_traces
from dspark_sim.workload.trace_meta import META_KEY, check_meta, parse_meta
from dspark_sim.workload.trace_reading import BLOCK_COLUMNS, TraceReader
from dspark_sim.workload.trace_rules import check_trace
from dspark_sim.workload.traces import DrafterTrace, Trace

if TYPE_CHECKING:
    import pyarrow as pa

#: Anchors of a row group, about: what a reader of a mapped trace holds at once.
_GROUP = 1 << 20
#: Bytes of a file that are read at once.
_BUFFER = 1 << 20
_CHECKED = f"keeps-format-{TRACE_FORMAT}"


def read_trace(name: str | os.PathLike[str], memory: int | None = None) -> Trace:
    """Read and check a trace: a path, or the bare name of a shipped one (``chat`` or ``chat.parquet``).

    A trace that would take more than ``memory`` bytes with its tables is read row group by row group into
    files that are mapped into memory (:mod:`~dspark_sim.workload.shelf`); it is the same trace.

    Args:
        name: the file.
        memory: bytes; None: what the environment variable ``DSPARK_SIM_TRACE_MIB`` says in MiB, or a
            quarter of this machine's memory.

    Raises:
        InputError: no such file, or a trace that cannot be laid out on disk.
        DataError: the file breaks a rule of the format; one line names file, column, row and rule.
    """
    path = find(name, "traces", ".parquet")
    trace = _load(path, memory_for_traces() if memory is None else memory)
    shelf = next((d.shelf for d in trace.drafters.values() if d.shelf is not None), None)
    if shelf is None or not shelf.says(_CHECKED):
        check_trace(trace, path)
        if shelf is not None:
            shelf.note(_CHECKED)
    return trace


def write_trace(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write ``trace`` atomically, in row groups of about a million anchors. Same content, same bytes.

    Raises:
        DataError: the trace breaks a rule of the format.
    """
    write_parts(path, [trace])


def write_parts(path: str | os.PathLike[str], parts: Iterable[Trace]) -> None:
    """Write a trace that is made part by part, with the metadata of the first; one part is held at a time.

    Raises:
        DataError: a part breaks a rule of the format, or repeats a request of an earlier one.
    """
    import pyarrow.parquet as pq

    seen: set[str] = set()
    with atomic_path(path) as temporary:
        writer = None
        for part in parts:
            check_meta(part.meta, path)
            check_trace(part, path)
            repeated = seen.intersection(part.request_id)
            if repeated:
                rule = f"{min(repeated)!r} is there twice; every request_id must be unique"
                raise DataError(path, "column 'request_id'", rule)
            seen.update(part.request_id)
            table = _table(part)
            if writer is None:
                writer = pq.ParquetWriter(temporary, table.schema, **_layout(table.column_names))
            group = max(1, _GROUP * table.num_rows // int(part.offset_Q1[-1]))
            writer.write_table(table, row_group_size=group)
        if writer is None:
            raise DataError(path, "", "empty trace: it holds no request")
        writer.close()


def _layout(names: list[str]) -> dict[str, Any]:
    """Return how columns are compressed."""
    blocks = [c for c in names if c.rpartition(".")[2] in BLOCK_COLUMNS]
    return {
        "compression": "zstd",
        "compression_level": 15,
        "use_dictionary": [f"{c}.list.element" for c in names if c.endswith(".accepted")],
        "column_encoding": {f"{c}.list.element.list.element": "BYTE_STREAM_SPLIT" for c in blocks},
        "write_statistics": False,
    }


def _load(path: Path, memory: int) -> Trace:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER) as file:
            text = (file.schema_arrow.metadata or {}).get(META_KEY.encode())
            if text is None:
                raise DataError(path, f"metadata '{META_KEY}'", "missing: not a dspark-sim trace")
            return TraceReader(path, file, parse_meta(text, path), memory).trace()
    except (pa.ArrowException, OSError) as error:
        raise DataError(path, "", f"not a readable parquet file ({str(error).splitlines()[0]})") from None


def _table(trace: Trace) -> pa.Table:
    import pyarrow as pa

    arrival = trace.arrival_s_Q
    columns: dict[str, pa.Array] = {
        "request_id": pa.array(trace.request_id, pa.string()),
        "domain": pa.array(trace.domain, pa.string()),
        "prompt_tokens": pa.array(trace.prompt_tokens_Q, pa.int32()),
        "output_tokens": pa.array(trace.output_tokens_Q, pa.int32()),
        "arrival_s": pa.nulls(len(trace.domain), pa.float64()) if arrival is None else pa.array(arrival),
    }
    for drafter in trace.drafters.values():
        columns |= _drafter_columns(drafter, trace.offset_Q1)
    text = json.dumps(trace.meta, separators=(",", ":"))
    return pa.table(columns).replace_schema_metadata({META_KEY: text})


def _drafter_columns(drafter: DrafterTrace, offset_Q1: IntArray) -> dict[str, pa.Array]:
    import pyarrow as pa

    ends = pa.array(offset_Q1, pa.int32())
    blocks = (drafter.confidence_logit_NG, drafter.confidence_logit_free_NG, drafter.accept_rate_NG)
    columns = {f"{drafter.name}.accepted": pa.ListArray.from_arrays(ends, pa.array(drafter.accepted_N))}
    for name, block in zip(BLOCK_COLUMNS, blocks, strict=True):
        if block is not None:
            rows = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), drafter.gamma)
            columns[f"{drafter.name}.{name}"] = pa.ListArray.from_arrays(ends, rows)
    return columns
