"""One replica that nobody shares the clock with: its steps need no event each."""

from __future__ import annotations

import math

from dspark_sim.engine.recorder import Recorder
from dspark_sim.engine.replica import Replica
from dspark_sim.engine.sources import Source

#: Steps between two events.
STRETCH = 1 << 12


class Alone:
    """The engine of :meth:`~dspark_sim.engine.serving.Deployment.run_ahead`: a replica, and what it is sent.

    Args:
        replica: nobody else shares its clock.
        source: where its requests come from.
        recorder: says when all is done.
        check: test the laws after every step.
    """

    def __init__(self, replica: Replica, source: Source, recorder: Recorder, check: bool) -> None:
        self._replica, self._source, self._recorder, self._check = replica, source, recorder, check
        self._now_s = 0.0

    def advance(self) -> tuple[bool, float]:
        """Run up to :data:`STRETCH` steps; return whether all is over, and the time [s]."""
        replica, source, recorder = self._replica, self._source, self._recorder
        now_s = self._now_s
        source.let_in(now_s)
        for _ in range(STRETCH):
            if recorder.done:
                return True, now_s
            if not replica.begin(now_s):
                if recorder.done or source.next_s == math.inf:
                    return True, now_s
                now_s += source.next_s - now_s
                source.let_in(now_s)
                continue
            start_s, step_s = now_s, replica.decide()
            now_s += step_s
            source.let_in(now_s)
            replica.commit(start_s, step_s, now_s)
            if self._check:
                replica.check_laws()
        self._now_s = now_s
        return False, now_s
