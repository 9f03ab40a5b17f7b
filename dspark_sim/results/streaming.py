"""Records of a run too long to keep: written to Parquet as they come, and summed on the way.

Steps leave when some thousands are there, requests when they end, so that memory does not grow with them.
What needs all steps at once, the quantiles of the gaps between tokens, is read off a histogram whose bins are
a thousandth wide; what needs all requests at once is read back from their file, a column at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.files import atomic_path
from dspark_sim.results.serving import (
    MS_PER_S,
    QUANTILES,
    REQUEST_COLUMNS,
    Window,
    read_requests,
    request_columns,
    serving_figures,
)
from dspark_sim.results.slo import Slo
from dspark_sim.schema import STEP_FIELDS, FloatArray, RequestLog, RunLog

#: Rows of a group.
GROUP = 1 << 16
_COLUMNS = (*STEP_FIELDS, "accepted_tokens")
_BIN = 1e-3  # of the gap itself
_SHORTEST_S, _BINS = 1e-7, 40_000

Columns = Mapping[str, NDArray[Any]]


class GroupedFile:
    """A Parquet file that is written a row group at a time; columns named ``*_s`` are times, others counts.

    Until the end, every finished group is a file of its own in the folder ``PATH.parts``, written whole or
    not at all: whatever ends the process, they can be read. The end puts them together as ``PATH``, one row
    group each, and removes the folder; a new file of that name removes what an earlier one left.
    """

    def __init__(self, path: str | os.PathLike[str], names: Sequence[str]) -> None:
        import pyarrow as pa

        self._target = Path(path)
        self._parts = self._target.with_name(f"{self._target.name}.parts")
        self._schema = pa.schema([(n, pa.float64() if n.endswith("_s") else pa.int64()) for n in names])
        self._waiting: list[Columns] = []
        self._rows = self._groups = 0
        shutil.rmtree(self._parts, ignore_errors=True)

    def add(self, rows: Columns) -> None:
        """Take rows; a group is written once it is full."""
        self._waiting.append(rows)
        self._rows += len(rows[self._schema.names[0]])
        if self._rows >= GROUP:
            self._write_groups(GROUP)

    def close(self) -> None:
        """Write what is left, and put the file in its place."""
        import pyarrow.parquet as pq

        if self._rows:
            self._write_groups(self._rows)
        elif not self._groups:
            self._write({name: np.empty(0) for name in self._schema.names})
        with (
            atomic_path(self._target) as temporary,
            pq.ParquetWriter(temporary, self._schema, compression="zstd") as writer,
        ):
            for group in range(self._groups):
                writer.write_table(pq.read_table(self._part(group), partitioning=None))
        shutil.rmtree(self._parts)

    def _part(self, group: int) -> Path:
        return self._parts / f"{group:06d}.parquet"

    def _write_groups(self, size: int) -> None:
        """Write all full groups of ``size`` rows, and keep what is behind them."""
        names = self._schema.names
        joined = {name: np.concatenate([rows[name] for rows in self._waiting]) for name in names}
        full = self._rows // size
        for group in range(full):
            self._write({name: column[group * size : (group + 1) * size] for name, column in joined.items()})
        self._waiting = [{name: column[full * size :] for name, column in joined.items()}]
        self._rows -= full * size

    def _write(self, rows: Columns) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {field.name: np.float64 if field.type == pa.float64() else np.int64 for field in self._schema}
        columns = {name: column.astype(kinds[name], copy=False) for name, column in rows.items()}
        with atomic_path(self._part(self._groups)) as temporary:
            pq.write_table(pa.table(columns, schema=self._schema), temporary, compression="zstd")
        self._groups += 1


class RunFiles:
    """Where steps and requests go: ``with RunFiles(steps, requests) as files: serve(..., sink=files)``.

    Both files are complete, or, if the block does not end, not there (:class:`GroupedFile` says what is).
    """

    def __init__(self, steps: str | os.PathLike[str], requests: str | os.PathLike[str]) -> None:
        self._requests_path = requests
        self._step_file = GroupedFile(steps, _COLUMNS)
        self._request_file = GroupedFile(requests, REQUEST_COLUMNS)
        self.steps = 0
        self._sums = np.zeros(len(_COLUMNS))
        self._gaps = np.zeros(_BINS)
        self._gap_sum_s = np.longdouble(0)  # so that it hardly depends on where the rows are cut
        self._most_waiting = 0

    def __enter__(self) -> RunFiles:
        """Return the sink."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the files in their places, unless the block failed."""
        if kind is None:
            self._step_file.close()
            self._request_file.close()

    def take_steps(self, table: FloatArray, gap_s: FloatArray) -> None:
        """Take rows [S, F] of steps, and gaps of single requests [s]."""
        self._step_file.add(dict(zip(_COLUMNS, table.T, strict=True)))
        self.steps += len(table)
        self._sums += table.sum(axis=0)
        self._most_waiting = max(
            self._most_waiting, int(table[:, STEP_FIELDS.index("waiting")].max(initial=0))
        )
        shared = table[:, STEP_FIELDS.index("gap_requests")]
        self._note_gaps(table[:, STEP_FIELDS.index("gap_s")], shared)
        self._note_gaps(gap_s, np.ones(len(gap_s)))

    def take_requests(self, log: RequestLog) -> None:
        """Take requests that have ended, in that order."""
        self._request_file.add(request_columns(log))

    def figures(self, run: RunLog, slos: Sequence[Slo] = (), window: Window | None = None) -> dict[str, Any]:
        """Return :func:`~dspark_sim.results.serving.serving_figures` of the run whose records these are.

        Gaps (``itl_ms``) are exact in the mean, and within a thousandth in the quantiles; all else is equal.
        """
        sums = dict(zip(_COLUMNS, self._sums.tolist(), strict=True))
        verified = sums["batch_tokens"] - sums["num_running"] - sums["prefill_tokens"]
        decoded = sums["committed_tokens"] - sums["prefill_outputs"]
        whole = replace(run, requests=read_requests(self._requests_path))
        return serving_figures(whole, slos, window) | {
            "steps": self.steps,
            "most_waiting": self._most_waiting,
            "accepted_len": decoded / run.rounds if run.rounds else None,
            "verify_len": verified / run.rounds if run.rounds else None,
            "itl_ms": self._gap_summary(),
        }

    def _note_gaps(self, gap_s: FloatArray, weight: FloatArray) -> None:
        self._gap_sum_s += (gap_s * weight).sum(dtype=np.longdouble)
        place = np.log(np.maximum(gap_s, _SHORTEST_S) / _SHORTEST_S) / np.log1p(_BIN)
        bins = np.minimum(place.astype(np.int64), _BINS - 1)
        self._gaps += np.bincount(bins, weight, minlength=_BINS)

    def _gap_summary(self) -> dict[str, float | None]:
        mass = np.cumsum(self._gaps)
        if not mass[-1]:
            return dict.fromkeys(("mean", *QUANTILES))
        place = np.searchsorted(mass, [q * mass[-1] for q in QUANTILES.values()])
        middle_s = _SHORTEST_S * (1 + _BIN) ** (place + 0.5)
        quantiles = dict(zip(QUANTILES, (middle_s * MS_PER_S).tolist(), strict=True))
        return {"mean": float(self._gap_sum_s) / float(mass[-1]) * MS_PER_S} | quantiles
