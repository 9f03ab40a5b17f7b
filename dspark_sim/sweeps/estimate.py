"""How long a sweep will take, from a few short runs of its own points."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.policies.registry import parse_policy
from dspark_sim.sweeps.tasks import Task

#: Steps of a trial run.
STEPS = 150


@dataclass(frozen=True)
class Trial:
    """What a short run of an arm at one load came to: seconds a step, tokens a round."""

    users: int
    step_s: float
    tokens: float


def seconds(tasks: Sequence[Task]) -> float:
    """Return the processor time that ``tasks`` will take, start-up and writing apart [s].

    Each arm is tried at its least and greatest load; the time of a step is taken to be linear in the users
    between them, the tokens of a round as they are there on average.

    Raises:
        InputError: as :func:`dspark_sim.sweeps.running.simulate_task`.
    """
    total = 0.0
    for arm in dict.fromkeys((task.drafter, task.policy) for task in tasks):
        of_arm = [task for task in tasks if (task.drafter, task.policy) == arm]
        loads = sorted({task.concurrency for task in of_arm})
        trials = [_try(next(t for t in of_arm if t.concurrency == load)) for load in {loads[0], loads[-1]}]
        trials.sort(key=lambda trial: trial.users)
        total += sum(_steps(task, trials) * _step_s(task, trials) for task in of_arm)
    return total


def _try(task: Task) -> Trial:
    setup = task.setup
    world: dict[str, Any] = {
        "concurrency": task.concurrency,
        "seed": task.seed,
        "drafter": task.drafter,
        "believed": setup.load_believed(task.drafter),
        "max_output_tokens": setup.max_output_tokens,
        "serving": setup.serving,
        "warmup_fraction": 0.0,
    }
    trace, profile, policy = task.load_trace(), setup.load_profile(), parse_policy(task.policy)
    simulate(trace, profile, policy, output_tokens=1, **world)
    start_s = time.thread_time()
    run = simulate(trace, profile, policy, output_tokens=STEPS * task.concurrency, **world)
    taken_s = time.thread_time() - start_s
    steps, running = len(run.steps.step_s), run.steps.num_running
    rounds = max(1, int(running.sum()))
    return Trial(task.concurrency, taken_s / steps, float(run.steps.committed_tokens.sum()) / rounds)


def _steps(task: Task, trials: Sequence[Trial]) -> float:
    setup = task.setup
    users = min(task.concurrency, setup.load_profile().max_num_seqs or task.concurrency)
    longest = int(task.load_trace().output_tokens_Q.max())
    tokens = float(np.mean([trial.tokens for trial in trials]))
    return (setup.output_tokens + users * min(longest, setup.max_output_tokens or longest)) / (users * tokens)


def _step_s(task: Task, trials: Sequence[Trial]) -> float:
    known = [trial.users for trial in trials], [trial.step_s for trial in trials]
    return float(np.interp(task.concurrency, *known))
