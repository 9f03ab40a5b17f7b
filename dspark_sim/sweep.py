"""A grid of policy x concurrency x seed over one trace on one profile, on several processes.

A point depends on its task alone, so the answer does not depend on the number of processes or on
the order in which they finish. With a folder, every finished point is kept there under the hash of
all that it depends on (the code included); a repeated or interrupted sweep computes what is missing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim import __version__
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import DECODE_ONLY, simulate
from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.files import write_text
from dspark_sim.hardware.believed import Block, believe
from dspark_sim.hardware.doubts import doubts
from dspark_sim.hardware.profile import HardwareProfile, load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.details import DETAIL, detail
from dspark_sim.results.evidence import gather
from dspark_sim.results.metrics import Point, point
from dspark_sim.schema import RunLog
from dspark_sim.workers import spread
from dspark_sim.workload.trace_io import read_trace

if TYPE_CHECKING:
    from dspark_sim.workload.traces import Trace

#: Fields of a run that ``--set`` may override, beside those of the profile.
RUN_PATHS = ("workload.max_output_tokens",)

_CODE = (
    "engine",
    "hardware",
    "policies",
    "results/details.py",
    "results/metrics.py",
    "workload",
    "rng.py",
    "schema.py",
)


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
    """

    trace: str
    hw: str
    overrides: tuple[tuple[str, str], ...] = ()
    output_tokens: int = 50_000
    max_output_tokens: int | None = None
    believed: str | None = None
    serving: Serving = DECODE_ONLY

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


def run_log(task: Task) -> RunLog:
    """Simulate one point and return its records.

    Raises:
        InputError: the trace, the profile or the policy does not allow it.
    """
    setup = task.setup
    return simulate(
        task.load_trace(),
        setup.load_profile(),
        parse_policy(task.policy),
        concurrency=task.concurrency,
        output_tokens=setup.output_tokens,
        seed=task.seed,
        drafter=task.drafter,
        believed=setup.load_believed(task.drafter),
        max_output_tokens=setup.max_output_tokens,
        serving=setup.serving,
    )


def simulate_task(task: Task) -> Point:
    """Simulate one point; it comes with its detail (:mod:`dspark_sim.results.details`).

    Raises:
        InputError: as :func:`run_log`.
    """
    run = run_log(task)
    return point(run) | {DETAIL: detail(run, task.setup.load_profile())}


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


def sweep(
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    store: PointStore | None = None,
    on_point: Callable[[], None] = lambda: None,
) -> list[Point]:
    """Return the points of ``tasks``, in their order.

    Args:
        tasks: what to compute; see :func:`grid`.
        jobs: worker processes; 1 computes in this one.
        store: where finished points are kept and found again.
        on_point: called after every point, found or computed.

    Raises:
        InputError: as :func:`simulate_task`, at the first point that is not allowed.
    """
    found: dict[int, Point] = {}
    for i, kept in enumerate(store.get(task) if store else None for task in tasks):
        if kept is not None:
            found[i] = kept
            on_point()
    missing = [i for i in range(len(tasks)) if i not in found]
    for i, computed in _computed(missing, tasks, jobs):
        found[i] = computed
        if store:
            store.put(tasks[i], computed)
        on_point()
    return [found[i] for i in range(len(tasks))]


def _computed(missing: list[int], tasks: Sequence[Task], jobs: int) -> Iterator[tuple[int, Point]]:
    """Yield (index, point) as they finish; low loads first, because they take the most steps."""
    order = sorted(missing, key=lambda i: (tasks[i].concurrency, i))
    for place, computed in spread(simulate_task, [tasks[i] for i in order], jobs):
        yield order[place], computed


@dataclass
class PointStore:
    """Finished points under ``folder``, one small JSON file each, named by the hash of their inputs."""

    folder: Path
    _bases: dict[Setup, dict[str, Any]] = field(default_factory=dict)

    def get(self, task: Task) -> Point | None:
        """Return the point of ``task``, or None if it is not there."""
        path = self._path(task)
        if not path.is_file():
            return None
        kept: Point = json.loads(path.read_text(encoding="utf-8"))
        return kept

    def put(self, task: Task, computed: Point) -> None:
        """Keep a computed point; a reader sees all of it or none of it."""
        write_text(self._path(task), json.dumps(computed) + "\n")

    def _path(self, task: Task) -> Path:
        if task.setup not in self._bases:
            self._bases[task.setup] = fingerprint(task.setup)
        what = self._bases[task.setup] | {
            "drafter": task.drafter,
            "policy": task.policy,
            "rule": _rule_hash(task.policy),
            "concurrency": task.concurrency,
            "seed": task.seed,
            "share": task.share,
        }
        if believed := task.setup.load_believed(task.drafter):
            what["believed"] = profile_hash(believed)
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:32]}.json"


def about(setup: Setup, tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the document of a run: what was asked of what, by content, without clock or path."""
    trace, profile = setup.load_trace(), setup.load_profile()
    believed = {"spec": setup.believed, "doubts": believed_doubts(tasks)} if setup.believed else None
    replications = "all prompts" if tasks[0].share is None else "a share of the prompts each"
    return {
        "version": __version__,
        "code": code_hash(),
        "trace": {
            "name": trace.name,
            "target": trace.meta["target"],
            "made": trace.meta["made"],
            "synthetic": trace.synthetic,
            "temperature": trace.meta["temperature"],
            "drafters": {name: drafter.kind for name, drafter in trace.drafters.items()},
            "sha256": trace.content_hash,
        },
        "profile": {
            "name": profile.name,
            "model": profile.model,
            "device": profile.device,
            "num_gpus": profile.num_gpus,
            "max_num_seqs": profile.max_num_seqs,
            "overrides": dict(setup.overrides),
            "how": {path: source.how for path, source in profile.sources.items()},
            "sha256": profile_hash(profile),
        },
        "believed": believed,
        "settings": {"output_tokens": setup.output_tokens, "max_output_tokens": setup.max_output_tokens},
        "serving": asdict(setup.serving),
        "replications": replications,
        "grid": {
            name: list(dict.fromkeys(getattr(task, name) for task in tasks))
            for name in ("drafter", "policy", "concurrency", "seed")
        },
    }


def evidence(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return what trace and profile of a run say by themselves (:mod:`dspark_sim.results.evidence`)."""
    setup = tasks[0].setup
    drafters = dict.fromkeys(task.drafter for task in tasks)
    most = max(task.concurrency for task in tasks)
    return gather(setup.load_trace(), setup.load_profile(), drafters, most)


def fingerprint(setup: Setup) -> dict[str, Any]:
    """Return everything that points of ``setup`` depend on beside drafter, policy, load and seed."""
    return {
        "version": __version__,
        "code": code_hash(),
        "trace": setup.load_trace().content_hash,
        "profile": profile_hash(setup.load_profile()),
        "output_tokens": setup.output_tokens,
        "max_output_tokens": setup.max_output_tokens,
        "serving": asdict(setup.serving),
    }


def profile_hash(profile: HardwareProfile) -> str:
    """Return the SHA-256 (hex) of every value of a profile, overrides included."""
    return hashlib.sha256(json.dumps(asdict(profile), sort_keys=True).encode()).hexdigest()


@cache
def code_hash() -> str:
    """Return the SHA-256 (hex) of the sources that decide a point."""
    package = Path(__file__).parent
    files = [p for name in _CODE for p in (package / name, *sorted((package / name).rglob("*.py")))]
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in files if p.is_file())).hexdigest()


def _rule_hash(spec: str) -> str:
    """Return the hash of the file of a user's own rule, ``""`` for a shipped one."""
    path, found, _ = spec.partition(".py:")
    return hashlib.sha256(Path(path + ".py").read_bytes()).hexdigest() if found else ""
