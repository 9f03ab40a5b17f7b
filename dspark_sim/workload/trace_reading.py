"""From a parquet file with valid metadata to a trace: structure is checked here, values by the rules.

A trace that fits is read whole. One that does not is read row group by row group, a column at a time, into
arrays that are mapped into memory (:mod:`~dspark_sim.workload.shelf`): the same trace, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import DataError, did_you_mean
from dspark_sim.schema import IntArray
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.shelf import Shelf, shelf_of
from dspark_sim.workload.trace_rules import check_requests
from dspark_sim.workload.traces import DrafterTrace, Trace, offsets

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

REQUEST_COLUMNS = ("request_id", "domain", "prompt_tokens", "output_tokens", "arrival_s")
_WANTED = {"request_id": "string", "domain": "string", "prompt_tokens": "an integer",
           "output_tokens": "an integer", "arrival_s": "double"}  # fmt: skip
BLOCK_COLUMNS = ("confidence_logit", "confidence_logit_free", "accept_rate")
_STRINGS = ("string", "large_string")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
#: Anchors that are read at once of a trace that is mapped.
_ANCHORS = 1 << 17
#: Bytes of an anchor beside those of its blocks, for one drafter: accepted tokens, as read and as replayed.
_COUNTS = 9
#: Bytes of an anchor's survivals in the padded tables, by draft token, of the current block and each lagged.
_TABLE = 32


class TraceReader:
    """One file, open, with its metadata.

    Args:
        path: names the file in refusals, and the trace.
        file: the open file.
        meta: its metadata, checked.
        memory: bytes that the trace may take with its tables before it is mapped.
    """

    def __init__(self, path: Path, file: pq.ParquetFile, meta: dict[str, Any], memory: int) -> None:
        self.path = path
        self.meta = meta
        self._file, self._memory = file, memory
        self._names: list[str] = file.schema_arrow.names
        self._shelf: Shelf | None = None
        self._rows_at_once = 1

    def trace(self) -> Trace:
        """Return the trace.

        Raises:
            DataError: the file breaks a rule of structure, or of the request columns.
        """
        self._check_names()
        if self._file.metadata.num_rows == 0:
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
        anchors = int(requests.offset_Q1[-1])
        if self._bytes_by_anchor() * anchors > self._memory:
            self._shelf = shelf_of(self.path)
            self._rows_at_once = max(1, _ANCHORS * len(length) // anchors)
        drafters = {name: self._drafter(name, info, length) for name, info in self.meta["drafters"].items()}
        return replace(requests, drafters=drafters)

    def _bytes_by_anchor(self) -> int:
        total = 0
        for name, info in self.meta["drafters"].items():
            blocks = sum(f"{name}.{column}" in self._names for column in BLOCK_COLUMNS)
            total += _COUNTS + 2 * info["gamma"] * blocks
            if f"{name}.confidence_logit" in self._names:
                total += _TABLE * (1 + info["gamma"])
        return total

    def _check_names(self) -> None:
        names, drafters = self._names, self.meta["drafters"]
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
        named = f": the metadata names drafter '{drafter}'" if dot else ""
        return f"{named}; must be {_WANTED.get(column, 'list<uint8>')}, see docs/trace-format.md"

    def _unknown(self, column: str, known: list[str]) -> str:
        drafter, dot, what = column.rpartition(".")
        if dot and what in ("accepted", *BLOCK_COLUMNS):
            return f"drafter '{drafter}' is not in the metadata{did_you_mean(drafter, self.meta['drafters'])}"
        return f"unknown column{did_you_mean(column, known)}"

    def _column(self, name: str, types: tuple[str, ...], nullable: bool = False) -> pa.Array:
        [column] = self._parts(name, types, nullable, whole=True)
        return column

    def _parts(
        self, name: str, types: tuple[str, ...], nullable: bool = False, whole: bool = False
    ) -> Iterator[pa.Array]:
        """Yield a column: in one part if the trace fits or ``whole``, else as the file's groups have it."""
        kind = str(self._file.schema_arrow.field(name).type)
        if kind not in types:
            raise DataError(self.path, f"column '{name}'", f"has type {kind}; must be {types[0]}")
        first = 0
        for part in self._read(name, whole or self._shelf is None):
            if part.null_count and not nullable:
                row = first + part.is_null().to_pylist().index(True)
                raise DataError(self.path, f"column '{name}', row {row}", "null; must be set")
            yield part
            first += len(part)

    def _read(self, name: str, whole: bool) -> Iterator[pa.Array]:
        if whole:
            yield self._file.read(columns=[name])[name].combine_chunks()
            return
        for group in range(self._file.num_row_groups):
            for batch in self._file.iter_batches(self._rows_at_once, [group], [name]):
                yield batch.column(0)

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
        column = f"{name}.accepted"
        return DrafterTrace(
            name=name,
            kind=info["kind"],
            gamma=gamma,
            accepted_N=self._kept(column, np.uint8, (), self._flat(column, "uint8", length)),
            confidence_logit_NG=logit,
            confidence_logit_free_NG=free,
            accept_rate_NG=rate,
            calibration=Calibration.from_json(fitted) if fitted else Calibration.identity(gamma),
            shelf=self._shelf,
        )

    def _block(self, name: str, gamma: int, length: IntArray) -> NDArray[np.float16] | None:
        if name not in self._names:
            return None
        element = f"fixed_size_list<element: halffloat>[{gamma}]"

        def rows() -> Iterator[pa.Array]:
            for lists in self._flat(name, element, length):
                values = lists.values[lists.offset * gamma : (lists.offset + len(lists)) * gamma]
                self._refuse_nulls(name, values)
                yield values

        block: NDArray[np.float16] = self._kept(name, np.float16, (gamma,), rows())
        return block

    def _kept(
        self, name: str, kind: type[np.generic], columns: tuple[int, ...], parts: Iterator[pa.Array]
    ) -> Any:
        """Return a column as one array: the one part that there is, or mapped."""
        arrays = (_numpy(part).reshape(-1, *columns) for part in parts)
        if self._shelf is None:
            [only] = arrays
            return only
        return self._shelf.array(name, kind, columns, arrays)

    def _flat(self, name: str, element: str, length: IntArray) -> Iterator[pa.Array]:
        """Yield what is in the lists of a column, each as long as its text."""
        first = 0
        for part in self._parts(name, (f"list<element: {element}>", f"large_list<element: {element}>")):
            ends = _numpy(part.offsets)
            got, wanted = np.diff(ends), length[first : first + len(part)]
            if (got != wanted).any():
                row = int(np.argmax(got != wanted))
                rule = f"list of {got[row]}; must be output_tokens = {wanted[row]} long"
                raise DataError(self.path, f"column '{name}', row {first + row}", rule)
            values = part.values[int(ends[0]) : int(ends[-1])]
            self._refuse_nulls(name, values)
            yield values
            first += len(part)

    def _refuse_nulls(self, name: str, values: pa.Array) -> None:
        if values.null_count:
            raise DataError(self.path, f"column '{name}'", "holds a null inside a list")


def _numpy(values: pa.Array) -> NDArray[Any]:
    """Return numbers without nulls, not copied.

    pyarrow's own ``to_numpy`` imports pandas, as its ``flatten`` imports pyarrow.compute: half a second.
    """
    return np.from_dlpack(values)
