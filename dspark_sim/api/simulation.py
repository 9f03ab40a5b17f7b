"""Traces, hardware and rules in; simulated points out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pandas as pd

from dspark_sim.arms import DEFAULT_POLICIES, fitting_arms, own_arms
from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.policies.registry import policies as registered
from dspark_sim.results.store import Results, merge, write_results
from dspark_sim.schema import POINT_COLUMNS
from dspark_sim.sweeps.running import PointStore, Setup, about, evidence, grid, profile_hash, sweep
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import DrafterTrace, Trace

Source = str | PathLike[str]

#: Columns of a point whose own names carry no unit, as frames name them.
WITH_UNIT = {
    "concurrency": "concurrency_users",
    "accepted_len": "accepted_len_tok_per_round",
    "verify_len": "verify_len_tok_per_round",
    "verification_budget": "verification_budget_tok_per_round",
}


def load_trace(source: Source) -> Trace:
    """Read an acceptance trace.

    Args:
        source: a path, or the bare name of a shipped trace (``"chat"``).

    Raises:
        InputError: there is no such file; DataError: it breaks a rule of the format.
    """
    return read_trace(source)


def load_hardware(source: Source, overrides: Mapping[str, object] | None = None) -> HardwareProfile:
    """Read a hardware profile: what a step costs.

    Args:
        source: a path, or the bare name of a shipped profile (``"h800"``).
        overrides: fields to change, by path: ``{"capture.limit": 512}``.

    Raises:
        InputError: no such file or field; DataError: the profile breaks a rule of the format.
    """
    return load_profile(fspath(source), {path: str(value) for path, value in (overrides or {}).items()})


def list_policies() -> pd.DataFrame:
    """Return every shipped rule: options with defaults, lag, verdict, a valid spec, source."""
    rows = [
        {
            "policy": info.name,
            "options": {k: None if v is inspect.Parameter.empty else v for k, v in info.options.items()},
            "lag_steps": info.default_lag,
            "lossless": info.verdict(info.default_lag),
            "reads": info.reads,
            "example": info.example,
            "source": info.source,
        }
        for info in registered()
    ]
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Run:
    """Simulated points with what they are about; what :func:`run` and :func:`read_run` return.

    Attributes:
        results: points as records, document of the run, evidence of trace and profile.
    """

    results: Results

    @property
    def points(self) -> pd.DataFrame:
        """One row for each policy at each load under each seed.

        Columns are those of :data:`dspark_sim.schema.POINT_COLUMNS`, with a unit in every name that has
        one: ``concurrency_users``, ``tok_per_s_per_gpu``, ``tok_per_s_per_user``,
        ``accepted_len_tok_per_round``, ``step_ms``, ...
        """
        rows = [{name: point[name] for name in POINT_COLUMNS} for point in self.results.points]
        return pd.DataFrame(rows).rename(columns=WITH_UNIT)

    @property
    def about(self) -> dict[str, Any]:
        """Document of what was simulated, with trace, profile, settings and grid, by content."""
        return self.results.about

    def write(self, folder: Source) -> None:
        """Write a result folder, as the commands do; ``dspark-sim report FOLDER`` reads it."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_results(Path(folder), self.results)

    def _repr_html_(self) -> str:
        """Return the points as a notebook shows a frame."""
        return self.points.to_html(max_rows=20, index=False, float_format="{:,.2f}".format)


@dataclass(frozen=True)
class Loaded(Setup):
    """A set-up whose trace or profile is already in memory; its name is the content's hash."""

    held_trace: Trace | None = field(default=None, compare=False, repr=False)
    held_profile: HardwareProfile | None = field(default=None, compare=False, repr=False)

    def load_trace(self) -> Trace:
        """Return the trace that was given."""
        return super().load_trace() if self.held_trace is None else self.held_trace

    def load_profile(self) -> HardwareProfile:
        """Return the profile that was given."""
        return super().load_profile() if self.held_profile is None else self.held_profile


def make_setup(
    trace: Source | Trace,
    hw: Source | HardwareProfile,
    *,
    output_tokens: int,
    overrides: Mapping[str, object] | None = None,
    max_output_tokens: int | None = None,
    believed: str | None = None,
) -> Loaded:
    """Return the set-up of a simulation from names or from what was loaded.

    Raises:
        InputError: overrides for a profile that is already loaded.
    """
    changed = tuple((path, str(value)) for path, value in (overrides or {}).items())
    if isinstance(hw, HardwareProfile) and changed:
        raise InputError("overrides go with the name of a profile; give a loaded one to load_hardware first")
    held_trace = trace if isinstance(trace, Trace) else None
    held_profile = hw if isinstance(hw, HardwareProfile) else None
    return Loaded(
        trace.content_hash if isinstance(trace, Trace) else fspath(trace),
        profile_hash(hw) if isinstance(hw, HardwareProfile) else fspath(hw),
        changed,
        output_tokens,
        max_output_tokens,
        believed,
        held_trace=held_trace,
        held_profile=held_profile,
    )


def run(
    trace: Source | Trace,
    hw: Source | HardwareProfile,
    *,
    policies: Sequence[str] | None = None,
    concurrency: int | Sequence[int] = (1, 4, 16, 64, 256),
    seeds: int = 1,
    output_tokens: int = 20_000,
    drafter: str | None = None,
    lag: int | None = None,
    believed: str | None = None,
    overrides: Mapping[str, object] | None = None,
    max_output_tokens: int | None = None,
    jobs: int = 1,
    keep: Source | None = None,
) -> Run:
    """Replay a trace on a profile: policies x loads x seeds of a closed loop.

    Args:
        trace: a name, a path, or what :func:`load_trace` returned.
        hw: a name, a path, or what :func:`load_hardware` returned.
        policies: specs such as ``"static:k=3"`` or ``"./mine.py:rule"``; None: six of them, those that
            drafter and profile can serve.
        concurrency: users of the closed loop, one number or several.
        seeds: replications, at seeds 0, 1, ...; two or more give intervals.
        output_tokens: output tokens to measure per point.
        drafter: of the trace; None: each policy its own (``arms.own_drafter``).
        lag: lag of rules that read older confidences [steps]; None: their own.
        believed: cost that planners believe; None: the true one.
        overrides: fields of the profile to change, as in :func:`load_hardware`.
        max_output_tokens: texts are cut to this many tokens; None: not cut.
        jobs: worker processes.
        keep: folder in which finished points are kept, so that a repeated call computes what is missing.

    Raises:
        InputError: a file, policy, drafter or override that does not exist or does not fit.
    """
    setup = make_setup(
        trace, hw, output_tokens=_least("output_tokens", output_tokens), overrides=overrides,
        max_output_tokens=max_output_tokens, believed=believed,
    )  # fmt: skip
    loads = [concurrency] if isinstance(concurrency, int) else list(concurrency)
    for load in loads or [0]:
        _least("concurrency", load)
    chosen = choose_arms(setup, policies, drafter, lag)
    tasks = grid(setup, chosen, sorted(set(loads)), range(_least("seeds", seeds)))
    points = sweep(tasks, jobs=jobs, store=None if keep is None else PointStore(Path(keep)))
    return Run(Results(points, about(setup, tasks), evidence(tasks)))


def choose_arms(
    setup: Setup,
    policies: Sequence[str] | None,
    drafter: str | None,
    lag: int | None,
    defaults: Sequence[str] = DEFAULT_POLICIES,
) -> list[tuple[str, str]]:
    """Return the arms (drafter, policy label) that were asked for, or those of ``defaults`` that fit.

    Raises:
        InputError: a string instead of a list of them, or an unknown policy or drafter.
    """
    if isinstance(policies, str):
        raise InputError(f"policies={policies!r}: give a list of specs, as in [{policies!r}]")
    trace = setup.load_trace()
    asked = [parse_policy(spec, lag) for spec in policies or defaults]
    if drafter is None:
        return own_arms(asked, trace, None if policies else setup.load_profile())
    found: DrafterTrace = trace.drafter(drafter)
    if policies:
        return list(dict.fromkeys((found.name, policy.label) for policy in asked))
    return fitting_arms(asked, [found], setup.load_profile())


def read_run(*folders: Source) -> Run:
    """Read result folders of one set-up, as ``run``, ``sweep`` and :meth:`Run.write` leave them.

    Raises:
        InputError: no such folder, or folders that cannot be compared.
    """
    if not folders:
        raise InputError("read_run: name at least one result folder")
    return Run(merge([Path(folder) for folder in folders]))


def _least(name: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{name}={value}: must be at least 1")
    return value
