"""Trace format v1: parquet, one row a request, metadata under the key ``dspark_sim``.

Columns: ``request_id``, ``domain``, ``prompt_tokens``, ``output_tokens``, ``arrival_s`` (nullable), and
per drafter D: ``D.accepted`` list<uint8> of length output_tokens; ``D.confidence_logit``,
``D.confidence_logit_free`` and ``D.accept_rate``, optional, lists of fixed-size float16 lists of gamma.
Logits, not probabilities: .9998 as a float16 probability is 1.0, which no calibration can mend.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import DataError, did_you_mean
from dspark_sim.files import atomic_path, find
from dspark_sim.schema import IntArray
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.trace_meta import META_KEY, check_meta, parse_meta
from dspark_sim.workload.trace_rules import check_requests, check_trace
from dspark_sim.workload.traces import DrafterTrace, Trace, offsets

if TYPE_CHECKING:
    import pyarrow as pa

REQUEST_COLUMNS = ("request_id", "domain", "prompt_tokens", "output_tokens", "arrival_s")
BLOCK_COLUMNS = ("confidence_logit", "confidence_logit_free", "accept_rate")
_STRINGS = ("string", "large_string")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def read_trace(name: str | os.PathLike[str]) -> Trace:
    """Read and check a trace: a path, or the bare name of a shipped one (``chat`` or ``chat.parquet``).

    Raises:
        InputError: no such file.
        DataError: the file breaks a rule of the format; one line names file, column, row and rule.
    """
    path = find(name, "traces", ".parquet")
    table, meta = _load(path)
    trace = _Reader(path, table, meta).trace()
    check_trace(trace, path)
    return trace


def write_trace(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write ``trace`` atomically. The same content gives the same bytes.

    Raises:
        DataError: the trace breaks a rule of the format.
    """
    import pyarrow.parquet as pq

    check_meta(trace.meta, path)
    check_trace(trace, path)
    table = _table(trace)
    blocks = [c for c in table.column_names if c.rpartition(".")[2] in BLOCK_COLUMNS]
    with atomic_path(path) as temporary:
        pq.write_table(
            table,
            temporary,
            row_group_size=table.num_rows,
            compression="zstd",
            compression_level=15,
            use_dictionary=[f"{c}.list.element" for c in table.column_names if c.endswith(".accepted")],
            column_encoding={f"{c}.list.element.list.element": "BYTE_STREAM_SPLIT" for c in blocks},
            write_statistics=False,
        )


def _load(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            text = (file.schema_arrow.metadata or {}).get(META_KEY.encode())
            if text is None:
                raise DataError(path, f"metadata '{META_KEY}'", "missing: not a dspark-sim trace")
            meta = parse_meta(text, path)
            return file.read(), meta
    except (pa.ArrowException, OSError) as error:
        raise DataError(path, "", f"not a readable parquet file ({str(error).splitlines()[0]})") from None


class _Reader:
    """From a table with valid metadata to a trace; checks structure, leaves values to the rules."""

    def __init__(self, path: Path, table: pa.Table, meta: dict[str, Any]) -> None:
        self.path = path
        self.table = table
        self.meta = meta

    def trace(self) -> Trace:
        self._check_names()
        if self.table.num_rows == 0:
            raise DataError(self.path, "", "empty trace: it holds no request")
        length = self._integers("output_tokens")
        requests = Trace(
            name=self.path.name.removesuffix(".parquet"),
            meta=self.meta,
            request_id=self._column("request_id", _STRINGS).to_pylist(),
            domain=self._column("domain", _STRINGS).to_pylist(),
            prompt_tokens_Q=self._integers("prompt_tokens"),
            output_tokens_Q=length,
            arrival_s_Q=self._arrival(),
            offset_Q1=offsets(length),
            drafters={},
        )
        check_requests(requests, self.path)
        drafters = {name: self._drafter(name, info, length) for name, info in self.meta["drafters"].items()}
        return replace(requests, drafters=drafters)

    def _check_names(self) -> None:
        names, drafters = self.table.column_names, self.meta["drafters"]
        required = [*REQUEST_COLUMNS, *(f"{d}.accepted" for d in drafters)]
        known = [*required, *(f"{d}.{c}" for d in drafters for c in BLOCK_COLUMNS)]
        for column in required:
            if column not in names:
                raise DataError(self.path, f"column '{column}'", f"missing{self._why(column)}")
        for column in names:
            if column not in known:
                raise DataError(self.path, f"column '{column}'", self._unknown(column, known))
        if len(set(names)) < len(names):
            raise DataError(self.path, "columns", "a column's name appears twice")

    def _why(self, column: str) -> str:
        drafter, dot, _ = column.rpartition(".")
        return f": the metadata names drafter '{drafter}'" if dot else ""

    def _unknown(self, column: str, known: list[str]) -> str:
        drafter, dot, what = column.rpartition(".")
        if dot and what in ("accepted", *BLOCK_COLUMNS):
            return f"drafter '{drafter}' is not in the metadata{did_you_mean(drafter, self.meta['drafters'])}"
        return f"unknown column{did_you_mean(column, known)}"

    def _column(self, name: str, types: tuple[str, ...], nullable: bool = False) -> pa.Array:
        column = self.table[name].combine_chunks()
        if str(column.type) not in types:
            raise DataError(self.path, f"column '{name}'", f"has type {column.type}; must be {types[0]}")
        if column.null_count and not nullable:
            row = column.is_null().to_pylist().index(True)
            raise DataError(self.path, f"column '{name}', row {row}", "null; must be set")
        return column

    def _integers(self, name: str) -> IntArray:
        return _numpy(self._column(name, _INTEGERS)).astype(np.int64)

    def _arrival(self) -> NDArray[np.float64] | None:
        column = self._column("arrival_s", ("double", "float", "null"), nullable=True)
        if column.null_count == len(column):
            return None
        return np.array(column.to_pylist(), dtype=np.float64)

    def _drafter(self, name: str, info: dict[str, Any], length: IntArray) -> DrafterTrace:
        gamma, fitted = info["gamma"], info.get("calibration")
        logit, free, rate = (self._block(f"{name}.{c}", gamma, length) for c in BLOCK_COLUMNS)
        return DrafterTrace(
            name=name,
            kind=info["kind"],
            gamma=gamma,
            accepted_N=_numpy(self._flat(f"{name}.accepted", "uint8", length)),
            confidence_logit_NG=logit,
            confidence_logit_free_NG=free,
            accept_rate_NG=rate,
            calibration=Calibration.from_json(fitted) if fitted else Calibration.identity(gamma),
        )

    def _block(self, name: str, gamma: int, length: IntArray) -> NDArray[np.float16] | None:
        if name not in self.table.column_names:
            return None
        lists = self._flat(name, f"fixed_size_list<element: halffloat>[{gamma}]", length)
        values = lists.values[lists.offset * gamma : (lists.offset + len(lists)) * gamma]
        self._refuse_nulls(name, values)
        return _numpy(values).reshape(-1, gamma)

    def _flat(self, name: str, element: str, length: IntArray) -> pa.Array:
        column = self._column(name, (f"list<element: {element}>", f"large_list<element: {element}>"))
        ends = _numpy(column.offsets)
        got = np.diff(ends)
        if (got != length).any():
            row = int(np.argmax(got != length))
            rule = f"list of {got[row]}; must be output_tokens = {length[row]} long"
            raise DataError(self.path, f"column '{name}', row {row}", rule)
        values = column.values[int(ends[0]) : int(ends[-1])]
        self._refuse_nulls(name, values)
        return values

    def _refuse_nulls(self, name: str, values: pa.Array) -> None:
        if values.null_count:
            raise DataError(self.path, f"column '{name}'", "holds a null inside a list")


def _numpy(values: pa.Array) -> NDArray[Any]:
    """Return numbers without nulls, not copied.

    pyarrow's own ``to_numpy`` imports pandas, as its ``flatten`` imports pyarrow.compute: half a second.
    """
    return np.from_dlpack(values)


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
