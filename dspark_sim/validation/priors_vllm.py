"""What is believed of the two vLLM sweeps before they are fitted: unknowns of profile, lengths, acceptance.

Used rows: no speculation and k7, at every concurrency, tok/s and tok/s/user. Everything else is predicted.
Cost per step beyond the profiled curves (which were taken on dummy tokens):

    verify(pad(B)) + draft(R) + host + per request + per logit row + E (1 - (1 - f)^B)
    + what speculating adds + what mixing prompt tokens in adds

The step past the capture limit stays a step, not a ramp. What a feasibility study found throughput not
to identify (stairs, the spread of confidences, the order of categories) is held, not fitted.
"""

from __future__ import annotations

from dspark_sim.fit import Unknown

#: Rows that a fit may use.
USED_ARMS = ("nospec", "k7")
#: Experts active for a token and in all: the share of experts that B real tokens touch is 1 - (1 - f)^B.
EXPERTS = {"V4-Flash": (6, 256), "V4-Pro": (6, 384)}
#: V4-Pro's drafter over the measured one of V4-Flash, beside the scale of a verify pass: three layers of
#: 61 instead of three of 43.
PRO_DRAFT_SHARE = 43 / 61

_HOST = (
    Unknown("host_constant_ms", 0.8, 0.4, "TPOT at one user less the profiled pass: 5.85 - 5.11 ms"),
    Unknown("per_request_ms", 0.010, 0.6, "sampling and bookkeeping; 7 to 15 us in a feasibility study"),
    Unknown("per_logit_row_ms", 0.006, 0.6, "a vocabulary row read and sampled; 5 to 7 us there"),
    Unknown("experts_ms", 6.0, 0.4, "experts that dummy tokens leave cold: about 6 ms there"),
    Unknown("speculating_ms", 0.5, 0.7, "rejection sampling and draft bookkeeping of a speculative step"),
    Unknown("mixed_ms", 2.0, 0.7, "a step that mixes prompt tokens in; 2 ms there, barely identified"),
)
_LENGTHS = (
    Unknown("prompt_tokens", 110.0, 0.4, "the benchmark's prompts: 100 to 120 in the median there"),
    Unknown("output_tokens", 350.0, 0.25, "Weibull of shape 2.4 and scale 370 to 410, cut at 512"),
    Unknown("turnaround_ms", 8.0, 0.7, "client and scheduler between two requests of one user"),
)
#: Odds of acceptance at the first position and, over it, at the deeper ones.
_ACCEPTANCE = (
    Unknown("first_odds", 3.0, 0.35, "first position accepted .70 to .80: >.70 is printed, golden curve .84"),
    Unknown(
        "deeper_odds",
        0.75,
        0.25,
        "conditional odds at positions 2 to 7 over the first: .9 if first .74 gives 3.4 a round, golden .6",
    ),
)

UNKNOWNS: dict[str, tuple[Unknown, ...]] = {
    "V4-Flash": (
        *_HOST,
        Unknown("eager_scale", 1.0, 0.08, "the eager tail was profiled: 104 ms"),
        *_LENGTHS,
        *_ACCEPTANCE,
    ),
    "V4-Pro": (
        *_HOST,
        Unknown("verify_fixed_ms", 0.5, 0.8, "constant over the scaled Flash curve"),
        Unknown("verify_scale", 1.9, 0.15, "active parameters a GPU over Flash's: no curve is published"),
        Unknown("eager_scale", 1.3, 0.15, "launches by layers: 61 over 43, less what does not scale"),
        # Added after the first fits: without it one eager level had to serve k7 at 128 and at 256 users,
        # and missed them by -17 and +28%. docs/validation.md has the results without it too.
        Unknown("eager_far", 1.0, 0.25, "the tail past 2,048 tokens need not be in V4-Flash's proportion"),
        *_LENGTHS,
        *_ACCEPTANCE,
    ),
}
