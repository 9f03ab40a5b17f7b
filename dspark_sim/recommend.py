"""The best admissible setting for an SLA: policy, draft length, capture limit, most users.

Branch and bound in two steps. Every setting runs at a few loads. Settings that could be first or second,
and no speculation, are refined: an interval of loads is halved as long as it may meet the SLA and beat
the setting's best, and a policy of constant length is tried where its steps just fill a captured size,
because up to there its throughput can only rise with the load. The answer is the best point that was
simulated and meets the SLA: nothing is interpolated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import Point
from dspark_sim.sweeps.running import Setup, Task

#: Simulates tasks and returns their points, in order (:func:`dspark_sim.sweeps.running.sweep`).
Measure = Callable[[Sequence[Task]], list[Point]]

_LEAST_ROOM, _MOST_ROOM = 0.01, 0.25  # how far a curve may rise between two simulated loads
OFF = "off"
#: What is tried where no policy is given.
TRIED = (OFF, "mtp:k=1", *(f"static:k={k}" for k in (1, 2, 3, 5)), "full", "dspark", "dspark-async")


@dataclass(frozen=True)
class Setting:
    """What an operator chooses beside the load: profile (with its capture limit), drafter, policy."""

    setup: Setup
    drafter: str
    policy: str

    @property
    def capture_limit(self) -> int | None:
        """Largest size that may be captured [tokens]; None without graphs."""
        return self.setup.load_profile().capture_limit


@dataclass
class Measured:
    """One setting and its points so far: load -> one point a seed."""

    setting: Setting
    points: dict[int, list[Point]] = field(default_factory=dict)

    def mean(self, load: int, column: str) -> float:
        """Return the mean over seeds of a column at a simulated load."""
        return float(np.mean([p[column] for p in self.points[load]]))

    def gpu(self, load: int) -> float:
        """Return tok/s/GPU at a simulated load."""
        return self.mean(load, "tok_per_s_per_gpu")

    def meets(self, load: int, sla: float) -> bool:
        """Whether each user gets ``sla`` tok/s/user at a simulated load."""
        return self.mean(load, "tok_per_s_per_user") >= sla

    def best(self, sla: float) -> int | None:
        """Return the load of the highest tok/s/GPU that meets ``sla``; ties to the lower; None if none."""
        there = [load for load in sorted(self.points) if self.meets(load, sla)]
        return max(there, key=self.gpu) if there else None

    def fastest(self) -> int:
        """Return the load of the highest tok/s/user."""
        return max(sorted(self.points), key=lambda load: self.mean(load, "tok_per_s_per_user"))


@dataclass(frozen=True)
class Choice:
    """A setting at its most users under an SLA, with the measurements that say so."""

    measured: Measured
    load: int

    @property
    def setting(self) -> Setting:
        """What was chosen."""
        return self.measured.setting

    @property
    def points(self) -> list[Point]:
        """The points of the choice, one a seed."""
        return self.measured.points[self.load]

    @property
    def gpu(self) -> float:
        """Mean tok/s/GPU."""
        return self.measured.gpu(self.load)


@dataclass(frozen=True)
class Answer:
    """What was found for one SLA.

    Attributes:
        sla: tok/s/user.
        ranking: the best choice of every setting that meets it, best first.
        rival: the best speculative setting that meets it, or, if none does, the one of most tok/s/GPU at the
            load of the answer; with the points of ``off`` at the same load: the pair that the break-even
            accepted length comes from; None without both.
        fastest: the fastest point of all, for an SLA that nothing meets.
        most_users: highest load tried.
    """

    sla: float
    ranking: list[Choice]
    rival: tuple[Choice, Choice] | None
    fastest: Choice
    most_users: int


class Search:
    """Simulates what the questions need, each point once.

    Args:
        settings: what may be chosen.
        loads: users that every setting is tried with; the last is the most of all.
        seeds: replications.
        measure: simulates.
    """

    def __init__(
        self, settings: Iterable[Setting], loads: Sequence[int], seeds: Sequence[int], measure: Measure
    ) -> None:
        self._seeds, self._measure = list(seeds), measure
        self._most = max(loads)
        self._arms = [Measured(setting) for setting in settings]
        self._run([(arm, load) for arm in self._arms for load in sorted(set(loads))])
        # A rule that is not lossless is never an answer.
        self._arms = [arm for arm in self._arms if _lossless(arm)]

    def answer(self, sla: float) -> Answer:
        """Return what is best at ``sla`` [tok/s/user]."""
        self._refine(sla)
        ranking = [Choice(arm, load) for arm in self._arms if (load := arm.best(sla)) is not None]
        ranking.sort(key=lambda choice: -choice.gpu)
        fastest = max(self._arms, key=lambda arm: arm.mean(arm.fastest(), "tok_per_s_per_user"))
        return Answer(sla, ranking, self._rival(ranking), Choice(fastest, fastest.fastest()), self._most)

    def _refine(self, sla: float) -> None:
        """Refine ``off``, and from the most promising on whatever could be first or second."""
        settled: list[float] = []
        hope = {id(arm): max((most for *_, most in _hopes(arm, sla)), default=0.0) for arm in self._arms}
        for arm in sorted(self._arms, key=lambda arm: -hope[id(arm)]):
            if len(settled) < 2 or hope[id(arm)] >= settled[-2] or arm.setting.policy == OFF:
                self._run([(arm, load) for load in self._full_steps(arm)])
                while middles := _middles(arm, sla):
                    self._run([(arm, load) for load in middles])
                best = arm.best(sla)
                settled = sorted([*settled, 0.0 if best is None else arm.gpu(best)])

    def _full_steps(self, arm: Measured) -> list[int]:
        """Return the loads at which a policy of constant length just fills a captured size."""
        policy = parse_policy(arm.setting.policy)
        if policy.info.reads != "none":
            return []
        profile, load = arm.setting.setup.load_profile(), max(arm.points)
        budget = round(arm.mean(load, "verification_budget"))
        sizes = capture_sizes(profile.capture, profile.verify.tokens) or profile.verify.tokens
        return [size // budget for size in sizes if 1 <= size // budget <= self._most]

    def _rival(self, ranking: Sequence[Choice]) -> tuple[Choice, Choice] | None:
        other = next((choice for choice in ranking if choice.setting.policy != OFF), None)
        known = [choice.measured for choice in ranking] + self._arms
        off = next((arm for arm in known if arm.setting.policy == OFF), None)
        if other is None and off is not None and ranking:
            other = self._nearest(ranking[0].load)
        if off is None or other is None:
            return None
        self._run([(off, other.load)])
        return other, Choice(off, other.load)

    def _nearest(self, load: int) -> Choice | None:
        """Return the speculative setting with the most tok/s/GPU at a load that none of them may have."""
        arms = [arm for arm in self._arms if arm.setting.policy != OFF]
        self._run([(arm, load) for arm in arms])
        return Choice(max(arms, key=lambda arm: arm.gpu(load)), load) if arms else None

    def _run(self, wanted: Sequence[tuple[Measured, int]]) -> None:
        """Simulate the (setting, load) that are not there yet."""
        missing = [(arm, load) for arm, load in _once(wanted) if load not in arm.points]
        tasks = [
            Task(arm.setting.setup, arm.setting.drafter, arm.setting.policy, load, seed)
            for arm, load in missing
            for seed in self._seeds
        ]
        points = iter(self._measure(tasks) if tasks else [])
        for arm, load in missing:
            arm.points[load] = [next(points) for _ in self._seeds]


def loads_up_to(most: int) -> list[int]:
    """Return the loads that every setting is tried with: powers of two up to ``most``, and ``most``."""
    return sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})


def _once(wanted: Sequence[tuple[Measured, int]]) -> list[tuple[Measured, int]]:
    return list({(id(arm), load): (arm, load) for arm, load in wanted}.values())


def _lossless(arm: Measured) -> bool:
    return all(p["lossless"] != "not-lossless" for points in arm.points.values() for p in points)


def _hopes(arm: Measured, sla: float) -> list[tuple[int, int, float]]:
    """Return the intervals of loads that may meet ``sla``: (low, high, the most tok/s/GPU in it).

    Between two loads speed and throughput are taken to pass their better end by no more than the
    interval's relative width (at least 1%, at most 25%): costs jump, but by a step at a time.
    """
    found = []
    for low, high in pairwise(sorted({min(arm.points), *arm.points, max(arm.points) + 1})):
        ends = [load for load in (low, high) if load in arm.points]
        room = 1 + min(_MOST_ROOM, max(_LEAST_ROOM, (high - low) / high))
        if room * max(arm.mean(load, "tok_per_s_per_user") for load in ends) >= sla:
            found.append((low, high, room * max(arm.gpu(load) for load in ends)))
    return found


def _middles(arm: Measured, sla: float) -> list[int]:
    """Return the middles of the intervals that may hold a better load than the best so far."""
    best = arm.best(sla)
    bar = 0.0 if best is None else arm.gpu(best)
    hopes = _hopes(arm, sla)
    return [(low + high) // 2 for low, high, most in hopes if high - low > 1 and most >= bar]


def break_even(rival: Choice, off: Choice) -> float:
    """Return the accepted length at which speculating equals not: step of one over step of the other.

    At one load, throughput is accepted length over step time, and ``off`` commits one token a step.
    """
    return rival.measured.mean(rival.load, "step_ms") / off.measured.mean(off.load, "step_ms")
