"""What is believed before any result is looked at: unknowns with a most likely value and a range.

Each unknown has a triangular law on [low, high] with its mode at ``mode``: the range is all that is
held possible, and the ends of it least so. The numbers of :data:`FIRST_DECLARED` were written down, and
entered the history of the project, before the first prediction was made; they follow from published
measurements of other systems and from arithmetic, as the reasons say, and from no DSpark curve of
the paper. Two of them were guesses where measurements existed. :data:`PAPER`, which predictions use,
has these two derived (``derivation.py``); what the first ones give is printed beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray
from dspark_sim.workload.published import DSV4_PRO


@dataclass(frozen=True, slots=True)
class Prior:
    """One unknown: the most likely value, the range, and why."""

    mode: float
    low: float
    high: float
    why: str


#: Accepted length at k = 1..5, bonus included: the golden curves of V4-Pro.
DSPARK_ACCEPTED_LEN = DSV4_PRO["dspark"]
MTP_ACCEPTED_LEN = DSV4_PRO["mtp"]

_COMMON: dict[str, Prior] = {
    "traffic": Prior(
        0.0,
        -0.25,
        0.25,
        "shift of every acceptance logit, MTP-1 and DSpark alike: live traffic is not the coding set of "
        "the golden curves. Accepted length of MTP-1 1.75 to 1.83, of DSpark-5 3.3 to 3.9",
    ),
    "dspark_shift": Prior(
        0.0,
        -0.15,
        0.15,
        "shift of DSpark's acceptance logits alone: another checkpoint than the one of the golden curve",
    ),
    "token_share": Prior(
        0.85,
        0.65,
        1.0,
        "share of the variable cost of an MTP-1 step that goes by tokens, the rest by requests; MTP-1 "
        "always has two tokens a request and cannot say. Fits of vLLM sweeps: 7-15 us a request beside "
        "twice 20-33 us a token, a share of .8 to .87. If all of the slope is tokens, 13 and 49 G active "
        "parameters run at 0.9 to 1.3 PFLOP/s; below a share of .65 they would pass what FP8 can do",
    ),
    "spread": Prior(
        1.0,
        0.75,
        1.25,
        "scale of the spreads of the acceptance logit; 1 gives the AUCs of figure 6 at positions 1 to 7",
    ),
    "believed_slope": Prior(
        1.0,
        0.75,
        1.25,
        "slope of the planner's cost table over the true one: costs by request are folded into tokens "
        "or left out, drafting is or is not in the table",
    ),
}

#: Added after the first predictions were seen, and so stated apart: it widens intervals and moves no
#: centre. A feasibility study found median errors of 4 to 8% over reasonable priors, more than the
#: priors here spread.
STRUCTURE = Prior(1.0, 0.90, 1.10, "what the form of the step cost and of the acceptance law leaves out")

#: model -> unknown -> prior, as written down before the first prediction.
FIRST_DECLARED: dict[str, dict[str, Prior]] = {
    "V4-Flash": {
        **_COMMON,
        "draft_fixed": Prior(
            0.10,
            0.06,
            0.17,
            "DSpark's draft at zero load over the target's step at zero load: 3 of 43 layers are .07, "
            "head and serial loop .02 to .05; measured on TP4 B300: .88 of 5.11 ms with 7 tokens, .17",
        ),
        "draft_per_request": Prior(
            0.65,
            0.40,
            0.95,
            "DSpark's draft by request, in tokens of the target: 3 layers times 5 tokens over 43 layers "
            "and 5 logit rows are .55; measured on TP4 B300, 5 of 7 tokens: .83",
        ),
        "curve": Prior(1.0, 0.96, 1.04, "figures 7 and 8 disagree on the MTP-1 step by up to 4%"),
    },
    "V4-Pro": {
        **_COMMON,
        "draft_fixed": Prior(0.08, 0.045, 0.15, "as for Flash, with 3 of 61 layers"),
        "draft_per_request": Prior(
            0.42, 0.25, 0.65, "as for Flash: 15 of 61 layer tokens and 5 logit rows are .35; scaled .53"
        ),
        "curve": Prior(
            1.0,
            0.93,
            1.07,
            "figures 7 and 8 disagree on the MTP-1 step by 6% at 100 requests, 15% at 50, 0 at 200",
        ),
    },
}

_TRAFFIC = Prior(
    -0.14,
    -0.41,
    0.14,
    "as first declared, but centred between the two sets on which V4's DSpark was measured: coding (0) and "
    "all eleven categories (-.33 on Pro, -.22 on Flash, by refits of vLLM's sweeps); the range goes on by "
    "half their distance on both sides",
)
_SLOWEST = Prior(
    2.07,
    0.0,
    2.89,
    "V4 spans GPUs, and its experts make every rank wait for the one with most tokens. Under DSpark a rank's "
    "tokens vary from step to step, under MTP-1 they do not. In standard deviations: the expected largest of "
    "32 ranks, none if ranks agree on a budget, of 320",
)
_SHARE = (
    "11 us a request (0 to 25) on a scheduler, by refits of vLLM's sweeps of the same models to all their "
    "static arms; the rest of the MTP-1 slope of this model goes by tokens"
)

#: What predictions use: :data:`FIRST_DECLARED`, with two priors derived from measurements of V4 elsewhere,
#: and one unknown more, which the first list had left out. Both came after the printed anchors had been
#: seen, from evidence that never saw them.
PAPER: dict[str, dict[str, Prior]] = {
    "V4-Flash": {
        **FIRST_DECLARED["V4-Flash"],
        "traffic": _TRAFFIC,
        "slowest_rank": _SLOWEST,
        "token_share": Prior(0.78, 0.50, 1.0, _SHARE),
    },
    "V4-Pro": {
        **FIRST_DECLARED["V4-Pro"],
        "traffic": _TRAFFIC,
        "slowest_rank": _SLOWEST,
        "token_share": Prior(0.92, 0.81, 1.0, _SHARE),
    },
}

#: Standard deviation of a rank's batch tokens over the root of its requests, in the engine under DSpark: 1.0
#: to 1.3 at 50 to 227 requests.
TOKENS_DEVIATION = 1.1

#: MTP-1's one serial pass over DSpark's block: one of its three layers, and two of its fifteen layer
#: tokens with one of its five logit rows.
MTP_FIXED, MTP_PER_REQUEST = 1 / 3, 1 / 6


def modes(priors: Mapping[str, Prior]) -> dict[str, float]:
    """Return the most likely value of every unknown."""
    return {name: prior.mode for name, prior in priors.items()}


def draw(priors: Mapping[str, Prior], count: int, seed: int) -> dict[str, FloatArray]:
    """Draw ``count`` values of every unknown, independently; each has a stream of its own name."""
    return {
        name: np.asarray(stream(seed, "prior", name).triangular(p.low, p.mode, p.high, count))
        for name, p in priors.items()
    }
