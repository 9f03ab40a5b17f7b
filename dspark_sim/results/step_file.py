"""Steps of a run too long to keep: written to Parquet as they come, and summed on the way.

Memory does not grow with the steps: a row group is written when its rows are there. What needs all of them
at once, the quantiles of the gaps between tokens, is read off a histogram whose bins are a thousandth wide.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dspark_sim.files import atomic_path
from dspark_sim.results.serving import MS_PER_S, QUANTILES, serving_figures
from dspark_sim.schema import STEP_FIELDS, FloatArray, RunLog

#: Rows of a group.
GROUP = 1 << 16
#: Columns that are times; the others are counts.
TIMES = ("start_s", "step_s", "gap_s")
_COLUMNS = (*STEP_FIELDS, "accepted_tokens")
_BIN = 1e-3  # of the gap itself
_SHORTEST_S, _BINS = 1e-7, 40_000


class StepFile:
    """Where steps go: ``with StepFile("steps.parquet") as steps: serve(..., sink=steps)``.

    The file is complete, or, if the block fails, not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._target = path
        self._waiting: list[FloatArray] = []
        self._rows = self.steps = 0
        self._sums = np.zeros(len(_COLUMNS))
        self._gaps = np.zeros(_BINS)
        self._gap_sum_s = 0.0
        self._most_waiting = 0
        self._open: AbstractContextManager[Path] | None = None

    def __enter__(self) -> StepFile:
        """Open the file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._open = atomic_path(self._target)
        kinds = [(name, pa.float64() if name in TIMES else pa.int64()) for name in _COLUMNS]
        self._schema = pa.schema(kinds)
        self._writer = pq.ParquetWriter(self._open.__enter__(), self._schema, compression="zstd")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left, and put the file in its place."""
        assert self._open is not None
        if kind is None:
            self._write()
        self._writer.close()
        self._open.__exit__(kind, value, trace)

    def take(self, table: FloatArray, gap_s: FloatArray) -> None:
        """Take rows [S, F] of steps, and gaps of single requests [s]."""
        self._waiting.append(table)
        self._rows += len(table)
        self.steps += len(table)
        self._sums += table.sum(axis=0)
        self._most_waiting = max(
            self._most_waiting, int(table[:, STEP_FIELDS.index("waiting")].max(initial=0))
        )
        shared = table[:, STEP_FIELDS.index("gap_requests")]
        self._note_gaps(table[:, STEP_FIELDS.index("gap_s")], shared)
        self._note_gaps(gap_s, np.ones(len(gap_s)))
        if self._rows >= GROUP:
            self._write()

    def figures(self, run: RunLog) -> dict[str, Any]:
        """Return :func:`~dspark_sim.results.serving.serving_figures` of the run whose steps these are.

        Gaps (``itl_ms``) are exact in the mean, and within a thousandth in the quantiles.
        """
        sums = dict(zip(_COLUMNS, self._sums.tolist(), strict=True))
        verified = sums["batch_tokens"] - sums["num_running"] - sums["prefill_tokens"]
        decoded = sums["committed_tokens"] - sums["prefill_outputs"]
        return serving_figures(run) | {
            "steps": self.steps,
            "most_waiting": self._most_waiting,
            "accepted_len": decoded / run.rounds if run.rounds else None,
            "verify_len": verified / run.rounds if run.rounds else None,
            "itl_ms": self._gap_summary(),
        }

    def _note_gaps(self, gap_s: FloatArray, weight: FloatArray) -> None:
        self._gap_sum_s += float((gap_s * weight).sum())
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
        return {"mean": self._gap_sum_s / float(mass[-1]) * MS_PER_S} | quantiles

    def _write(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        table = np.concatenate(self._waiting)
        columns = {
            name: column if name in TIMES else column.astype(np.int64)
            for name, column in zip(_COLUMNS, table.T, strict=True)
        }
        self._writer.write_table(pa.table(columns, schema=self._schema))
        self._waiting.clear()
        self._rows = 0
