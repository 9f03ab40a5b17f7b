"""ServeGen: clients of a production service, as rates, burstiness and length histograms by window.

Nothing here is a request; requests are sampled, as ServeGen samples them: per client and window of
600 s, round(rate * 600) gaps from the client's family (Gamma or Weibull), rescaled to fill the window,
and lengths from the client's histograms, uniform within a bin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from dspark_sim.errors import InputError
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.importers.common import requests
from dspark_sim.workload.importers.registry import importer
from dspark_sim.workload.tables import NumberTable
from dspark_sim.workload.workloads import Workload

WINDOW_S = 600
FAMILIES = ("Gamma", "Weibull")
FIELDS = ("input_tokens", "output_tokens")
_WINDOWS = ("client_id", "t_s", "rate_rps", "family", "p1", "p2")
_LENGTHS = ("client_id", "t_s", "field", "bin_lo", "bin_hi", "prob")

#: More requests than this in one import is taken for a forgotten ``to_s``.
MAX_REQUESTS = 20_000_000


@dataclass(frozen=True, slots=True)
class Client:
    """One client in one window."""

    client: int
    t_s: int
    requests: int
    family: str
    shape: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Lengths of one field: bins [lo, hi) and the cumulative probability at their ends."""

    low: FloatArray
    high: FloatArray
    cumulative: FloatArray

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw lengths [tokens], at least 1: a bin by its probability, uniform within it."""
        uniform = random.random((2, count))
        bins = np.searchsorted(self.cumulative, uniform[0] * self.cumulative[-1], side="right")
        length = self.low[bins] + uniform[1] * (self.high[bins] - self.low[bins])
        whole: IntArray = np.maximum(np.floor(length), 1).astype(np.int64)
        return whole


@importer("servegen", gives="workload", file="*_windows.parquet (or .csv), its *_lengths beside it")
def servegen(
    path: Path,
    *,
    from_s: Annotated[float, Ge(0)] = 0.0,
    to_s: Annotated[float, Gt(0)] = 3600.0,
    rate_scale: Annotated[float, Gt(0)] = 1.0,
    seed: Annotated[int, Ge(0)] = 0,
    lengths: str = "",
) -> Workload:
    """Sample requests from the windows that start in [from_s, to_s).

    The gaps of a window fill it on a circle whose origin is uniform: with the origin at its start,
    every client would send a request at the same instant, the end of each window. Prompt and output
    lengths are drawn independently; a client's length table is the latest at or before the window,
    else its first. Clients without lengths are left out, with a note of their share of the requests.

    Args:
        path: columns client_id, t_s, rate_rps, family, p1 (shape), p2 (scale; rescaling undoes it).
        from_s: start of the first windows to sample [s].
        to_s: windows that start there or later are left out [s].
        rate_scale: factor on every rate.
        seed: of the sampling.
        lengths: file of the histograms; empty: ``path`` with ``_windows`` replaced by ``_lengths``.

    Raises:
        InputError: no window in the range, too many requests, or no file of lengths.
        DataError: a file breaks a rule.
    """
    histograms = _read_histograms(Path(lengths or path.with_name(path.name.replace("_windows", "_lengths"))))
    windows = [w for w in _read_windows(path, rate_scale) if from_s <= w.t_s < to_s]
    total = sum(window.requests for window in windows)
    if not 0 < total <= MAX_REQUESTS:
        raise InputError(
            f"{path}: {total:,} requests in windows that start in {from_s:g}..{to_s:g} s at {rate_scale:g} "
            f"times the rate; must be 1 to {MAX_REQUESTS:,}: choose from_s, to_s, rate_scale"
        )
    kept = [w for w in windows if all((w.client, field) in histograms for field in FIELDS)]
    if not kept:
        raise InputError(f"{path}: no client in {from_s:g}..{to_s:g} s has both length histograms")
    notes = [f"sampled windows {from_s:g}..{to_s:g} s at {rate_scale:g} times the rate, seed {seed}"]
    if missing := total - sum(window.requests for window in kept):
        share = 100 * missing / total
        notes.append(f"left out {share:.1f} % of the requests: their clients have no lengths")
    columns = zip(*_sample(kept, histograms, seed), strict=True)
    arrival, prompt, output = (np.concatenate(column) for column in columns)
    order = np.argsort(arrival, kind="stable")
    return requests(
        path,
        "servegen",
        prompt_tokens=prompt[order],
        output_tokens=output[order],
        arrival_s=arrival[order],
        notes=notes,
    )


def _sample(
    windows: list[Client], histograms: dict[tuple[int, str], dict[int, Histogram]], seed: int
) -> Iterator[tuple[FloatArray, IntArray, IntArray]]:
    """Yield arrivals [s], prompt and output lengths of each window; each has its own random stream."""
    for window in windows:
        random = stream(seed, "servegen", window.client, window.t_s)
        arrival = window.t_s + fill_window(window, random)
        prompt, output = (
            at_or_before(histograms[window.client, field], window.t_s).draw(window.requests, random)
            for field in FIELDS
        )
        yield arrival, prompt, output


def fill_window(window: Client, random: np.random.Generator) -> FloatArray:
    """Draw arrivals in [0, 600): gaps of the family, rescaled to fill the window, from a random origin."""
    draw = random.standard_gamma if window.family == "Gamma" else random.weibull
    gaps = draw(window.shape, window.requests)
    total = gaps.sum()
    # A shape near 0 can make every gap vanish next to one: then the requests come at one instant.
    ends = np.cumsum(gaps) / total if 0 < total < np.inf else np.ones(window.requests)
    times: FloatArray = np.sort((ends + random.random()) % 1.0) * WINDOW_S
    return times


def at_or_before(tables: dict[int, Histogram], t_s: int) -> Histogram:
    """Return the latest table that starts at or before ``t_s``, else the first."""
    return tables[max((start for start in tables if start <= t_s), default=min(tables))]


def _read_windows(path: Path, rate_scale: float) -> list[Client]:
    table = NumberTable(path, text=["family"])
    table.check_columns(_WINDOWS, (*_WINDOWS, "cv"))
    rate, shape = table.floats("rate_rps"), table.floats("p1")
    fine = np.isfinite(rate) & (rate >= 0)
    table.refuse_where("rate_rps", rate, ~fine, "must be a finite rate, 0 or more")
    table.refuse_where("p1", shape, ~(np.isfinite(shape) & (shape > 0)), "must be a finite shape above 0")
    family = np.array(table.strings("family"))
    table.refuse_where("family", family, ~np.isin(family, FAMILIES), f"must be one of: {', '.join(FAMILIES)}")
    count = np.rint(rate * rate_scale * WINDOW_S).astype(np.int64)
    columns = (table.integers("client_id", 0, "a client"), table.integers("t_s", 0, "seconds"), count)
    listed = zip(*(column.tolist() for column in (*columns, family, shape)), strict=True)
    return [Client(*row) for row in listed if row[2] > 0]


def _read_histograms(path: Path) -> dict[tuple[int, str], dict[int, Histogram]]:
    table = NumberTable(path, text=["field"])
    table.check_columns(_LENGTHS, (*_LENGTHS, "exact_mean"))
    low, high, chance = (table.floats(column) for column in ("bin_lo", "bin_hi", "prob"))
    table.refuse_where("bin_lo", low, ~((low >= 0) & (low < high)), "must be 0 or more and below bin_hi")
    table.refuse_where("prob", chance, ~((chance >= 0) & (chance <= 1)), "must lie in 0..1")
    keys = [table.integers("client_id", 0, "a client").tolist(), table.integers("t_s", 0, "seconds").tolist()]
    rows: dict[tuple[int, int, str], list[int]] = {}
    for row, key in enumerate(zip(*keys, table.strings("field"), strict=True)):
        rows.setdefault(key, []).append(row)
    found: dict[tuple[int, str], dict[int, Histogram]] = {}
    for (client, t_s, field), index in rows.items():
        histogram = Histogram(low[index], high[index], np.cumsum(chance[index]))
        found.setdefault((client, field), {})[t_s] = histogram
    return found
