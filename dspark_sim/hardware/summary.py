"""A profile in figures: the staircase, its falls and its cliff, and what drafting costs."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import Any

from dspark_sim.hardware.cost import StepCost, verify_ms
from dspark_sim.hardware.forward import additive_ms
from dspark_sim.hardware.memory import GIB, graph_bytes, kv_blocks
from dspark_sim.hardware.profile import HardwareProfile, ParallelDraft
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.schema import DraftKind

#: Mean KV context at which the attention of the summary is read [tokens].
CONTEXT = 1024


def summarise(profile: HardwareProfile) -> dict[str, Any]:
    """Return what ``hw show`` prints, JSON-ready; times in ms, each term of a step on its own."""
    last = _last_size(profile)
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    cost_B = verify_ms(profile, last, captured)
    requests = [r for r in _powers(last) if profile.max_num_seqs is None or r <= profile.max_num_seqs]
    cost = StepCost(profile, max(requests), last)
    shown = sorted({*_powers(last), *(s for s in _edges(captured) if s <= last)})
    return {
        "name": profile.name,
        "description": profile.description,
        "device": profile.device,
        "model": profile.model,
        "num_gpus": profile.num_gpus,
        "max_num_seqs": profile.max_num_seqs,
        "lookup": profile.verify.lookup,
        "context_tokens": profile.verify.context_tokens,
        "capture_limit": profile.capture_limit,
        "captured_sizes": len(captured),
        "verify": [{"tokens": b, "runs": cost.padded(b), "ms": float(cost_B[b])} for b in shown],
        "falls": _falls(profile),
        "cliff": _cliff(captured, cost_B.tolist()),
        "draft": {kind: _draft(profile, cost, kind, requests) for kind in profile.draft.kinds},
        "attention": _attention(profile, cost, requests),
        "additive": _additive(profile, requests),
        "host": asdict(profile.host),
        "experts": asdict(profile.experts) if profile.experts else None,
        "prefill": asdict(profile.prefill) if profile.prefill else None,
        "kv": _kv(profile),
        "versions": dict(profile.versions),
        "sources": {path: asdict(source) for path, source in profile.sources.items()},
    }


def _last_size(profile: HardwareProfile) -> int:
    """Return the largest size worth showing: past the limit if there is one, else the table's end."""
    return max(2 * profile.capture_limit if profile.capture_limit else 0, profile.verify.tokens[-1])


def _powers(last: int) -> list[int]:
    return [1 << i for i in range(last.bit_length())]


def _edges(captured: list[int]) -> list[int]:
    return [captured[-1], captured[-1] + 1] if captured else []


def _falls(profile: HardwareProfile) -> list[dict[str, float]]:
    """Return the measured sizes that cost less than the size before them, by more than 1%."""
    points = zip(profile.verify.tokens, profile.verify.ms, strict=True)
    return [
        {"from_tokens": before[0], "to_tokens": after[0], "from_ms": before[1], "to_ms": after[1]}
        for before, after in pairwise(points)
        if after[1] < 0.99 * before[1]
    ]


def _cliff(captured: list[int], cost_B: list[float]) -> dict[str, float] | None:
    """Return the step over the capture limit, None if the profile knows no graphs."""
    if not captured or captured[-1] + 1 >= len(cost_B):
        return None
    limit = captured[-1]
    return {"limit_tokens": limit, "at_limit_ms": cost_B[limit], "past_limit_ms": cost_B[limit + 1]}


def _draft(profile: HardwareProfile, cost: StepCost, kind: DraftKind, requests: list[int]) -> dict[str, Any]:
    section = profile.draft.get(kind)
    k = section.gamma if isinstance(section, ParallelDraft) else 1
    points = [{"requests": r, "ms": cost.draft_s(kind, r, k) * 1e3} for r in requests]
    return {"k": k, "pass": "parallel" if isinstance(section, ParallelDraft) else "serial", "ms": points}


def _attention(profile: HardwareProfile, cost: StepCost, requests: list[int]) -> dict[str, Any] | None:
    if profile.attention is None:
        return None
    points = [{"requests": r, "ms": cost.attention_s(r, r * CONTEXT) * 1e3} for r in requests]
    return {"context_tokens": CONTEXT, "ms": points}


def _additive(profile: HardwareProfile, requests: list[int]) -> list[dict[str, float]] | None:
    if profile.verify.additive is None:
        return None
    ms_R = additive_ms(profile, requests[-1]).tolist()
    return [{"requests": r, "ms": ms_R[r]} for r in requests]


def _kv(profile: HardwareProfile) -> dict[str, float] | None:
    """Return the KV blocks without and with a drafter's KV, and what the graphs take."""
    if profile.kv is None:
        return None
    alone, drafting = (kv_blocks(profile, drafting) for drafting in (False, True))
    assert alone is not None
    assert drafting is not None
    sizes = {"block_tokens": profile.kv.block_tokens, "blocks": alone, "blocks_drafting": drafting}
    return {**sizes, "graph_gib": graph_bytes(profile) / GIB}
