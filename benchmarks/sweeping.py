"""A sweep on two processes against one, beside what two processes that only spin gain on the same machine."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from typing import Any

from dspark_sim.sweeps.running import Setup, grid, sweep

#: Steps of the control that are timed to find how many last as long as the sweep.
TRIAL = 2_000_000


def measure(rounds: int) -> dict[str, Any]:
    """Return wall-clock gains of two processes, of the sweep and of a control as long, in turns.

    Both are medians over rounds; the machine should be quiet, or a gain says who else was there.
    """
    setup = Setup("qwen3-4b-chat.synth", "h800", output_tokens=2_000_000)
    arms = [("dspark", policy) for policy in ("off", "static:k=3", "full", "dspark", "dspark-async")]
    tasks = grid(setup, arms, (4, 16, 64, 256), (0,))
    sweep(tasks[:2], jobs=2)  # the workers are there
    spins = int(TRIAL * _wall_s(sweep, tasks, jobs=1) / _wall_s(_spin_in, 1, TRIAL))
    gains: dict[str, list[float]] = {"sweep": [], "spinning": []}
    for _ in range(rounds):
        # Alone means in a process of its own too: this one, full of objects, spins more slowly.
        one_s, alone_s = _wall_s(sweep, tasks, jobs=1), _wall_s(_spin_in, 1, spins)
        gains["sweep"].append(one_s / _wall_s(sweep, tasks, jobs=2))
        gains["spinning"].append(2 * alone_s / _wall_s(_spin_in, 2, spins))
    found = {name: statistics.median(each) for name, each in gains.items()}
    return {"points": len(tasks), **found, "share": found["sweep"] / found["spinning"], "rounds": gains}


def _wall_s(work: Any, *words: Any, **named: Any) -> float:
    start_s = time.perf_counter()
    work(*words, **named)
    return time.perf_counter() - start_s


def _spin(count: int) -> None:
    for _ in range(count):
        pass


def _spin_in(processes: int, count: int) -> None:
    spinning = [multiprocessing.Process(target=_spin, args=(count,)) for _ in range(processes)]
    for process in spinning:
        process.start()
    for process in spinning:
        process.join()
