"""Refit vLLM's two sweeps to all their static arms: what the paper case's derived priors stand on.

    python tools/derive_priors.py            # the rows of validation/data/paper_evidence.csv, and the priors
    python tools/derive_priors.py --quick    # the priors from the committed rows

The refits take two minutes of CPU. Adaptive arms are not used.
"""

from __future__ import annotations

import sys

import numpy as np

from dspark_sim.fitting.arms import parse_arms
from dspark_sim.fitting.sweep_fit import fit_sweep
from dspark_sim.validation import derivation
from dspark_sim.validation.vllm import FLASH, PRO, Case

DRAFTED = 5


def refit(case: Case) -> str:
    """Return the row of one sweep."""
    rows = [row for row in case.rows() if row.arm != "adaptive"]
    arms = parse_arms([row.arm for row in rows], {})
    fitted = fit_sweep(case.frame(), case.unknowns(), arms, rows)
    estimates = {estimate.name: estimate for estimate in fitted.fit.estimates}
    host = estimates["per_request_ms"]
    scale = estimates["verify_scale"].value if "verify_scale" in estimates else 1.0
    accepted_len = 1 + np.cumprod(fitted.system.acceptance.conditional[:DRAFTED]).sum()
    times = ",".join(f"{1e3 * ms:.1f}" for ms in (host.value, host.low, host.high))
    return f"{case.model},{case.gpus},{times},{scale:.2f},{accepted_len:.2f}"


def main() -> None:
    """Print rows, priors, and the check by sizes."""
    if "--quick" not in sys.argv[1:]:
        print("model,gpus,per_request_us,per_request_low,per_request_high,verify_scale,accepted_len_5")
        for case in (FLASH, PRO):
            print(refit(case), flush=True)
    for what, prior in (
        ("per request [us]", derivation.per_request_us()),
        *((f"token_share, {model}", derivation.token_share(model)) for model in derivation.ACTIVE),
        ("traffic", derivation.traffic()),
    ):
        print(f"{what}: {prior.mode:.3f} ({prior.low:.3f} to {prior.high:.3f})")
    for what, ratio in derivation.work_ratios().items():
        us = derivation.per_request_by_sizes_us(ratio)
        print(f"a token of V4-Pro costs {ratio:.2f} of V4-Flash ({what}): {us:+.1f} us per request")


if __name__ == "__main__":
    main()
