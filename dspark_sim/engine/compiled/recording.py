"""A recorder in blocks that the compiled step writes."""

from __future__ import annotations

import numpy as np

from dspark_sim.engine.compiled import layout as at
from dspark_sim.engine.compiled.loop import is_done
from dspark_sim.engine.recorder import Recorder, Records, Sink

#: Steps, and requests that end, between two emptyings.
STEPS = 1 << 14
ENDS = 1 << 13


class CompiledRecorder(Recorder):
    """A recorder whose counters and blocks the compiled step writes; made as :class:`Recorder` is."""

    def __init__(
        self,
        gamma: int,
        slots: int,
        warmup_tokens: float,
        output_tokens: int | None,
        requests: int | None = None,
        *,
        records: Records,
        sink: Sink | None = None,
    ) -> None:
        super().__init__(gamma, slots, warmup_tokens, output_tokens, requests, records=records, sink=sink)
        ints = np.zeros(at.AHEAD + 1, dtype=np.int64)
        ints[at.MEASURING] = self.measuring
        ints[at.LEFT] = at.ENDLESS if requests is None else requests
        ints[at.WANTED] = at.ENDLESS if output_tokens is None else output_tokens
        self.run = at.Run(
            ints=ints,
            floats=np.array([0.0, warmup_tokens]),
            ahead=np.empty(0, dtype=np.int64),
            arrival_s_K=np.empty(0),
            rows=np.empty((STEPS, at.ROW_FIELDS)),
            singles=np.empty(ENDS + 2 * slots),
            finished=np.empty(0, dtype=np.int64),
            length_counts=self._verify_len_counts,
            accepted_counts=self._accepted_counts,
        )

    @property
    def done(self) -> bool:
        """Whether all that was wanted is measured."""
        return bool(is_done(self.run))

    def refuse(self, count: int) -> None:
        """Do not wait for ``count`` requests that were refused."""
        if self.run.ints[at.LEFT] != at.ENDLESS:
            self.run.ints[at.LEFT] -= count

    def flush(self) -> None:
        """Take over what stands in the blocks, and empty them."""
        ints, run = self.run.ints, self.run
        self._gaps.append(run.singles[: ints[at.SINGLES]].copy())
        self._finished.append(run.finished[: ints[at.FINISHED]].copy())
        self._keep(run.rows[: ints[at.ROWS]].copy())
        ints[[at.ROWS, at.SINGLES, at.FINISHED]] = 0
        self.completed, self.warmup_steps = int(ints[at.COMPLETED]), int(ints[at.WARMUP_STEPS])
        self.measured_tokens = int(ints[at.MEASURED])
