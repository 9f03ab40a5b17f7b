"""The load knee: what a service gets done while its queue never ends."""

from __future__ import annotations

import numpy as np

from dspark_sim.schema import RunLog

#: Share of the completions before the backlog counts as steady: the first batch starts all at once, and
#: its short texts end first.
_SETTLED = 0.25
#: Least share of the completions between then and the end of the queue for the rate to mean something.
_LEAST = 0.125


def load_knee(run: RunLog, replicas: int) -> float | None:
    """Return the requests a second that a service gets done of a backlog, all sent at once [1/s].

    A service that serves faster the more requests run, up to a limit, is stable if and only if arrivals are
    slower than this. Measured in tokens, between a quarter of the completions and the end of the queue, over
    the tokens that a request takes: completions come in waves, tokens do not.

    Args:
        run: of requests that all arrive at one instant.
        replicas: engines that decode; engines of a prefill pool count on behind them.

    Returns:
        None if the queue ends before the service settles: nothing limits how many run at once.
    """
    log, steps = run.requests, run.steps
    if not len(log.end_s):
        return None
    ends_s = np.sort(log.end_s)
    begin_s, end_s = float(ends_s[int(_SETTLED * len(ends_s))]), _queue_end_s(run, replicas)
    inside = (steps.start_s >= begin_s) & (steps.start_s + steps.step_s <= end_s)
    settled = np.count_nonzero((ends_s >= begin_s) & (ends_s <= end_s))
    if settled < _LEAST * len(ends_s) or not inside.any():
        return None
    lasted_s = float((steps.start_s + steps.step_s)[inside].max() - steps.start_s[inside].min())
    tokens_each = float(steps.committed_tokens.sum()) / len(log.end_s)
    return float(steps.committed_tokens[inside].sum()) / lasted_s / tokens_each


def _queue_end_s(run: RunLog, replicas: int) -> float:
    """Return until when requests waited at all engines of a pool: of two pools, at the slower one [s]."""
    steps = run.steps
    last_s = {
        int(engine): float(
            (steps.start_s + steps.step_s)[(steps.replica == engine) & (steps.waiting > 0)].max(initial=0.0)
        )
        for engine in np.unique(steps.replica)
    }
    pools = [
        [end for engine, end in last_s.items() if (engine < replicas) is decodes] for decodes in (True, False)
    ]
    return max(min(pool) for pool in pools if pool)
