"""SGLang's adaptive number of draft steps."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le

from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.uniform import uniform

#: Candidate lengths from a number of running requests on.
CANDIDATES = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}
_WARM_UP, _EVERY, _DOWN, _DOWN_TO_ZERO = 10, 5, -0.25, 0.5


@policy(
    "sglang-adaptive",
    source="SGLang, adaptive_spec_params.py",
    reads="none",
    verdict="lossless",
    basis="engine",
)
def sglang_adaptive(
    view: BatchView,
    state: tuple[int, float, int] | None,
    *,
    alpha: Annotated[float, Gt(0), Le(1)] = 0.2,
    up: float = 0.0,
    probe: Annotated[int, Ge(1)] = 10,
) -> Decision:
    """Walk over candidate lengths by a moving average (weight ``alpha``) of accepted draft tokens: after 10
    steps, every 5, down to ``prev`` if ema <= prev - .5 - .25 (+ .5 where prev is 0), up if
    ema > cur - .5 + ``up``. Candidates by running requests: 1: 1 3 5 7, 8: 0 1 3, 32: 0 1, 64: 0.

    Ours: from 0, which learns nothing, the next length is probed every ``probe`` updates; the engine
    probes too, how often is not described. Lossless: chosen before anything is drafted.
    """
    choices = [k for k in CANDIDATES[max(c for c in CANDIDATES if c <= view.num_running)] if k <= view.gamma]
    step, ema, k = state or (0, float(choices[-1]), choices[-1])
    if view.past.verify_len_P.any():
        ema = (1.0 - alpha) * ema + alpha * float(view.past.accepted_P.mean())
    place = max(n for n, choice in enumerate(choices) if choice <= k or n == 0)
    if step >= _WARM_UP and step % _EVERY == 0:
        place = _walk(choices, place, ema, up, probing=step % (_EVERY * probe) == 0)
    return uniform(view, choices[place], (step + 1, ema, choices[place]))


def _walk(choices: list[int], place: int, ema: float, up: float, probing: bool) -> int:
    """Return the place of the next length."""
    current = choices[place]
    if place and ema <= choices[place - 1] - 0.5 + (_DOWN if choices[place - 1] else _DOWN_TO_ZERO):
        return place - 1
    rises = probing if current == 0 else ema > current - 0.5 + up
    return min(place + 1, len(choices) - 1) if rises else place
