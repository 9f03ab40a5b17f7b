"""What the replicas of a pool share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dspark_sim.engine.decoding import Observer
from dspark_sim.engine.prefill import Prefill
from dspark_sim.engine.recorder import Recorder
from dspark_sim.engine.replay import Replay
from dspark_sim.engine.requests import Requests, Tickets


@dataclass(frozen=True)
class Service:
    """A pool's side of the run.

    Attributes:
        replay, requests, tickets, recorder: what is replayed, asked, sent, put on record.
        prefill: how prompts are computed here.
        completed: told how many requests are done, and when [s].
        handoff: told which request has its prompt done; None: it decodes here.
        observer: told about every round; None: nobody.
    """

    replay: Replay
    requests: Requests
    tickets: Tickets
    recorder: Recorder
    prefill: Prefill
    completed: Callable[[int, float], None]
    handoff: Callable[[int], None] | None = None
    observer: Observer | None = None
