"""What is simulated: set-ups and tasks by name, which travel cheaply; traces and profiles are read once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import DECODE_ONLY
from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.files import find
from dspark_sim.hardware.believed import Block, believe
from dspark_sim.hardware.doubts import doubts
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.workload.trace_io import read_trace

if TYPE_CHECKING:
    from dspark_sim.workload.traces import Trace

#: Fields of a run that ``--set`` may override, beside those of the profile.
RUN_PATHS = ("workload.max_output_tokens",)


@dataclass(frozen=True)
class Setup:
    """What all points of a sweep share, by name, so that it travels cheaply to a worker.

    Attributes:
        trace: trace file, by path or bare name.
        hw: hardware profile, by path or bare name.
        overrides: ``(path, value)`` of the profile, as ``--set`` gives them.
        output_tokens: output tokens to measure per point.
        max_output_tokens: texts are cut to this many tokens; None: not cut.
        believed: cost that planners believe (:mod:`dspark_sim.hardware.believed`); None: the true one.
        serving: prefill, replicas, router.
        fast: whether to run the compiled step where there is one; it changes no figure.
        tables: folder of tables to map into memory; None: a process lays out its own.
    """

    trace: str
    hw: str
    overrides: tuple[tuple[str, str], ...] = ()
    output_tokens: int = 50_000
    max_output_tokens: int | None = None
    believed: str | None = None
    serving: Serving = DECODE_ONLY
    fast: bool = False
    tables: str | None = None

    def load_trace(self) -> Trace:
        """Return the trace, read once per process."""
        return _trace(self.trace)

    def load_profile(self) -> HardwareProfile:
        """Return the profile with its overrides, read once per process."""
        return _profile(self.hw, self.overrides)

    def load_believed(self, drafter: str) -> HardwareProfile | None:
        """Return what planners believe about a step with that drafter; None: the truth."""
        return None if self.believed is None else _believed(self, self.believed, drafter)

    def block(self, drafter: str) -> Block:
        """Return kind and block length of a drafter of the trace."""
        chosen = self.load_trace().drafter(drafter)
        return Block(chosen.kind, chosen.gamma)


@dataclass(frozen=True)
class Task:
    """One point to compute: ``drafter`` is one of the trace, ``policy`` a normalised spec.

    ``share``: (index, count) of the share of the trace's prompts to replay; None: all of them.
    """

    setup: Setup
    drafter: str
    policy: str
    concurrency: int
    seed: int
    share: tuple[int, int] | None = None

    def files(self) -> dict[str, Path]:
        """Return trace and profiles by the names that the set-up has for them."""
        setup = self.setup
        found = {
            setup.trace: find(setup.trace, "traces", ".parquet"),
            setup.hw: find(setup.hw, "hw_profiles", ".yaml"),
        }
        if setup.believed is not None and Path(setup.believed).is_file():
            found[setup.believed] = Path(setup.believed)
        return found

    def with_files(self, paths: Mapping[str, str]) -> Task:
        """Return the same point, its files elsewhere."""
        setup = self.setup
        believed = setup.believed and paths.get(setup.believed, setup.believed)
        moved = replace(setup, trace=paths[setup.trace], hw=paths[setup.hw], believed=believed)
        return replace(self, setup=moved)

    def load_trace(self) -> Trace:
        """Return the texts that this point replays."""
        return self.setup.load_trace() if self.share is None else _share(self.setup.trace, *self.share)


@lru_cache(maxsize=4)
def _trace(name: str) -> Trace:
    return read_trace(name)


@lru_cache(maxsize=32)
def _share(name: str, index: int, count: int) -> Trace:
    return _trace(name).share_of_prompts(index, count)


@lru_cache(maxsize=4)
def _profile(name: str, overrides: tuple[tuple[str, str], ...]) -> HardwareProfile:
    return load_profile(name, dict(overrides))


@lru_cache(maxsize=4)
def _believed(setup: Setup, spec: str, drafter: str) -> HardwareProfile:
    return believe(spec, setup.load_profile(), setup.block(drafter))


def believed_doubts(tasks: Sequence[Task]) -> list[str]:
    """Return what is wrong with the cost that the planners of ``tasks`` believe, one line each."""
    found: dict[str, None] = {}
    for drafter in dict.fromkeys(task.drafter for task in tasks):
        setup, most = tasks[0].setup, max(task.concurrency for task in tasks)
        true, believed = setup.load_profile(), setup.load_believed(drafter)
        if believed is not None:
            most = min(most, true.max_num_seqs or most)
            found |= dict.fromkeys(doubts(believed, true, setup.block(drafter), most))
    return list(found)


def split_overrides(assignments: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], int | None]:
    """Return the overrides of the profile and ``workload.max_output_tokens`` from ``--set`` values.

    Raises:
        InputError: an unknown ``workload.`` path, or a value that is not a whole number above 1.
    """
    ours = {path: value for path, value in assignments.items() if path.startswith("workload.")}
    for path in ours:
        if path not in RUN_PATHS:
            raise InputError(
                f"--set {path}: no such field{did_you_mean(path, RUN_PATHS)}; known: {', '.join(RUN_PATHS)}"
            )
    profile = tuple((path, value) for path, value in assignments.items() if path not in ours)
    return profile, _cut(ours.get("workload.max_output_tokens"))


def _cut(word: str | None) -> int | None:
    if word is None:
        return None
    if not word.isdecimal() or int(word) < 2:
        raise InputError(f"--set workload.max_output_tokens={word}: must be a whole number of at least 2")
    return int(word)


def grid(
    setup: Setup,
    arms: Iterable[tuple[str, str]],
    loads: Iterable[int],
    seeds: Sequence[int],
    by_prompts: bool = False,
) -> list[Task]:
    """Return the tasks of a grid: by arm (drafter, policy), then load, then seed.

    With ``by_prompts`` every seed replays its own share of the trace's prompts.
    """
    shares = [(i, len(seeds)) if by_prompts and len(seeds) > 1 else None for i in range(len(seeds))]
    replications = list(zip(seeds, shares, strict=True))
    return [Task(setup, *arm, load, *one) for arm, load, one in itertools.product(arms, loads, replications)]
