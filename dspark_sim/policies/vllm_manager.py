"""vLLM's earlier manager of dynamic speculative decoding: one length by measured acceptance."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.uniform import Positions, uniform, uniform_step_s_K


@policy(
    "vllm-manager",
    source="vLLM, spec_decode/dynamic/manager.py (RFC #48627)",
    reads="none",
    verdict="lossless",
    basis="engine",
)
def vllm_manager(
    view: BatchView, state: tuple[int, Positions] | None, *, warm_up: Annotated[int, Ge(0)] = 10
) -> Decision:
    """K = argmax_k (1 + sum over i <= k of p_i) / ITL(R, k) after ``warm_up`` steps of whole blocks.

    p_i: measured share of rounds that accept position i. Simplified: positions that shorter blocks
    never tested keep the acceptance of when they were; ITL is the believed cost. Lossless: chosen before
    anything is drafted.
    """
    step, counts = state or (0, Positions.none(view.gamma))
    counts = counts.after(view.past)
    tokens_K = 1.0 + np.concatenate([[0.0], np.cumsum(np.cumprod(counts.conditional_G(prior=0.5)))])
    best = int((tokens_K / uniform_step_s_K(view)).argmax())
    return uniform(view, view.gamma if step < warm_up else best, (step + 1, counts))
