"""Fitting a calibration on some prompts of a trace and scoring it on the others."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dspark_sim.errors import DataError, InputError, did_you_mean
from dspark_sim.files import write_text
from dspark_sim.rng import stream
from dspark_sim.schema import IntArray
from dspark_sim.workload.calibration import Calibration, fit
from dspark_sim.workload.importers.confidence import ConfidenceRecords
from dspark_sim.workload.traces import DrafterTrace, Trace
from dspark_sim.workload.visits import Reliability, evidence, reliability, score, visited

METHODS = ("sts", "bias")


def split_prompts(trace: Trace, seed: int, share: float = 0.5) -> tuple[IntArray, IntArray]:
    """Split requests into (fit, unseen) rows so that all samples of a prompt fall on one side.

    Raises:
        InputError: there are fewer than two prompts.
    """
    prompts = sorted(set(trace.prompt_key))
    if len(prompts) < 2:
        raise InputError(f"trace '{trace.name}' has one prompt: fitting needs one to fit and one to score")
    order = stream(seed, "split").permutation(len(prompts))
    chosen = {prompts[k] for k in order[: int(np.clip(round(share * len(prompts)), 1, len(prompts) - 1))]}
    fits = np.array([key in chosen for key in trace.prompt_key])
    return np.flatnonzero(fits), np.flatnonzero(~fits)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted calibration and its scores on the prompts that it did not see.

    ``anchors``: visited anchors that it was fitted on; None where it came from elsewhere.
    """

    trace: Trace
    drafter: str
    before: Reliability
    after: Reliability
    anchors: int | None = None

    @property
    def calibration(self) -> Calibration:
        """The calibration, as the trace now carries it."""
        return self.trace.drafters[self.drafter].calibration


def calibrate(trace: Trace, drafter: str, method: str = "sts", seed: int = 0) -> Fitted:
    """Fit ``drafter``'s calibration on half of the prompts, over visited anchors; score on the rest.

    Raises:
        InputError: unknown drafter or method, no confidence head, or a single prompt.
    """
    _check_method(method)
    seen = trace.take(split_prompts(trace, seed)[0])
    learner = seen.drafter(drafter)
    anchors = visited(seen, learner)
    where = (
        f"{len(set(seen.prompt_key))} prompts, {len(anchors)} visited anchors of {trace.name}, seed {seed}"
    )
    fresh = replace(fit(evidence(seen, learner, anchors), method), fitted_on=where)
    return replace(adopt(trace, drafter, fresh, seed), anchors=len(anchors))


def adopt(trace: Trace, drafter: str, fresh: Calibration, seed: int = 0) -> Fitted:
    """Put a calibration on the trace; score it on the half of the prompts that a fit would not see.

    Raises:
        InputError: unknown drafter, no confidence head, or a single prompt.
    """
    unseen = trace.take(split_prompts(trace, seed)[1])
    before, after = _scores(unseen, unseen.drafter(drafter), fresh)
    scored = replace(fresh, ece_before=tuple(before.ece_G.tolist()), ece_after=tuple(after.ece_G.tolist()))
    return Fitted(trace.with_calibration(drafter, scored), drafter, before, after)


def _scores(trace: Trace, drafter: DrafterTrace, fresh: Calibration) -> tuple[Reliability, Reliability]:
    rounds = evidence(trace, drafter, visited(trace, drafter))
    calibrated = replace(drafter, calibration=fresh)
    return reliability(calibrated, rounds, False), reliability(calibrated, rounds, True)


@dataclass(frozen=True, slots=True)
class FittedRecords:
    """A calibration fitted on confidence records, and its scores on the requests that it did not see."""

    calibration: Calibration
    before: Reliability
    after: Reliability


def calibrate_records(
    records: ConfidenceRecords, label: str, method: str = "sts", seed: int = 0
) -> FittedRecords:
    """Fit on half of the requests (of the rounds where a file does not name requests); score on the rest.

    Raises:
        InputError: unknown method, or fewer than two requests.
    """
    _check_method(method)
    groups = int(records.group_M.max()) + 1
    if groups < 2:
        raise InputError(f"{label}: holds one request; fitting needs one to fit and one to score")
    chosen = stream(seed, "split").permutation(groups)[: groups // 2]
    fits = np.isin(records.group_M, chosen)
    lesson, unseen = records.rounds.take(np.flatnonzero(fits)), records.rounds.take(np.flatnonzero(~fits))
    kind = "requests" if records.grouped else "rounds"
    where = f"{len(chosen)} of {groups} {kind}, {int(fits.sum())} rounds of {label}, seed {seed}"
    fresh = fit(lesson, method)
    before, after = score(Calibration.identity(lesson.logit_MG.shape[1]), unseen), score(fresh, unseen)
    errors = [tuple(scores.ece_G.tolist()) for scores in (before, after)]
    scored = replace(fresh, fitted_on=where, ece_before=errors[0], ece_after=errors[1])
    return FittedRecords(scored, before, after)


def _check_method(method: str) -> None:
    if method not in METHODS:
        near = did_you_mean(method, METHODS)
        raise InputError(f"unknown calibration method '{method}'{near}; there are: {', '.join(METHODS)}")


def write_temperatures(path: str | os.PathLike[str], calibration: Calibration) -> None:
    """Write a calibration as the JSON that engines read: key ``sts_temperatures``, and ours beside it."""
    document = {"sts_temperatures": list(calibration.temperatures), **calibration.to_json()}
    del document["temperatures"]
    write_text(path, json.dumps(document, indent=1) + "\n")


def read_temperatures(path: str | os.PathLike[str], gamma: int) -> Calibration:
    """Read a calibration from JSON with the key ``sts_temperatures`` (``temperatures`` is taken too).

    Raises:
        DataError: not such a document, or not ``gamma`` positive temperatures.
        InputError: the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise DataError(path, "", f"must be JSON ({error})") from None
    document = document if isinstance(document, Mapping) else {}
    temperatures = document.get("sts_temperatures", document.get("temperatures"))
    biases = document.get("biases", [0.0] * gamma)
    _check_numbers(path, "sts_temperatures", temperatures, gamma, 0.0)
    _check_numbers(path, "biases", biases, gamma, -np.inf)
    return Calibration(tuple(temperatures), tuple(biases), "bias" if any(biases) else "sts", str(path))


def _check_numbers(path: object, key: str, numbers: object, gamma: int, above: float) -> None:
    good = isinstance(numbers, list) and len(numbers) == gamma and all(_above(x, above) for x in numbers)
    if not good:
        raise DataError(path, f"key '{key}'", f"must be a list of {gamma} finite numbers above {above:g}")


def _above(x: object, least: float) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and least < x < np.inf
