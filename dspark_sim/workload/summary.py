"""What a trace holds, as one document: the figures behind ``dspark-sim trace show``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark_sim.workload.discrimination import discrimination
from dspark_sim.workload.traces import DrafterTrace, Trace
from dspark_sim.workload.visits import Acceptance, bootstrap, count, evidence, reliability, visited

RESAMPLES = 400


def summarise(trace: Trace, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Return requests, tokens, and per drafter and domain the statistics over visited anchors.

    Intervals (``..._ci``: [low, high]) are 95% cluster-bootstrap intervals over prompts; with
    ``resamples`` 0 they are left out. Several domains are followed by their pool, ``all``.
    """
    tokens = trace.output_tokens_Q
    return {
        "trace": trace.name,
        "synthetic": trace.synthetic,
        "target": trace.meta["target"],
        "made": trace.meta["made"],
        "temperature": trace.meta["temperature"],
        "content_hash": trace.content_hash,
        "requests": len(tokens),
        "prompts": len(set(trace.prompt_key)),
        "output_tokens": int(tokens.sum()),
        "output_tokens_mean": float(tokens.mean()),
        "output_tokens_max": int(tokens.max()),
        "prompt_tokens_mean": float(trace.prompt_tokens_Q.mean()),
        "arrivals": trace.arrival_s_Q is not None,
        "drafters": [_drafter(trace, drafter, resamples) for drafter in trace.drafters.values()],
        "meta": trace.meta,
    }


def _drafter(trace: Trace, drafter: DrafterTrace, resamples: int) -> dict[str, Any]:
    domains = np.array(trace.domain)
    parts = {name: trace.take(domains == name) for name in dict.fromkeys(trace.domain)}
    if len(parts) > 1:
        parts["all"] = trace
    return {
        "drafter": drafter.name,
        "kind": drafter.kind,
        "gamma": drafter.gamma,
        "calibration": drafter.calibration.to_json(),
        "domains": [_domain(part, name, drafter.name, resamples) for name, part in parts.items()],
    }


def _domain(trace: Trace, name: str, drafter_name: str, resamples: int) -> dict[str, Any]:
    drafter = trace.drafter(drafter_name)
    anchors = visited(trace, drafter)
    counts = count(trace, drafter, anchors)
    document = {
        "domain": name,
        "requests": len(trace.request_id),
        "output_tokens": int(trace.output_tokens_Q.sum()),
        "rounds": len(anchors),
        **_acceptance(counts.total()),
        "inside": counts.inside_KG.sum(axis=0).tolist(),
        "reached": counts.reached_KG.sum(axis=0).tolist(),
    }
    if resamples:
        low, high = (_acceptance(end) for end in bootstrap(counts, resamples, seed=0))
        document |= {f"{key}_ci": [low[key], high[key]] for key in low}
    if drafter.has_confidence:
        told = discrimination(trace, drafter, anchors)
        document |= {
            "auc_conditional": told.auc_G.tolist(),
            "auc_ceiling": told.ceiling_G.tolist(),
            "auc_share": told.share_G.tolist(),
        }
        rounds = evidence(trace, drafter, anchors)
        for label, calibrated in (("raw", False), ("calibrated", True)):
            scores = reliability(drafter, rounds, calibrated)
            document |= {
                f"ece_{label}": scores.ece_G.tolist(),
                f"auc_{label}": scores.auc_G.tolist(),
                f"brier_{label}": scores.brier_G.tolist(),
            }
    return document


def _acceptance(figures: Acceptance) -> dict[str, Any]:
    return {
        "accepted_len": figures.accepted_len,
        "accepted_len_uncut": figures.accepted_len_uncut,
        "conditional": figures.conditional_G.tolist(),
        "survival": figures.survival_G.tolist(),
    }
