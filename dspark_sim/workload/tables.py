"""Tables of numbers as people hand them over (CSV, parquet), read strictly.

A refusal names file, column, row and rule. Rows count from 0; for a CSV file the line is said too
(blank lines, which the reader skips, do not count).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import DataError, InputError, did_you_mean
from dspark_sim.schema import FloatArray, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
CSV, PARQUET = ".csv", ".parquet"

#: Beyond this a count of tokens or seconds is a mistake, and sums of counts could overflow.
MAX_INTEGER = 2**31 - 1


class NumberTable:
    """One CSV or parquet file, its columns taken by name.

    Args:
        path: the file; the suffix says the format.
        text: columns of a CSV file that are text whatever they look like.

    Raises:
        InputError: no such file, or another suffix.
        DataError: not readable as what its suffix says.
    """

    def __init__(self, path: str | os.PathLike[str], text: Sequence[str] = ()) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{path}: no such file")
        if self.path.suffix not in (CSV, PARQUET):
            raise InputError(f"{path}: must be a {CSV} or {PARQUET} file")
        self._table = self._read(text)

    def _read(self, text: Sequence[str]) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow import csv

        try:
            if self.path.suffix == PARQUET:
                return pq.read_table(self.path, partitioning=None)
            types = csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()))
            return csv.read_csv(self.path, convert_options=types)
        except (pa.ArrowException, OSError) as error:
            kind = self.path.suffix[1:]
            raise DataError(self.path, "", f"not readable as {kind} ({str(error).splitlines()[0]})") from None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._table.column_names)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._table.num_rows)

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Key-value metadata of the file, text only."""
        raw = self._table.schema.metadata or {}
        return {key.decode(): value.decode(errors="replace") for key, value in raw.items()}

    def has(self, column: str) -> bool:
        """Whether the column is there and not empty throughout."""
        return column in self.names and self._table[column].null_count < self.rows

    def check_columns(self, required: Iterable[str], known: Iterable[str], hint: str = "") -> None:
        """Check that all required columns are there, and no unknown one.

        Raises:
            DataError: a column is missing, unknown or named twice, or the file has no row.
        """
        names, expected = self.names, list(known)
        for column in required:
            if column not in names:
                raise DataError(self.path, f"column '{column}'", f"missing{self._near(column)}{hint}")
        for column in names:
            if column not in expected:
                rule = f"unknown{did_you_mean(column, expected)}{hint}"
                raise DataError(self.path, f"column '{column}'", rule)
        if len(set(names)) < len(names):
            raise DataError(self.path, "columns", "a column's name appears twice")
        if self.rows == 0:
            raise DataError(self.path, "", "holds no row")

    def _near(self, column: str) -> str:
        return did_you_mean(column, self.names).replace("did you mean", "the file has")

    def integers(self, column: str, least: int, unit: str = "tokens") -> IntArray:
        """Return a column of whole numbers >= ``least``.

        Raises:
            DataError: a value that is none, missing, or below.
        """
        values = self.floats(column)
        rule = f"must be a whole number of {unit}, at least {least}"
        fine = np.isfinite(values) & (values >= least) & (values == np.floor(values))
        self.refuse_where(column, values, ~fine, rule)
        self.refuse_where(column, values, values > MAX_INTEGER, f"must be at most {MAX_INTEGER:,}")
        return values.astype(np.int64)

    def floats(self, column: str) -> FloatArray:
        """Return a column of numbers; NaN where a cell is empty.

        Raises:
            DataError: the column holds something else than numbers.
        """
        import pyarrow as pa

        array = self._table[column].combine_chunks()
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            self._refuse_text(column, array)
        if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
            if array.null_count < len(array):
                raise DataError(self.path, f"column '{column}'", f"has type {array.type}; must be numbers")
            return np.full(len(array), np.nan)
        numbers: FloatArray = array.to_numpy(zero_copy_only=False).astype(np.float64)
        return numbers

    def strings(self, column: str) -> list[str]:
        """Return a column as text; empty cells are refused.

        Raises:
            DataError: a cell is empty.
        """
        values: list[Any] = self._table[column].to_pylist()
        empty = np.array([value in (None, "") for value in values])
        self.refuse_where(column, np.array(values, dtype=object), empty, "must be set")
        return [str(value) for value in values]

    def lists(self, column: str) -> list[list[int]]:
        """Return a column of lists."""
        values: list[list[int]] = self._table[column].to_pylist()
        return values

    def _refuse_text(self, column: str, array: pa.Array) -> None:
        import pyarrow.compute as pc

        number = pc.fill_null(pc.match_substring_regex(array, _NUMBER), True)
        wrong = ~number.to_numpy(zero_copy_only=False)
        self.refuse_where(column, np.array(array.to_pylist(), dtype=object), wrong, "not a number")
        raise DataError(self.path, f"column '{column}'", "holds text; must be numbers")

    def refuse_where(self, column: str, values: NDArray[Any], wrong: NDArray[np.bool_], rule: str) -> None:
        """Refuse the first row where ``wrong`` holds.

        Raises:
            DataError: there is one.
        """
        if wrong.any():
            row = int(np.argmax(wrong))
            line = f" (line {row + 2})" if self.path.suffix == CSV else ""
            raise DataError(self.path, f"column '{column}', row {row}{line}", f"{values[row]}: {rule}")
