"""Confidence records: JSON Lines with the confidences of a round's positions, and what was accepted.

What DeepSpec's evaluator dumps as ``confidence_records.jsonl``. Its schema was not at hand: fields are found
by name. Either a line is a round, with a list of confidences and a list of flags (or a count); or a line is
one position of a round, with one confidence and one flag, and a new round starts where the position does not
rise. Shape legend: M rounds, G positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.errors import DataError
from dspark_sim.schema import IntArray
from dspark_sim.workload.calibration import Evidence
from dspark_sim.workload.importers.documents import documents

_PROBABILITY = ("confidence", "confidences", "confidence_probs", "confidence_scores")
_LOGIT = ("confidence_logit", "confidence_logits")
_ACCEPTED = ("accepted", "accept", "accepted_mask", "accept_mask", "num_accepted", "accepted_draft_tokens")
_POSITION = ("position", "pos")
_GROUP = ("prompt_id", "request_id", "sample_id", "question_id", "id")
#: A confidence of exactly 0 or 1 has no logit: what a float32 sigmoid rounds to 1 lies above 16.
_MOST = 1.0 - 2.0**-24


@dataclass(frozen=True, slots=True)
class ConfidenceRecords:
    """Rounds with confidences and outcomes.

    Attributes:
        rounds: as evidence for fitting; a position that a record lacks has no outcome.
        group_M: which request each round belongs to, numbered; rounds of one stay together in a split.
        grouped: whether the file said so; else every round stands for itself.
    """

    rounds: Evidence
    group_M: IntArray
    grouped: bool


@dataclass(slots=True)
class _Round:
    group: str
    logits: list[float]
    accepted: int


def read_confidence_records(path: Path) -> ConfidenceRecords:
    """Read a file of confidence records.

    Raises:
        DataError: no record, or one that lacks a field or contradicts itself; its line is named.
        OSError: the file cannot be read.
    """
    found = list(_rounds(path))
    if not found:
        raise DataError(path, "", f"holds no record with one of {', '.join((*_PROBABILITY, *_LOGIT))}")
    gamma = max(len(one.logits) for one in found)
    logit_MG = np.zeros((len(found), gamma))
    for row, one in enumerate(found):
        logit_MG[row, : len(one.logits)] = one.logits
    rounds = Evidence(
        logit_MG, np.array([one.accepted for one in found]), np.array([len(one.logits) for one in found])
    )
    grouped = all(one.group for one in found)
    names = [one.group if grouped else str(row) for row, one in enumerate(found)]
    return ConfidenceRecords(rounds, np.unique(names, return_inverse=True)[1], grouped)


def _rounds(path: Path) -> Iterator[_Round]:
    open_round: _Round | None = None
    last, alive = math.inf, True
    for place, record in documents(path):
        key, logit = _confidence_key(path, place, record)
        if isinstance(record[key], list):
            yield _whole(path, place, record, (key, logit))
            continue
        position = _one(path, place, record, _POSITION)
        if open_round is None or position <= last:
            if open_round is not None:
                yield open_round
            open_round, alive = _Round(_group(record), [], 0), True
        open_round.logits.append(_logit(path, f"{place}, key '{key}'", record[key], logit))
        alive = alive and _flag(path, f"{place}, accepted", _one(path, place, record, _ACCEPTED))
        open_round.accepted += alive
        last = position
    if open_round is not None:
        yield open_round


def _whole(path: Path, place: str, record: Mapping[str, Any], named: tuple[str, bool]) -> _Round:
    """One record that holds all positions of a round."""
    key, logit = named
    logits = [_logit(path, f"{place}, key '{key}'", value, logit) for value in record[key]]
    accepted = _one(path, place, record, _ACCEPTED)
    if isinstance(accepted, list):
        flags = [_flag(path, f"{place}, accepted", value) for value in accepted]
        if len(flags) != len(logits):
            rule = f"{len(flags)} flags for {len(logits)} confidences; must be as many"
            raise DataError(path, f"{place}, accepted", rule)
        run = flags.index(False) if False in flags else len(flags)
    elif isinstance(accepted, int) and not isinstance(accepted, bool) and 0 <= accepted <= len(logits):
        run = accepted
    else:
        rule = f"{accepted!r}: must be a list of flags, or a count of at most {len(logits)}"
        raise DataError(path, f"{place}, accepted", rule)
    if not logits:
        raise DataError(path, f"{place}, key '{key}'", "must hold at least one confidence")
    return _Round(_group(record), logits, run)


def _confidence_key(path: Path, place: str, record: Any) -> tuple[str, bool]:
    """Return the key of the confidences, and whether they are logits."""
    if isinstance(record, Mapping):
        for keys, logit in ((_LOGIT, True), (_PROBABILITY, False)):
            for key in keys:
                if key in record:
                    return key, logit
    raise DataError(path, place, f"must be an object with one of {', '.join((*_PROBABILITY, *_LOGIT))}")


def _one(path: Path, place: str, record: Mapping[str, Any], keys: Sequence[str]) -> Any:
    for key in keys:
        if key in record:
            return record[key]
    raise DataError(path, place, f"must have one of the keys {', '.join(keys)}")


def _group(record: Mapping[str, Any]) -> str:
    return next((f"{key} {record[key]}" for key in _GROUP if key in record), "")


def _logit(path: Path, place: str, value: Any, logit: bool) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not (logit or 0.0 <= value <= 1.0):
        rule = "a finite number" if logit else "a probability between 0 and 1"
        raise DataError(path, place, f"{value!r}: must be {rule}")
    if logit:
        return float(value)
    chance = min(max(float(value), 1.0 - _MOST), _MOST)
    return math.log(chance / (1.0 - chance))


def _flag(path: Path, place: str, value: Any) -> bool:
    if value not in (0, 1):
        raise DataError(path, place, f"{value!r}: must be true or false, 1 or 0")
    return bool(value)
