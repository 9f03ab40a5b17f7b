"""Synthetic acceptance other than by position: rounds all alike, narrow, or changing along a text.

- *geometric*: every draft of every round is accepted with the same probability.
- *minimum-variance*: a round accepts one of the two whole numbers of drafts beside the mean. So serving
  benchmarks simulate acceptance: the mean is met with the fewest rounds.
- *drift*: the acceptance logit changes with context, and a text switches between easy and hard stretches
  of geometric length. The confidence head sees both.
"""

from __future__ import annotations

import numpy as np

from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray
from dspark_sim.workload.acceptance import geometric
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.synth_spec import Mode, SynthDrafter, SynthSpec
from dspark_sim.workload.traces import DrafterTrace, Trace

#: Confidence logit of what is certain, and minus that of what is impossible.
_CERTAIN = 12.0


def accepted_len_of(drafter: SynthDrafter) -> float:
    """Return the accepted length that the conditionals multiply to, bonus included."""
    return float(1 + np.cumprod(drafter.conditional).sum())


def alike(drafter: SynthDrafter) -> float:
    """Return the acceptance, alike at all positions, that has the drafter's accepted length."""
    return geometric(len(drafter.conditional), accepted_len_of(drafter))


def law(mode: Mode, drafter: SynthDrafter) -> FloatArray:
    """Return the conditional acceptance by position that a drafter has in ``mode`` [G]."""
    gamma = len(drafter.conditional)
    if mode == "geometric":
        return np.full(gamma, alike(drafter))
    if mode == "minimum-variance":
        return np.clip(accepted_len_of(drafter) - 1 - np.arange(gamma), 0.0, 1.0)
    return np.array(drafter.conditional)


def narrow(drafter: SynthDrafter, texts: Trace, uniform_N: FloatArray) -> DrafterTrace:
    """Return a drafter whose rounds accept one of two neighbouring numbers of drafts.

    Args:
        drafter: its accepted length is kept.
        texts: what it drafts for.
        uniform_N: one uniform draw an anchor.
    """
    law_G = law("minimum-variance", drafter)
    gamma, fewer = len(law_G), int(law_G.sum())
    accepted_N = fewer + (uniform_N < law_G.sum() - fewer)
    with np.errstate(divide="ignore"):
        logit_G = np.clip(np.log(law_G) - np.log1p(-law_G), -_CERTAIN, _CERTAIN)
    block_NG = np.tile(logit_G.astype(np.float16), (len(uniform_N), 1))
    logits = block_NG if drafter.kind == "dspark" else None
    return DrafterTrace(
        name=drafter.name,
        kind=drafter.kind,
        gamma=gamma,
        accepted_N=np.minimum(accepted_N, texts.remaining_N).astype(np.uint8),
        confidence_logit_NG=logits,
        confidence_logit_free_NG=logits,
        accept_rate_NG=None,
        calibration=Calibration.identity(gamma),
    )


def course(spec: SynthSpec, texts: Trace) -> FloatArray:
    """Return what acceptance logits gain along the texts [N]; 0 unless the mode is drift."""
    change_N = np.zeros(len(texts.request_N))
    if spec.drift:
        change_N += spec.drift * 1e-3 * (texts.prompt_tokens_Q[texts.request_N] + texts.anchor_N)
    if spec.switch:
        change_N += spec.switch * (_easy(spec, texts) - 0.5)
    return change_N


def _easy(spec: SynthSpec, texts: Trace) -> FloatArray:
    """Return which anchors [N] lie in one of the two kinds of stretches; half of them do."""
    random = stream(spec.seed, "synth", "stretches")
    requests, longest = len(texts.output_tokens_Q), int(texts.output_tokens_Q.max())
    turns_QL = random.random((requests, longest)) < 1 / spec.dwell
    first_Q1 = random.integers(0, 2, (requests, 1))
    state_QL = (first_Q1 + np.cumsum(turns_QL, axis=1)) % 2
    return np.asarray(state_QL[texts.request_N, texts.anchor_N], dtype=np.float64)
