"""What rules share that draft and verify the same k tokens of every request, chosen before drafting."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dspark_sim.policies.base import BatchView, Decision, Past
from dspark_sim.schema import FloatArray


def uniform(view: BatchView, k: int, state: Any = None) -> Decision:
    """Return the decision to draft and verify k tokens of every request; 0 drafts nothing."""
    length_R = np.full(view.num_running, min(k, view.gamma), dtype=np.int64)
    return Decision(length_R, state, draft_R=length_R)


def uniform_step_s_K(view: BatchView) -> FloatArray:
    """Return the believed duration [s] of a step that drafts and verifies k tokens of all, k = 0..gamma."""
    running, whole_s = view.num_running, view.draft_s(view.num_running, view.gamma)
    drafts_s = [view.draft_s(running, k) for k in range(view.gamma + 1)]
    step_s_K: FloatArray = view.step_s_M[:: running or 1] - whole_s + np.array(drafts_s)
    return step_s_K


class Positions(NamedTuple):
    """How often each draft position was tested and accepted, counted over past rounds [G each]."""

    tested_G: FloatArray
    accepted_G: FloatArray

    @classmethod
    def none(cls, gamma: int) -> Positions:
        """Return empty counts."""
        return cls(np.zeros(gamma), np.zeros(gamma))

    def after(self, past: Past, keep: float = 1.0) -> Positions:
        """Return the counts with the last step's rounds in; older ones times ``keep``."""
        place = np.arange(len(self.tested_G))
        tested_PG = (place < past.verify_len_P[:, None]) & (place <= past.accepted_P[:, None])
        accepted_PG = place < past.accepted_P[:, None]
        return Positions(
            keep * self.tested_G + tested_PG.sum(axis=0), keep * self.accepted_G + accepted_PG.sum(axis=0)
        )

    def conditional_G(self, prior: float) -> FloatArray:
        """Return P(accepted | those before were), ``prior`` counting as one test."""
        conditional: FloatArray = (self.accepted_G + prior) / (self.tested_G + 1.0)
        return conditional
