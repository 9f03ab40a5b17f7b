"""SmartSpec: one draft length for all, by goodput."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.uniform import uniform, uniform_step_s_K


@policy(
    "smartspec",
    source="SmartSpec / TurboSpec, arXiv 2406.14066",
    reads="none",
    verdict="lossless",
    basis="abstract",
)
def smartspec(
    view: BatchView,
    state: tuple[float, int] | None,
    *,
    keep: Annotated[float, Ge(0), Lt(1)] = 0.9,
    start: Annotated[float, Gt(0), Le(1)] = 0.7,
    probe: Annotated[int, Ge(1)] = 50,
) -> Decision:
    """K = argmax_k R (1 - alpha^(k+1)) / (1 - alpha) / T(R, k), k = 0..gamma; alpha: moving average of a
    token's acceptance (weight ``keep`` on the old, ``start`` at first). k = 0 drafts nothing.

    Ours: a chosen 0 learns nothing, so every ``probe`` steps of it one token is tried. T is the believed
    cost in place of the paper's linear one; TurboSpec's feedback on measured goodput is left out.
    Lossless: chosen before anything is drafted.
    """
    alpha, idle = state or (start, 0)
    tested = np.minimum(view.past.accepted_P + 1, view.past.verify_len_P).sum()
    if tested:
        alpha = keep * alpha + (1.0 - keep) * float(view.past.accepted_P.sum() / tested)
    tokens_K = np.cumsum(alpha ** np.arange(view.gamma + 1))
    k = int((tokens_K / uniform_step_s_K(view)).argmax())
    idle = idle + 1 if k == 0 else 0
    if idle >= probe:
        k, idle = 1, 0
    return uniform(view, k, (alpha, idle))
