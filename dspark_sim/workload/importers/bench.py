"""Results of serving benchmarks: whole runs, so acceptance without requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

from dspark_sim.errors import DataError, InputError
from dspark_sim.schema import FloatArray
from dspark_sim.workload.acceptance import AcceptanceRecords, AcceptanceSummary, geometric, ratios
from dspark_sim.workload.importers.documents import documents, number, whole_number
from dspark_sim.workload.importers.records import reading
from dspark_sim.workload.importers.registry import importer

_PER_POSITION = "spec_decode_per_position_acceptance_rates"
_COUNTS = ("spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens")
_MONOTONE_SLACK = 1e-9


@importer("vllm-bench", gives="acceptance", file="JSON of vllm bench serve --save-result")
def vllm_bench(path: Path) -> AcceptanceRecords:
    """Read the speculative decoding figures of one benchmark run.

    The per-position rates are survivals (accepted at the position / all drafts) there, not
    conditionals; in whatever unit they stand, they must sum to accepted / drafts.

    Raises:
        DataError: a figure is missing, or they contradict each other.
    """
    place, run = _only_run(path)
    drafts, drafted, accepted = (whole_number(path, place, run, key, least=1) for key in _COUNTS)
    if accepted > drafted:
        raise DataError(path, place, f"accepted {accepted} exceeds drafted {drafted}")
    notes = _check_printed(path, place, run, accepted / drafted, 1 + accepted / drafts)
    survival_G, unit = _survival(path, place, run, accepted / drafts)
    survived = np.rint(survival_G * drafts).astype(np.int64)
    reached = np.append(drafts, survived[:-1])
    full = drafted == drafts * len(survival_G)
    trimmed = f"{100 * drafted / (drafts * len(survival_G)):.0f} % of full blocks was drafted or verified"
    summary = AcceptanceSummary(
        gamma=len(survival_G),
        rounds=drafts,
        accepted_len=1 + accepted / drafts,
        conditional=ratios(survived, reached),
        reached=tuple(reached.tolist()),
        basis="rates",
        caveats=() if full else (f"only {trimmed}: late positions count as rejected",),
    )
    return _records(path, "vllm-bench", summary, [*notes, f"per-position rates are survivals {unit}"])


@importer("sglang-bench", gives="acceptance", file="JSON Lines of sglang.bench_serving --output-file")
def sglang_bench(
    path: Path, *, gamma: Annotated[int, Ge(1)], run: Annotated[int, Ge(0)] = 0
) -> AcceptanceRecords:
    """Read the mean accepted length of one benchmark run: nothing by position is there.

    Every position is taken for alike: the one acceptance that gives this mean length.

    Args:
        path: the file, a run a line.
        gamma: draft tokens of a block; the file does not say.
        run: which line, from 0.

    Raises:
        InputError: the file has no such run.
        DataError: the length is missing or impossible at ``gamma``.
    """
    runs = documents(path)
    if not runs:
        raise DataError(path, "", "holds no run")
    if run >= len(runs):
        raise InputError(f"{path}: has {len(runs)} runs; run must be 0 to {len(runs) - 1}")
    place, result = runs[run]
    length = number(path, place, result, "accept_length") if isinstance(result, dict) else None
    if length is None or not 1 <= length <= gamma + 1:
        rule = f"{length!r}: must be a mean accepted length in 1..{gamma + 1} (gamma {gamma}, bonus counted)"
        raise DataError(path, f"{place}, key 'accept_length'", rule)
    alpha = geometric(gamma, length)
    caveat = f"every position taken for alike: {alpha:.4f} gives the mean length {length}"
    summary = AcceptanceSummary(gamma, None, length, (alpha,) * gamma, None, "geometric", (caveat,))
    return _records(path, "sglang-bench", summary, [f"run {run}"])


def _records(
    path: Path, importer_name: str, summary: AcceptanceSummary, notes: list[str]
) -> AcceptanceRecords:
    source = {"importer": importer_name, "file": path.name, "notes": notes}
    return AcceptanceRecords(path.name.partition(".")[0], source, summary)


def _only_run(path: Path) -> tuple[str, dict[str, Any]]:
    runs = documents(path)
    if len(runs) != 1 or not isinstance(runs[0][1], dict):
        raise DataError(
            path, "", f"must hold one JSON object, the result of a run; holds {len(runs)} documents"
        )
    return runs[0]


def _check_printed(path: Path, place: str, run: dict[str, Any], rate: float, length: float) -> list[str]:
    """Check the printed rate and length; return what their units turned out to be."""
    expected = {
        "spec_decode_acceptance_rate": {"a fraction": rate, "in percent": 100 * rate},
        "spec_decode_acceptance_length": {"with the bonus": length, "without the bonus": length - 1},
    }
    notes = []
    for key, readings in expected.items():
        printed = number(path, place, run, key)
        if printed is not None:
            name = reading(printed, readings)
            if name is None:
                listed = ", ".join(f"{value:.4f} ({unit})" for unit, value in readings.items())
                raise DataError(path, f"{place}, key '{key}'", f"{printed} is neither of: {listed}")
            notes.append(f"{key} is {name}")
    return notes


def _survival(path: Path, place: str, run: dict[str, Any], mean_accepted: float) -> tuple[FloatArray, str]:
    """Return the survivals [G] of the per-position rates, and the unit they stood in.

    Conditionals are recognised by the sum that their products have.
    """
    rates = run.get(_PER_POSITION)
    if not isinstance(rates, list) or not rates or not all(isinstance(r, int | float) for r in rates):
        raise DataError(path, f"{place}, key '{_PER_POSITION}'", "must be a list of numbers, one a position")
    values = np.array(rates, dtype=np.float64)
    for scale, unit in ((1.0, "as fractions"), (100.0, "in percent")):
        survival = values / scale
        slack = 0.005 * len(values)
        if abs(survival.sum() - mean_accepted) <= slack:
            _demand_falling(path, place, survival)
            return survival, unit
        if abs(np.cumprod(survival).sum() - mean_accepted) <= slack:
            return np.cumprod(survival, dtype=np.float64), f"made from conditionals {unit}"
    rule = (
        f"sum to {values.sum():g}; survivals sum to accepted / drafts = {mean_accepted:.4f} (or 100 times it)"
    )
    raise DataError(path, f"{place}, key '{_PER_POSITION}'", rule)


def _demand_falling(path: Path, place: str, survival: FloatArray) -> None:
    if survival[0] > 1 or survival[-1] < 0 or (np.diff(survival) > _MONOTONE_SLACK).any():
        rule = "survivals must lie in 0..1 and never rise with the position"
        raise DataError(path, f"{place}, key '{_PER_POSITION}'", rule)
