"""The request table: when requests arrive and how long they are, as flat arrays.

Columns of a file (CSV or parquet): ``prompt_tokens`` and ``output_tokens`` (at least 1 each);
``arrival_s`` (seconds, sorted, not negative; absent or empty throughout: lengths only);
``cached_prefix_tokens`` (optional: leading prompt tokens that a prefix cache holds already) and
``domain`` (optional label). Shape legend: Q requests.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import InputError
from dspark_sim.files import atomic_path
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.tables import PARQUET, NumberTable
from dspark_sim.workload.trace_meta import META_KEY as TRACE_KEY

if TYPE_CHECKING:
    import pyarrow as pa

META_KEY = "dspark_sim_workload"
FORMAT = 1
LENGTHS = ("prompt_tokens", "output_tokens")
COLUMNS = ("arrival_s", *LENGTHS, "cached_prefix_tokens", "domain")
#: Columns of request traces in circulation that the table has no use for.
IGNORED = ("request_id", "hash_ids")
#: The cached prefix that a cache without limit would have given: an upper bound, and taken as such.
UNLIMITED_CACHE = "cached_prefix_tokens_infinite"


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests in order of arrival.

    Attributes:
        name: label in tables (the file's name without its suffix).
        source: where it comes from; JSON.
        arrival_s_Q: arrival times [s], sorted; None: lengths only.
        prompt_tokens_Q, output_tokens_Q: lengths [tokens], at least 1; output counts prefill's token.
        cached_prefix_tokens_Q: leading prompt tokens in a prefix cache [tokens]; None: not known.
        domain_Q: index into ``domains``; None: no labels.
    """

    name: str
    source: dict[str, Any]
    arrival_s_Q: FloatArray | None
    prompt_tokens_Q: IntArray
    output_tokens_Q: IntArray
    cached_prefix_tokens_Q: IntArray | None = None
    domain_Q: IntArray | None = None
    domains: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        """Number of requests, Q."""
        return len(self.prompt_tokens_Q)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of all columns; name and source do not count."""
        digest = hashlib.sha256(json.dumps(self.domains).encode())
        for array in self._arrays():
            held = np.zeros(0) if array is None else array
            digest.update(f"{held.dtype.str}{held.shape}".encode())
            digest.update(np.ascontiguousarray(held).tobytes())
        return digest.hexdigest()

    def _arrays(self) -> list[NDArray[Any] | None]:
        lengths = [self.prompt_tokens_Q, self.output_tokens_Q, self.cached_prefix_tokens_Q]
        return [self.arrival_s_Q, *lengths, self.domain_Q]

    @property
    def arrivals(self) -> FloatArray:
        """Arrival times [s].

        Raises:
            InputError: the workload holds lengths only.
        """
        if self.arrival_s_Q is None:
            raise InputError(f"workload '{self.name}' holds lengths only: it has no column 'arrival_s'")
        return self.arrival_s_Q

    def take(self, rows: IntArray | slice) -> Workload:
        """Return the chosen requests, in that order."""
        arrival, prompt, output, cached, domain = (None if a is None else a[rows] for a in self._arrays())
        assert prompt is not None, "every workload has lengths"
        assert output is not None, "every workload has lengths"
        return replace(
            self,
            arrival_s_Q=arrival,
            prompt_tokens_Q=prompt,
            output_tokens_Q=output,
            cached_prefix_tokens_Q=cached,
            domain_Q=domain,
        )

    def scale_rate(self, factor: float) -> Workload:
        """Return the same requests at ``factor`` times the rate: times divided by it.

        Raises:
            InputError: the factor is not a finite number above 0, or there are no arrivals.
        """
        if not (math.isfinite(factor) and factor > 0):
            raise InputError(f"rate scale {factor}: must be a finite number above 0")
        return replace(self, arrival_s_Q=self.arrivals / factor)

    def window(self, from_s: float, to_s: float) -> Workload:
        """Return the requests that arrive in [from_s, to_s); time then starts at ``from_s``.

        Raises:
            InputError: the window is empty or holds no arrival.
        """
        first, last = np.searchsorted(self.arrivals, [from_s, to_s])
        if not (0 <= from_s < to_s) or first == last:
            raise InputError(
                f"workload '{self.name}': no arrival in {from_s:g}..{to_s:g} s; "
                f"arrivals lie in {self.arrivals[0]:g}..{self.arrivals[-1]:g} s"
            )
        kept = self.take(slice(int(first), int(last)))
        return replace(kept, arrival_s_Q=kept.arrivals - from_s)

    def head(self, count: int) -> Workload:
        """Return the first ``count`` requests (all of them if there are fewer).

        Raises:
            InputError: ``count`` is below 1.
        """
        if count < 1:
            raise InputError(f"head {count}: must be at least 1 request")
        return self.take(slice(count))


def read_workload(path: str | os.PathLike[str]) -> Workload:
    """Read and check a request table; a trace serves as the table of its own texts.

    Raises:
        InputError: no such file, or neither .csv nor .parquet.
        DataError: the file breaks a rule; one line names file, column, row and rule.
    """
    table = NumberTable(path)
    hint = "; a request table has the columns " + ", ".join(COLUMNS)
    blocks = [c for c in table.names if "." in c] if TRACE_KEY in table.metadata else []
    table.check_columns(LENGTHS, (*COLUMNS, *IGNORED, UNLIMITED_CACHE, *blocks), hint)
    prompt, output = (table.integers(column, least=1) for column in LENGTHS)
    domains, domain_Q = _domains(table)
    return Workload(
        name=table.path.name.removesuffix(table.path.suffix),
        source=_source(table),
        arrival_s_Q=_arrivals(table),
        prompt_tokens_Q=prompt,
        output_tokens_Q=output,
        cached_prefix_tokens_Q=_cached(table, prompt),
        domain_Q=domain_Q,
        domains=domains,
    )


def _arrivals(table: NumberTable) -> FloatArray | None:
    if not table.has("arrival_s"):
        return None
    arrival = table.floats("arrival_s")
    wrong = ~(np.isfinite(arrival) & (arrival >= 0))
    table.refuse_where(
        "arrival_s", arrival, wrong, "must be finite, not negative, and set in all rows or none"
    )
    back = np.concatenate([[False], np.diff(arrival) < 0])
    table.refuse_where("arrival_s", arrival, back, "earlier than the row before; arrivals must be sorted")
    return arrival


def _cached(table: NumberTable, prompt_tokens_Q: IntArray) -> IntArray | None:
    column = next((c for c in ("cached_prefix_tokens", UNLIMITED_CACHE) if table.has(c)), None)
    if column is None:
        return None
    cached = table.integers(column, least=0)
    table.refuse_where(column, cached, cached > prompt_tokens_Q, "longer than the prompt")
    return cached


def _domains(table: NumberTable) -> tuple[tuple[str, ...], IntArray | None]:
    if not table.has("domain"):
        return (), None
    return label_codes(table.strings("domain"))


def label_codes(labels: list[str]) -> tuple[tuple[str, ...], IntArray]:
    """Return the distinct labels, sorted, and the index of each label among them."""
    distinct, index = np.unique(labels, return_inverse=True)
    return tuple(distinct.tolist()), index.astype(np.int64)


def _source(table: NumberTable) -> dict[str, Any]:
    for key in (META_KEY, "provenance"):
        if key in table.metadata:
            try:
                document = json.loads(table.metadata[key])
            except ValueError:
                continue
            return dict(document) if isinstance(document, dict) else {"provenance": document}
    return {"file": table.path.name}


def write_workload(path: str | os.PathLike[str], workload: Workload) -> None:
    """Write a request table as parquet, atomically. The same content gives the same bytes.

    Raises:
        InputError: the path does not end in .parquet.
    """
    import pyarrow.parquet as pq

    if not str(path).endswith(PARQUET):
        raise InputError(f"{path}: a request table is written as {PARQUET}")
    table = _table(workload)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=max(1, len(workload)))


def _table(workload: Workload) -> pa.Table:
    import pyarrow as pa

    columns = {
        "arrival_s": workload.arrival_s_Q,
        "prompt_tokens": workload.prompt_tokens_Q,
        "output_tokens": workload.output_tokens_Q,
        "cached_prefix_tokens": workload.cached_prefix_tokens_Q,
    }
    arrays = {name: pa.array(values) for name, values in columns.items() if values is not None}
    if workload.domain_Q is not None:
        labels = pa.array(workload.domains, pa.string())
        arrays["domain"] = labels.take(pa.array(workload.domain_Q))
    document = {"format": FORMAT, **workload.source}
    return pa.table(arrays).replace_schema_metadata({META_KEY: json.dumps(document, sort_keys=True)})


def describe(workload: Workload) -> dict[str, Any]:
    """Return the figures of a workload: requests, span, rate, CV of the gaps, lengths."""
    figures: dict[str, Any] = {"requests": len(workload)}
    arrival = workload.arrival_s_Q
    if arrival is not None and len(arrival) > 1 and arrival[-1] > arrival[0]:
        gaps = np.diff(arrival)
        figures["span_s"] = float(arrival[-1] - arrival[0])
        figures["rate_per_s"] = len(arrival) / figures["span_s"]
        figures["cv_gaps"] = float(gaps.std() / gaps.mean())
    for name, lengths in zip(LENGTHS, (workload.prompt_tokens_Q, workload.output_tokens_Q), strict=True):
        quantiles = np.quantile(lengths, [0.1, 0.5, 0.9, 0.99])
        figures[name] = {"mean": float(lengths.mean())} | dict(
            zip(("p10", "p50", "p90", "p99"), quantiles.tolist(), strict=True)
        )
    return figures
