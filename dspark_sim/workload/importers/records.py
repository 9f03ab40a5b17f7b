"""Per-request acceptance records, from any producer's names to one form, with their invariants.

For every record: sum(h) = steps, sum(j * h_j) = accepted, accepted <= drafted; a printed rate must be
accepted / drafted as a fraction or in percent; a printed mean length must be one of the readings in
circulation: 1 + accepted / steps (bonus counted), accepted / steps, or completion tokens / steps.
Which it was is noted; the length used is always 1 + accepted / steps.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.errors import DataError
from dspark_sim.workload.acceptance import AcceptanceRecords, RequestCounts, Rounds, summarise
from dspark_sim.workload.importers.documents import number, whole_number

#: Printed figures are rounded: to 2 decimals at the worst.
_ROUNDING = 0.0051

#: Our field -> the producer's names of it, newest first.
Names = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Record:
    """One request. ``completion_tokens`` is -1 and the printed figures None where not said."""

    place: str
    request_id: str
    steps: int
    accepted: int
    drafted: int
    histogram: list[int]
    completion_tokens: int
    length: float | None
    rate: float | None
    round_accepted: list[int] | None
    round_drafted: list[int] | None


class RecordReader:
    """Reads and checks the records of one file.

    Args:
        path: the file, for messages.
        names: the producer's names: ``steps``, ``accepted``, ``drafted``, ``histogram`` (needed);
            ``gamma``, ``completion``, ``length``, ``rate``, ``round_accepted``, ``round_drafted``.
    """

    def __init__(self, path: Path, names: Names) -> None:
        self.path = path
        self.names = names
        self.records: list[Record] = []
        self.readings: Counter[str] = Counter()
        self.skipped = 0

    def add(self, place: str, fields: dict[str, Any], request_id: str = "", completion: Any = None) -> None:
        """Check one record and keep it; one without a round is counted as skipped.

        Raises:
            DataError: a field is missing or the record contradicts itself.
        """
        if not self._alias(place, fields, "steps"):
            self.skipped += 1
            return
        steps, accepted, drafted = (
            self._count(place, fields, key) for key in ("steps", "accepted", "drafted")
        )
        given = self._alias(place, fields, "completion")
        record = Record(
            place=place,
            request_id=request_id or f"{len(self.records)}",
            steps=steps,
            accepted=accepted,
            drafted=drafted,
            histogram=self._histogram(place, fields),
            completion_tokens=_optional_count(completion if given is None else given),
            length=self._number(place, fields, "length"),
            rate=self._number(place, fields, "rate"),
            round_accepted=self._counts(place, fields, "round_accepted"),
            round_drafted=self._counts(place, fields, "round_drafted"),
        )
        self._check(record)
        self.records.append(record)

    def _alias(self, place: str, fields: dict[str, Any], key: str) -> Any:
        """Return the value under any of the producer's names; all that are there must agree."""
        found = [(name, fields[name]) for name in self.names.get(key, ()) if fields.get(name) is not None]
        for name, value in found[1:]:
            if value != found[0][1]:
                rule = f"{value!r} differs from its alias '{found[0][0]}' = {found[0][1]!r}"
                raise DataError(self.path, f"{place}, key '{name}'", rule)
        return found[0][1] if found else None

    def _count(self, place: str, fields: dict[str, Any], key: str) -> int:
        value = self._alias(place, fields, key)
        return whole_number(self.path, place, {self.names[key][0]: value}, self.names[key][0])

    def _number(self, place: str, fields: dict[str, Any], key: str) -> float | None:
        names = self.names.get(key, (key,))
        return number(self.path, place, {names[0]: self._alias(place, fields, key)}, names[0])

    def _counts(self, place: str, fields: dict[str, Any], key: str) -> list[int] | None:
        values = self._alias(place, fields, key)
        if values is None:
            return None
        name = self.names[key][0]
        if not isinstance(values, list):
            raise DataError(self.path, f"{place}, key '{name}'", f"{values!r}: must be a list, one a step")
        return [
            whole_number(self.path, f"{place}, '{name}'", {str(i): v}, str(i)) for i, v in enumerate(values)
        ]

    def _histogram(self, place: str, fields: dict[str, Any]) -> list[int]:
        """Return counts by accepted drafts, from a dense list or a sparse object {j: count}."""
        name, value = self.names["histogram"][0], self._alias(place, fields, "histogram")
        if isinstance(value, list):
            pairs = [(str(j), count) for j, count in enumerate(value)]
        elif isinstance(value, dict):
            pairs = [(str(j), count) for j, count in value.items()]
        else:
            rule = f"{value!r}: must be a list, or an object {{accepted drafts: rounds}}"
            raise DataError(self.path, f"{place}, key '{name}'", rule)
        if not all(j.isdecimal() for j, _ in pairs):
            raise DataError(self.path, f"{place}, key '{name}'", "keys must be accepted drafts, 0 or more")
        counts = {int(j): whole_number(self.path, f"{place}, '{name}'", {j: c}, j) for j, c in pairs}
        gamma = self._gamma(place, fields, [j for j, count in counts.items() if count], value)
        return [counts.get(j, 0) for j in range(gamma + 1)]

    def _gamma(self, place: str, fields: dict[str, Any], counted: list[int], histogram: Any) -> int:
        """Return the draft positions: as said, else the dense list's, else as many as were drafted a step."""
        name, said = self.names["histogram"][0], self._number(place, fields, "gamma")
        most = max(counted, default=0)
        if said is None:
            if isinstance(histogram, list):
                return max(len(histogram) - 1, 0)
            return max(
                most, math.ceil(self._count(place, fields, "drafted") / self._count(place, fields, "steps"))
            )
        if most > said:
            rule = f"counts rounds of {most} accepted drafts, but a block has {said:g}"
            raise DataError(self.path, f"{place}, key '{name}'", rule)
        return int(said)

    def _check(self, record: Record) -> None:
        total = sum(record.histogram)
        weighted = sum(j * count for j, count in enumerate(record.histogram))
        self._demand(record, total == record.steps, f"sum(histogram) = {total}, but steps = {record.steps}")
        rule = f"sum(j * histogram) = {weighted}, but accepted = {record.accepted}"
        self._demand(record, weighted == record.accepted, rule)
        rule = f"accepted = {record.accepted} exceeds drafted = {record.drafted}"
        self._demand(record, record.accepted <= record.drafted, rule)
        self._check_rounds(record)
        self._check_rate(record)
        self._check_length(record)

    def _demand(self, record: Record, holds: bool, rule: str) -> None:
        if not holds:
            raise DataError(self.path, record.place, rule)

    def _check_rounds(self, record: Record) -> None:
        accepted, drafted = record.round_accepted, record.round_drafted
        if accepted is None or drafted is None:
            return
        right = len(accepted) == len(drafted) == record.steps
        self._demand(record, right, f"per-step lists must be steps = {record.steps} long")
        right = all(0 <= a <= d for a, d in zip(accepted, drafted, strict=True))
        self._demand(record, right, "a step accepted more than it drafted")
        counts = Counter(accepted)
        right = all(counts[j] == count for j, count in enumerate(record.histogram))
        self._demand(record, right, "per-step accepted and histogram differ")
        self._demand(record, sum(drafted) == record.drafted, "per-step drafted does not sum to drafted")

    def _check_rate(self, record: Record) -> None:
        if record.rate is None or not record.drafted:
            return
        share = record.accepted / record.drafted
        readings = {"rate as a fraction": share, "rate in percent": 100 * share}
        self._note(record, "acceptance rate", record.rate, readings)

    def _check_length(self, record: Record) -> None:
        if record.length is None:
            return
        mean = record.accepted / record.steps
        readings = {"length 1 + accepted / steps": 1 + mean, "length without the bonus": mean}
        if record.completion_tokens >= 0:
            readings["length completion tokens / steps"] = record.completion_tokens / record.steps
        self._note(record, "mean length", record.length, readings)

    def _note(self, record: Record, what: str, printed: float, readings: dict[str, float]) -> None:
        name = reading(printed, readings)
        listed = ", ".join(f"{value:.4f} ({name.partition(' ')[2]})" for name, value in readings.items())
        self._demand(record, name is not None, f"{what} {printed} matches no reading: {listed}")
        self.readings[str(name)] += 1

    def finish(self, importer: str, caveats: tuple[str, ...] = ()) -> AcceptanceRecords:
        """Return the records and their summary.

        Raises:
            DataError: there is none with a round.
        """
        if not self.records:
            needed = ", ".join(self.names[key][0] for key in ("steps", "accepted", "drafted", "histogram"))
            raise DataError(self.path, "", f"no acceptance record with a round: looked for {needed}")
        notes = [f"records that print the {name}: {count}" for name, count in sorted(self.readings.items())]
        if self.skipped:
            notes.append(f"requests without a round, skipped: {self.skipped}")
        counts = _counts(self.records)
        if counts.histogram_QJ.shape[1] < 2:
            raise DataError(self.path, "", "no record drafted a token")
        source = {"importer": importer, "file": self.path.name, "notes": notes}
        return AcceptanceRecords(self.path.name.partition(".")[0], source, summarise(counts, caveats), counts)


def reading(printed: float, readings: dict[str, float]) -> str | None:
    """Return the first reading that ``printed`` is, up to its rounding; None: none."""
    near = (name for name, value in readings.items() if abs(printed - value) <= _ROUNDING)
    return next(near, None)


def _optional_count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else -1


def _counts(records: list[Record]) -> RequestCounts:
    size = max(len(r.histogram) for r in records)
    padded = [[*r.histogram, *[0] * (size - len(r.histogram))] for r in records]
    columns = np.array(
        [[r.completion_tokens, r.steps, r.drafted, r.accepted] for r in records], dtype=np.int64
    )
    completion, steps, drafted, accepted = columns.T
    histogram = np.array(padded, dtype=np.int64)
    return RequestCounts(
        [r.request_id for r in records], completion, steps, drafted, accepted, histogram, _rounds(records)
    )


def _rounds(records: list[Record]) -> Rounds | None:
    lists = [(r.round_accepted, r.round_drafted) for r in records]
    if any(accepted is None or drafted is None for accepted, drafted in lists):
        return None
    accepted, drafted = (np.concatenate(column).astype(np.int64) for column in zip(*lists, strict=True))
    return Rounds(np.concatenate([[0], np.cumsum([r.steps for r in records])]), accepted, drafted)
