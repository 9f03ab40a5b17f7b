"""Acceptance records of real engines: rounds counted by accepted drafts, and what they say.

Records tell how many drafts a round accepted at the anchors that a run *visited*. A dense trace needs
every anchor, so records never become one; they become a summary by draft position, from which
``dspark-sim synth`` draws a synthetic trace, labelled so. Shape legend: Q requests, G = gamma,
J = 0..gamma accepted drafts, M rounds.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from dspark_sim.errors import DataError, InputError
from dspark_sim.files import atomic_path
from dspark_sim.schema import IntArray
from dspark_sim.specs import rule_words

if TYPE_CHECKING:
    import pyarrow as pa

META_KEY = "dspark_sim_acceptance"
FORMAT = 1
#: What the conditionals rest on. ``rounds``: verified lengths are known round by round; ``histogram``:
#: counts of accepted drafts, every round taken for a full block; ``rates``: printed survivals by
#: position; ``geometric``: one mean length, every position taken for alike.
Basis = Literal["rounds", "histogram", "rates", "geometric"]


@dataclass(frozen=True, slots=True)
class AcceptanceSummary:
    """Acceptance by draft position.

    Attributes:
        gamma: draft positions, at least 1.
        rounds: rounds behind the figures; None: the source does not say.
        accepted_len: tokens per round, bonus included: 1 + accepted drafts / rounds.
        conditional: share that accepts position j, of the rounds that accepted 1..j-1 and verified j;
            None where no round reached it.
        reached: those rounds, per position; None: the source does not say.
        basis: what the conditionals rest on.
        caveats: what a reader must know of them.
    """

    gamma: Annotated[int, Ge(1)]
    rounds: int | None
    accepted_len: Annotated[float, Ge(1)]
    conditional: tuple[Annotated[float, Ge(0), Le(1)] | None, ...]
    reached: tuple[int, ...] | None
    basis: Basis
    caveats: tuple[str, ...] = ()

    @property
    def survival(self) -> tuple[float | None, ...]:
        """Running products of the conditionals; None from the first position that is not known."""
        known = [np.nan if c is None else c for c in self.conditional]
        return tuple(None if np.isnan(s) else float(s) for s in np.cumprod(known))

    def filled(self, low: float = 0.01, high: float = 0.99) -> tuple[float, ...]:
        """Return conditionals for synthesis: positions never reached take the last known one's.

        They are kept within ``low``..``high``: none in a few rounds does not mean never.

        Raises:
            InputError: no position is known.
        """
        values: list[float] = []
        for value in self.conditional:
            if value is None and not values:
                raise InputError("acceptance summary: not one round verified a draft")
            values.append(values[-1] if value is None else min(max(value, low), high))
        return tuple(values)


@dataclass(frozen=True, eq=False)
class Rounds:
    """Round by round, all requests laid end to end: request q has rows offset_Q1[q]..offset_Q1[q+1]."""

    offset_Q1: IntArray
    accepted_M: IntArray
    drafted_M: IntArray


@dataclass(frozen=True, eq=False)
class RequestCounts:
    """One row a request.

    Attributes:
        request_id: names of the requests.
        completion_tokens_Q: output tokens; -1: the record does not say.
        steps_Q: rounds.
        drafted_Q: draft tokens as the producer counts them: proposed or verified.
        accepted_Q: drafts accepted, bonus excluded.
        histogram_QJ: rounds by accepted drafts.
        rounds: round by round, if every request has them.
    """

    request_id: list[str]
    completion_tokens_Q: IntArray
    steps_Q: IntArray
    drafted_Q: IntArray
    accepted_Q: IntArray
    histogram_QJ: IntArray
    rounds: Rounds | None


@dataclass(frozen=True, eq=False)
class AcceptanceRecords:
    """What an importer found: a summary, and the requests behind it if the source has them."""

    name: str
    source: dict[str, Any]
    summary: AcceptanceSummary
    requests: RequestCounts | None = None


def summarise(requests: RequestCounts, caveats: tuple[str, ...] = ()) -> AcceptanceSummary:
    """Return the summary of counted requests, from rounds where they are, else from the histograms."""
    histogram_J = requests.histogram_QJ.sum(axis=0)
    gamma = len(histogram_J) - 1
    survived = at_least(histogram_J)
    if requests.rounds is not None:
        accepted, drafted = requests.rounds.accepted_M[:, None], requests.rounds.drafted_M[:, None]
        reached = ((accepted >= np.arange(gamma)) & (drafted > np.arange(gamma))).sum(axis=0)
    else:
        reached = np.append(histogram_J.sum(), survived[:-1])
    steps = int(requests.steps_Q.sum())
    return AcceptanceSummary(
        gamma=gamma,
        rounds=steps,
        accepted_len=1.0 + int(requests.accepted_Q.sum()) / steps,
        conditional=ratios(survived, reached),
        reached=tuple(reached.tolist()),
        basis="histogram" if requests.rounds is None else "rounds",
        caveats=(*caveats, *_trimmed(requests, gamma)),
    )


def _trimmed(requests: RequestCounts, gamma: int) -> tuple[str, ...]:
    """Return the caveat of rounds that verified less than a full block."""
    drafted, full = int(requests.drafted_Q.sum()), int(requests.steps_Q.sum()) * gamma
    if drafted >= full:
        return ()
    share = f"only {100 * drafted / full:.0f} % of full blocks was drafted or verified"
    if requests.rounds is None:
        return (f"{share}: late positions count as rejected, so conditionals are too low",)
    return (f"{share}: conditionals hold for the verified positions, which a scheduler chose for their odds",)


def at_least(histogram_J: IntArray) -> IntArray:
    """Return rounds that accepted at least 1..gamma drafts [G]."""
    counts: IntArray = histogram_J[::-1].cumsum()[::-1][1:]
    return counts


def ratios(above: IntArray, below: IntArray) -> tuple[float | None, ...]:
    """Return above / below by position, None where nothing is below."""
    return tuple(a / b if b else None for a, b in zip(above.tolist(), below.tolist(), strict=True))


def geometric(gamma: int, accepted_len: float) -> float:
    """Return the acceptance alpha, alike at all positions, of a mean accepted length:
    1 + alpha + ... + alpha**gamma = accepted_len.

    Raises:
        InputError: no alpha in 0..1 has that length.
    """
    from scipy.optimize import brentq

    if not 1.0 <= accepted_len <= gamma + 1.0:
        raise InputError(f"accepted length {accepted_len:g}: must lie in 1..{gamma + 1} at gamma {gamma}")
    powers = np.arange(gamma + 1)
    return float(brentq(lambda alpha: float((alpha**powers).sum()) - accepted_len, 0.0, 1.0))


def write_acceptance(path: str | os.PathLike[str], records: AcceptanceRecords) -> None:
    """Write records as parquet, one row a request, the summary in the metadata; atomically.

    Raises:
        InputError: the path does not end in .parquet.
    """
    import pyarrow.parquet as pq

    if not str(path).endswith(".parquet"):
        raise InputError(f"{path}: acceptance records are written as .parquet")
    document = {"format": FORMAT, "source": records.source, "summary": asdict(records.summary)}
    text = json.dumps(document, sort_keys=True, allow_nan=False)
    table = _table(records.requests).replace_schema_metadata({META_KEY: text})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _table(requests: RequestCounts | None) -> pa.Table:
    import pyarrow as pa

    if requests is None:
        return pa.table({"request_id": pa.array([], pa.string())})
    completion = requests.completion_tokens_Q
    columns: dict[str, pa.Array] = {
        "request_id": pa.array(requests.request_id, pa.string()),
        "completion_tokens": pa.array(completion, mask=completion < 0),
        "steps": pa.array(requests.steps_Q),
        "drafted": pa.array(requests.drafted_Q),
        "accepted": pa.array(requests.accepted_Q),
        "histogram": pa.array(requests.histogram_QJ.tolist(), pa.list_(pa.int64())),
    }
    if (rounds := requests.rounds) is not None:
        ends = pa.array(rounds.offset_Q1, pa.int32())
        for name, values in {"round_accepted": rounds.accepted_M, "round_drafted": rounds.drafted_M}.items():
            columns[name] = pa.ListArray.from_arrays(ends, pa.array(values, pa.uint8()))
    return pa.table(columns)


def read_acceptance(path: str | os.PathLike[str]) -> AcceptanceRecords:
    """Read what :func:`write_acceptance` wrote.

    Raises:
        InputError: no such file.
        DataError: not such a file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(path, "", f"not readable as parquet ({str(error).splitlines()[0]})") from None
    document = _document(path, (table.schema.metadata or {}).get(META_KEY.encode()))
    name = Path(path).name.removesuffix(".parquet")
    requests = _requests(table) if "histogram" in table.column_names else None
    return AcceptanceRecords(name, document["source"], _summary(path, document["summary"]), requests)


def _document(path: object, text: bytes | None) -> dict[str, Any]:
    if text is None:
        raise DataError(path, f"metadata '{META_KEY}'", "missing: not records of dspark-sim import")
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise DataError(path, f"metadata '{META_KEY}'", f"must be JSON ({error})") from None
    if document.get("format") != FORMAT or not {"source", "summary"} <= document.keys():
        rule = f"must be format {FORMAT} with 'source' and 'summary'"
        raise DataError(path, f"metadata '{META_KEY}'", rule)
    return document


def _summary(path: object, fields: Any) -> AcceptanceSummary:
    from pydantic import TypeAdapter, ValidationError

    place = f"metadata '{META_KEY}', summary"
    try:
        summary = TypeAdapter(AcceptanceSummary).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(path, f"{place}.{'.'.join(map(str, first['loc']))}", rule_words(first)) from None
    if len(summary.conditional) != summary.gamma:
        raise DataError(
            path, place, f"needs gamma = {summary.gamma} conditionals, has {len(summary.conditional)}"
        )
    return summary


def _requests(table: pa.Table) -> RequestCounts:
    numbers = {name: _flat(table, name) for name in ("steps", "drafted", "accepted", "histogram")}
    rounds = None
    if "round_accepted" in table.column_names:
        offset = np.concatenate([[0], np.cumsum(numbers["steps"])])
        rounds = Rounds(offset, _flat(table, "round_accepted"), _flat(table, "round_drafted"))
    return RequestCounts(
        request_id=table["request_id"].to_pylist(),
        completion_tokens_Q=table["completion_tokens"].fill_null(-1).to_numpy().astype(np.int64),
        steps_Q=numbers["steps"],
        drafted_Q=numbers["drafted"],
        accepted_Q=numbers["accepted"],
        histogram_QJ=numbers["histogram"].reshape(table.num_rows, -1),
        rounds=rounds,
    )


def _flat(table: pa.Table, name: str) -> IntArray:
    import pyarrow as pa

    column = table[name].combine_chunks()
    values = column.flatten() if pa.types.is_list(column.type) else column
    flat: NDArray[np.int64] = values.to_numpy(zero_copy_only=False).astype(np.int64)
    return flat
