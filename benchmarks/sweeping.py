"""A sweep on two processes against one, beside what two processes that only spin gain on the same machine."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

from dspark_sim.sweeps.running import Setup, grid, sweep

SPINS = 20_000_000


def measure(rounds: int) -> dict[str, Any]:
    """Return wall-clock gains of two processes; the machine should be quiet."""
    setup = Setup("qwen3-4b-chat.synth", "h800", output_tokens=200_000)
    arms = [("dspark", policy) for policy in ("off", "static:k=3", "full", "dspark", "dspark-async")]
    tasks = grid(setup, arms, (16, 64), (0,))
    sweep(tasks[:2], jobs=2)  # the workers are there
    gains = []
    for _ in range(rounds):
        one_s, two_s = _wall_s(sweep, tasks, jobs=1), _wall_s(sweep, tasks, jobs=2)
        gains.append({"sweep": one_s / two_s, "spinning": _spinning_gain()})
    best = max(gains, key=lambda gain: gain["spinning"])
    return {"points": len(tasks), **best, "share": best["sweep"] / best["spinning"]}


def _wall_s(work: Any, *words: Any, **named: Any) -> float:
    start_s = time.perf_counter()
    work(*words, **named)
    return time.perf_counter() - start_s


def _spin(count: int) -> None:
    for _ in range(count):
        pass


def _spinning_gain() -> float:
    alone_s = _wall_s(_spin, SPINS)
    both = [multiprocessing.Process(target=_spin, args=(SPINS,)) for _ in range(2)]

    def together() -> None:
        for process in both:
            process.start()
        for process in both:
            process.join()

    return 2 * alone_s / _wall_s(together)
