"""Several traces as one: their texts laid end to end, with the drafters that they all have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import InputError
from dspark_sim.schema import TRACE_FORMAT
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.traces import DrafterTrace, Float16Array, Trace, offsets


def join_traces(traces: Sequence[Trace]) -> Trace:
    """Return the texts of all ``traces`` as one trace; a single one comes back as it is.

    Only drafters of all traces remain. Where their calibrations differ, the joint logits are the
    calibrated ones (rounded to float16: below 2e-4 of a probability) under the identity.

    Raises:
        InputError: no drafter in common, or temperatures, kinds, gammas or columns differ.
    """
    if len(traces) == 1:
        return traces[0]
    _refuse_differing("temperature", [(t.name, t.meta["temperature"]) for t in traces])
    drafters = {name: _join_drafter(name, traces) for name in _common(traces)}
    length = np.concatenate([t.output_tokens_Q for t in traces])
    return Trace(
        name="+".join(t.name for t in traces),
        meta=_meta(traces, drafters),
        request_id=[f"{i}:{name}" for i, t in enumerate(traces) for name in t.request_id],
        domain=[domain for t in traces for domain in t.domain],
        prompt_tokens_Q=np.concatenate([t.prompt_tokens_Q for t in traces]),
        output_tokens_Q=length,
        arrival_s_Q=None,
        offset_Q1=offsets(length),
        drafters=drafters,
    )


def _common(traces: Sequence[Trace]) -> list[str]:
    common = [name for name in traces[0].drafters if all(name in t.drafters for t in traces)]
    if not common:
        listed = "; ".join(f"{t.name}: {', '.join(t.drafters)}" for t in traces)
        raise InputError(f"traces to mix have no drafter in common ({listed})")
    return common


def _join_drafter(name: str, traces: Sequence[Trace]) -> DrafterTrace:
    parts = [t.drafters[name] for t in traces]
    for what in ("kind", "gamma", "has_confidence"):
        values = [(t.name, getattr(part, what)) for t, part in zip(traces, parts, strict=True)]
        _refuse_differing(f"{what} of drafter '{name}'", values)
    calibration = parts[0].calibration
    alike = all(
        (part.calibration.temperatures, part.calibration.biases)
        == (calibration.temperatures, calibration.biases)
        for part in parts
    )
    return DrafterTrace(
        name=name,
        kind=parts[0].kind,
        gamma=parts[0].gamma,
        accepted_N=np.concatenate([part.accepted_N for part in parts]),
        confidence_logit_NG=_join([_logits(part, part.confidence_logit_NG, alike) for part in parts]),
        confidence_logit_free_NG=_join(
            [_logits(part, part.confidence_logit_free_NG, alike) for part in parts]
        ),
        accept_rate_NG=_join([part.accept_rate_NG for part in parts]),
        calibration=calibration if alike else Calibration.identity(parts[0].gamma),
    )


def _logits(part: DrafterTrace, logit_NG: Float16Array | None, raw: bool) -> Float16Array | None:
    if raw or logit_NG is None:
        return logit_NG
    fitted = part.calibration
    scaled = logit_NG.astype(np.float64) / np.array(fitted.temperatures) + np.array(fitted.biases)
    calibrated: Float16Array = scaled.astype(np.float16)
    return calibrated


def _join(parts: list[Float16Array | None]) -> NDArray[np.float16] | None:
    """Return the parts end to end; None where one of them is not recorded."""
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if len(there) == len(parts) else None


def _refuse_differing(what: str, values: Sequence[tuple[str, Any]]) -> None:
    if len({value for _, value in values}) > 1:
        listed = ", ".join(f"{name}: {value}" for name, value in values)
        raise InputError(f"traces to mix differ in {what} ({listed})")


def _meta(traces: Sequence[Trace], drafters: dict[str, DrafterTrace]) -> dict[str, Any]:
    described = {
        name: {"kind": d.kind, "gamma": d.gamma, "calibration": d.calibration.to_json()}
        for name, d in drafters.items()
    }
    return {
        "format": TRACE_FORMAT,
        "target": " + ".join(dict.fromkeys(t.meta["target"] for t in traces)),
        "synthetic": any(t.synthetic for t in traces),
        "made": "mixed from " + "; ".join(f"{t.name} ({t.meta['made']})" for t in traces),
        "temperature": traces[0].meta["temperature"],
        "seed": traces[0].meta["seed"],
        "drafters": described,
        "notes": {"mixed": [{"name": t.name, "content_hash": t.content_hash} for t in traces]},
    }
