"""The cost that a planner believes, where it is not the true one: how each engine would have profiled the
machine and looks its table up, and what is wrong with a table.

A spec is the name of a convention (``vllm:context=8192``) or a profile of its own (path or shipped
name). A convention is applied to the true profile, overrides included, as if the engine had profiled it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.exchange import Described, TableFormat, export_table, import_document
from dspark_sim.hardware.forward import additive_ms, forward_ms
from dspark_sim.hardware.profile import EagerTail, HardwareProfile, Host, VerifyTable, load_profile
from dspark_sim.hardware.reading import ProfileError, parse_profile
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.schema import DraftKind
from dspark_sim.specs import bind

#: KV context at which profilers time whole steps, unless said [tokens].
CONTEXT = 1024
#: vLLM's dummy context (VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN) and largest batch of the tail.
_VLLM_CONTEXT, _VLLM_MAX_BATCHED_TOKENS = 8192, 16_384
Tokens = Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True)
class Block:
    """What drafts: kind and draft tokens of a full block."""

    kind: DraftKind
    gamma: int


Convention = Callable[..., HardwareProfile]


def vllm(true: HardwareProfile, block: Block, *, context: Tokens = _VLLM_CONTEXT) -> HardwareProfile:
    """Captured sizes and an eager tail at 1.5, 2, 4, ... times the limit, dummy tokens, frozen context;
    no host time. Looked up by rounding up to a captured size after a running maximum, on a line from the
    limit into the tail, and past its end by the last two points.
    """
    dummy = replace(true, experts=None)
    captured = capture_sizes(true.capture, true.verify.tokens)
    tail = _tail(captured[-1]) if captured else []
    sizes, ms = captured or [*true.verify.tokens], _forward_at(dummy, block, context)
    verify = VerifyTable(
        lookup="ceil_to_capture" if captured else "linear",
        tokens=tuple(sizes),
        ms=ms(sizes),
        beyond="last_two" if len(sizes) > 1 else "hold",
        context_tokens=context,
        monotone=True,
    )
    eager = EagerTail(tokens=tuple(tail), ms=ms(tail), beyond="last_two", below="ramp") if captured else None
    return replace(
        dummy, verify=verify, eager=eager, attention=None, prefill=None, host=Host(0.0, 0.0), kv=None
    )


def sglang(true: HardwareProfile, block: Block, *, context: Tokens = CONTEXT) -> HardwareProfile:
    """Whole steps of full blocks by batch tokens (SpsCostTable): floor, held past the end."""
    return _through_table(true, block, "sglang", context)


def sglang_additive(true: HardwareProfile, block: Block, *, context: Tokens = CONTEXT) -> HardwareProfile:
    """Bias + alpha(requests) + theta(tokens) of whole steps: linear, clamped; stairs and cliff smeared."""
    return _through_table(true, block, "sglang-additive", context)


def sglang_captured(true: HardwareProfile, block: Block, *, context: Tokens = CONTEXT) -> HardwareProfile:
    """What capturing graphs times (SGLANG_DSPARK_ENABLE_CAPTURE_DERIVED_SPS): theta(tokens), the target's
    graph of full blocks at each captured size; alpha(requests), the draft's at as many requests. Dummy
    tokens, no host time. Linear between sizes, clamped: padding to the next size is not seen.

    Raises:
        InputError: nothing is captured.
    """
    sizes = capture_sizes(true.capture, true.verify.tokens)
    if not sizes:
        raise InputError(
            f"believed cost 'sglang-captured': {true.name} captures no graphs (its capture section)"
        )
    dummy = replace(true, experts=None, host=Host(0.0, 0.0))
    requests = sorted({-(-size // (1 + block.gamma)) for size in sizes})
    cost = StepCost(dummy, requests[-1], 1)
    table = {
        "bias_seconds": 0.0,
        "bs_probes": requests,
        "alpha_seconds": [cost.draft_s(block.kind, r, block.gamma) for r in requests],
        "m_probes": list(sizes),
        "theta_seconds": [ms * 1e-3 for ms in _forward_at(dummy, block, context)(list(sizes))],
    }
    return _imported(true, table, "sglang-captured", context)


def trtllm(true: HardwareProfile, block: Block, *, context: Tokens = CONTEXT) -> HardwareProfile:
    """TensorRT-LLM's table, the same additive form."""
    return _through_table(true, block, "trtllm", context)


def linear(true: HardwareProfile, block: Block) -> HardwareProfile:
    """The measured sizes joined by lines, no padding and no cliff (ATOM; all other terms true)."""
    captured = capture_sizes(true.capture, true.verify.tokens)
    if not captured:
        return replace(true, verify=replace(true.verify, lookup="linear"))
    sizes = [*captured, *_tail(captured[-1])]
    forward = forward_ms(true, np.array(sizes, dtype=np.float64), captured)
    verify = replace(true.verify, lookup="linear", tokens=tuple(sizes), ms=tuple(forward.tolist()))
    return replace(true, verify=replace(verify, beyond="last_two"), capture=None, eager=None, experts=None)


def flat(true: HardwareProfile, block: Block) -> HardwareProfile:
    """One time for every step: no table, or one whose profiler never varied the batch. Verifies all."""
    captured = capture_sizes(true.capture, true.verify.tokens)
    step_ms = float(forward_ms(true, np.array([1.0]), captured)[0])
    return _imported(true, {"sample_batch_tokens": [1], "sample_steps_per_sec": [1e3 / step_ms]}, "flat", 1)


CONVENTIONS: dict[str, Convention] = {
    "vllm": vllm,
    "sglang": sglang,
    "sglang-additive": sglang_additive,
    "sglang-captured": sglang_captured,
    "trtllm": trtllm,
    "linear": linear,
    "flat": flat,
}


def believe(spec: str, true: HardwareProfile, block: Block) -> HardwareProfile:
    """Return the profile that a planner believes.

    Args:
        spec: a convention with its options, or a profile by path or shipped name.
        true: the profile that the engine charges.
        block: what drafts; conventions that time whole steps have its cost in their table.

    Raises:
        InputError: an option that the convention lacks, or no such profile.
    """
    name = spec.partition(":")[0]
    if name in CONVENTIONS:
        convention = CONVENTIONS[name]
        return convention(true, block, **bind("believed cost", spec, convention).values)
    try:
        return load_profile(spec)
    except ProfileError:
        raise
    except InputError as error:
        hint = did_you_mean(name, CONVENTIONS)
        raise InputError(f"{error}; conventions{hint}: {', '.join(CONVENTIONS)}") from None


def _tail(limit: int) -> list[int]:
    """Return the sizes that vLLM times past the limit: 1.5 times, then doubling from 2 times."""
    sizes = [limit * 3 // 2, *(limit << i for i in range(1, 15))]
    return [size for size in sizes if size <= max(_VLLM_MAX_BATCHED_TOKENS, 2 * limit)]


def _forward_at(
    profile: HardwareProfile, block: Block, context: int
) -> Callable[[list[int]], tuple[float, ...]]:
    """Return size list -> forward pass [ms], attention at that context and full blocks included."""
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    most = profile.max_num_seqs or 1024

    def ms(sizes: list[int]) -> tuple[float, ...]:
        cost = StepCost(profile, most, 1)
        requests = [min(-(-size // (1 + block.gamma)), most) for size in sizes]
        attention_X = np.array([cost.attention_s(r, r * context) * 1e3 for r in requests])
        forward_X = forward_ms(profile, np.array(sizes, dtype=np.float64), captured)
        return tuple((forward_X + attention_X + additive_ms(profile, most)[requests]).tolist())

    return ms


def _through_table(true: HardwareProfile, block: Block, form: TableFormat, context: int) -> HardwareProfile:
    table = export_table(true, form, kind=block.kind, gamma=block.gamma, context_tokens=context)
    return _imported(true, table, form, context)


def _imported(true: HardwareProfile, table: dict[str, Any], form: str, context: int) -> HardwareProfile:
    described = Described(
        f"{true.name} as {form} reads it", true.device, true.model, true.num_gpus, "derived", context
    )
    return parse_profile(import_document(table, described, form), form)
