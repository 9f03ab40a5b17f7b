"""Heads that know less: noise on the logits of a trace, and a worse ranking that is still calibrated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dspark_sim.rng import stream
from dspark_sim.workload.calibration import auc
from dspark_sim.workload.fitting import calibrate
from dspark_sim.workload.traces import DrafterTrace, Trace
from dspark_sim.workload.visits import visited

#: Noise beyond this many logits leaves nothing to rank by.
_BLIND = 60.0
_HALVINGS = 14


def noisy(drafter: DrafterTrace, sd: float) -> DrafterTrace:
    """Return the drafter with normal noise of standard deviation ``sd`` on every raw logit.

    The draw is one and the same for every ``sd``. Acceptance stays as it is.
    """
    rng = stream(0, "sensitivity", "noise")
    logits = [drafter.logits_NG(free) for free in (False, True)]
    coupled, free = ((x + sd * rng.standard_normal(x.shape)).astype(np.float16) for x in logits)
    return replace(drafter, confidence_logit_NG=coupled, confidence_logit_free_NG=free)


def blurred(trace: Trace, drafter: str, share: float) -> Trace:
    """Return the trace whose head ranks worse: AUC - 1/2 at position 1 is ``share`` of what it was.

    Noise on the logits, as much as it takes, then a calibration of temperature and bias fitted anew:
    the confidences say less, and stay as right. 1 changes nothing.

    Raises:
        InputError: no confidence head, or a single prompt.
    """
    if share >= 1.0:
        return trace
    head = trace.drafters[drafter]
    rows = visited(trace, head)
    hit = head.accepted_N[rows] > 0
    aim = 0.5 + share * (auc(head.logits_NG()[rows, 0].astype(np.float64), hit) - 0.5)
    low, high = 0.0, _BLIND
    for _ in range(_HALVINGS):
        sd = (low + high) / 2
        found = auc(noisy(head, sd).logits_NG()[rows, 0].astype(np.float64), hit)
        low, high = (sd, high) if found > aim else (low, sd)
    worse = replace(trace, drafters={**trace.drafters, drafter: noisy(head, high)})
    return calibrate(worse, drafter, "bias").trace
