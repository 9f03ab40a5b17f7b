"""Time of one round, draft and verification, by draft length: the latency panel of figure 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from dspark_sim.hardware.measure_plan import Point
from dspark_sim.model.checkpoints import make_drafter
from dspark_sim.model.drafter_config import DrafterConfig
from dspark_sim.model.profile_work import Work, Workbench
from dspark_sim.model.profiler import clock_of, device_words
from dspark_sim.model.target import Target

REQUESTS, CONTEXT = 8, 256
_REPEATS = 7


@torch.inference_mode()
def round_ms(
    target: Target,
    shape: DrafterConfig,
    gammas: Sequence[int],
    *,
    threads: int = 1,
    on_point: Callable[[int], None] | None = None,
) -> dict[tuple[str, int], tuple[float, float]]:
    """Return (kind, gamma) -> (draft, verify) of ``REQUESTS`` requests at context ``CONTEXT`` [ms].

    Of ``_REPEATS`` repeats the fastest, all sizes taking turns. Weights do not matter for time, so untrained
    drafters of ``shape`` are timed: with its sequential head (dspark) and without (dflash).
    """
    clock = clock_of(str(target.device), threads)[1]
    works: dict[tuple[str, int], tuple[Work, Work]] = {}
    for gamma in gammas:
        bare = replace(
            shape, gamma=gamma, head="none", markov_rank=0, confidence_with_markov=False,
            confidence_statistics=False,
        )  # fmt: skip
        for config in (replace(shape, gamma=gamma), bare):
            drafter = make_drafter(config).to(target.device, target.dtype)
            drafter.bind_target(target.embed, target.lm_head)
            points = [Point("draft", REQUESTS, 1, CONTEXT), Point("verify", REQUESTS, gamma + 1, CONTEXT)]
            bench = Workbench(target, drafter, points, seed=0)
            draft, verify = (bench.work(point) for point in points)
            works[config.kind, gamma] = (draft, verify)
    best = {key: np.full(2, np.inf) for key in works}
    for _ in range(_REPEATS):
        for key, pair in works.items():
            best[key] = np.minimum(best[key], [_ms(clock, work) for work in pair])
            if on_point is not None:
                on_point(1)
    return {key: (float(times[0]), float(times[1])) for key, times in best.items()}


def _ms(clock: Callable[[], float], work: Work) -> float:
    start = clock()
    work()
    return 1e3 * (clock() - start)


def timed_words(target: Target, threads: int = 1) -> str:
    """What was timed, in words."""
    device, clock = str(target.device), clock_of(str(target.device), threads)[0]
    return (
        f"round: one draft block and one verification of {REQUESTS} requests at context {CONTEXT}, fastest "
        f"of {_REPEATS}, {clock} on {device_words(device, threads)}; the paper: 128 requests, contexts 512 "
        "to 4,096"
    )
