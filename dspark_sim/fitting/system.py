"""A system that was fitted: step cost, the benchmark's workload, the drafter's acceptance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.hardware.fields import Section
from dspark_sim.hardware.profile import EagerTail, Experts, HardwareProfile, Prefill
from dspark_sim.hardware.sections import Source
from dspark_sim.schema import FloatArray

#: Unknowns of the step cost, by what they replace; the rest below is of the workload and the drafter.
HOST = ("host_constant_ms", "per_request_ms", "per_logit_row_ms", "speculating_ms")
CURVE = ("verify_fixed_ms", "verify_scale", "eager_scale", "eager_far")
COST = (*HOST, *CURVE, "experts_ms", "mixed_ms")
LENGTHS = ("prompt_tokens", "output_tokens", "turnaround_ms")
ACCEPTANCE = ("first_odds", "deeper_odds")
KNOWN = (*COST, *LENGTHS, *ACCEPTANCE)
FITTED = "fitted to a measured sweep; the fit section of this file says which rows"


@dataclass(frozen=True, slots=True)
class Workload(Section):
    """The closed loop of a benchmark.

    Attributes:
        requests: sent in all at each load; requests_at_one: at one user.
        max_output_tokens: texts are cut there.
        prompt_tokens: median of a log-normal law of prompt lengths.
        output_tokens: mean of a Weibull law of output lengths, before the cut.
        output_shape: its shape: 2.4 spreads by .44 of the mean, 1 is exponential.
        turnaround_ms: from the end of a request to the next one of that user.
        prefill: how prompts are computed (``--prefill``).
        seed: of lengths, acceptance and order.
    """

    requests: int = 880
    requests_at_one: int = 240
    max_output_tokens: int = 512
    prompt_tokens: float = 110.0
    output_tokens: float = 350.0
    output_shape: float = 2.4
    turnaround_ms: float = 8.0
    prefill: str = "mixed:budget=16384"
    seed: int = 0

    def asked(self, concurrency: int) -> int:
        """Return how many requests the benchmark sends at a load."""
        return self.requests_at_one if concurrency == 1 else self.requests


@dataclass(frozen=True, slots=True)
class Acceptance(Section):
    """Acceptance by position, with the default spreads of :mod:`dspark_sim.workload.synthetic`.

    base_logits: base logits of that module.
    conditional: conditional acceptance of the positions over the rounds of a full-block replay.
    """

    base_logits: tuple[float, ...]
    conditional: tuple[float, ...]

    @property
    def accepted_len(self) -> float:
        """Tokens a round of a full block, bonus included, far from the end of a text."""
        return 1.0 + float(np.cumprod(self.conditional).sum())


@dataclass(frozen=True, slots=True)
class System:
    """Everything that a simulation of a sweep needs."""

    profile: HardwareProfile
    workload: Workload
    acceptance: Acceptance


def odds_conditional(values: Mapping[str, float], gamma: int) -> FloatArray:
    """Return conditional acceptance [gamma]: odds ``first_odds``, from position 2 times ``deeper_odds``."""
    odds = np.full(gamma, values["first_odds"] * values["deeper_odds"])
    odds[0] = values["first_odds"]
    return np.asarray(odds / (1.0 + odds))


def profile_at(
    base: HardwareProfile,
    values: Mapping[str, float],
    *,
    experts: tuple[int, int] | None = None,
    draft_share: float = 1.0,
) -> HardwareProfile:
    """Return ``base`` with the unknowns of the step cost replaced; those without a value stay.

    Args:
        base: profile whose curves are the system's own, or another's to be scaled.
        values: of :data:`COST`; others are not looked at.
        experts: (active, total) of a mixture of experts that ``base`` does not say.
        draft_share: scale of the drafter's cost over that of the verify table.
    """
    host = base.host
    host = replace(
        host,
        constant_ms=values.get("host_constant_ms", host.constant_ms),
        per_request_ms=values.get("per_request_ms", host.per_request_ms),
        per_logit_row_ms=values.get("per_logit_row_ms", host.per_logit_row_ms),
        speculating_ms=values.get("speculating_ms", host.speculating_ms),
    )
    profile = replace(base, host=host)
    if "mixed_ms" in values:
        profile = replace(profile, prefill=replace(base.prefill or Prefill(), mixed_ms=values["mixed_ms"]))
    if "experts_ms" in values:
        profile = replace(profile, experts=_experts(base, values["experts_ms"], experts))
    return _scaled(profile, values, draft_share)


def _experts(base: HardwareProfile, all_ms: float, share: tuple[int, int] | None) -> Experts:
    if base.experts is not None:
        return replace(base.experts, all_ms=all_ms)
    if share is None:
        raise InputError("experts_ms cannot be fitted: nobody says how many experts are active of how many")
    return Experts(all_ms, *share)


def _scaled(profile: HardwareProfile, values: Mapping[str, float], draft_share: float) -> HardwareProfile:
    fixed, scale = values.get("verify_fixed_ms", 0.0), values.get("verify_scale", 1.0)
    verify, eager = profile.verify, profile.eager
    if fixed or scale != 1.0:
        verify = replace(verify, ms=tuple(fixed + scale * ms for ms in verify.ms))
    if eager is not None:
        eager = _scaled_tail(profile, eager, values.get("eager_scale", 1.0), values.get("eager_far", 1.0))
    draft = profile.draft
    if (by := scale * draft_share) != 1.0:
        scaled: dict[str, Any] = {}
        for kind in draft.kinds:
            cost = draft.get(kind)
            assert cost is not None
            scaled[kind] = replace(cost, pass_ms=tuple(by * ms for ms in cost.pass_ms))
        draft = replace(draft, **scaled)
    return replace(profile, verify=verify, eager=eager, draft=draft)


def _scaled_tail(profile: HardwareProfile, eager: EagerTail, by: float, far: float) -> EagerTail:
    """Return the eager tail times ``by``, and past twice the capture limit times ``far`` as well."""
    if eager.tokens is None or eager.ms is None:
        return replace(eager, overhead_ms=by * (eager.overhead_ms or 0.0))
    limit = profile.capture_limit or 0
    scales = [by * far if tokens > 2 * limit else by for tokens in eager.tokens]
    return replace(eager, ms=tuple(scale * ms for scale, ms in zip(scales, eager.ms, strict=True)))


def with_sources(profile: HardwareProfile, names: Mapping[str, float]) -> HardwareProfile:
    """Return ``profile`` with its sources saying what was fitted."""
    fitted = Source("fitted", FITTED)
    sources = dict(profile.sources)
    if profile.experts is not None and "experts_ms" in names:
        sources["experts"] = fitted
    if profile.prefill is not None and "mixed_ms" in names:
        sources["prefill"] = fitted
    sources |= {f"host.{key}": fitted for key in _host_keys(names)}
    for name, path in (("verify_scale", "verify"), ("eager_scale", "eager")):
        if name in names:
            sources[path] = Source("fitted", f"scaled, the scale {FITTED}; before: {sources[path].source}")
    if "verify_scale" in names:
        for kind in profile.draft.kinds:
            before = sources[f"draft.{kind}"].source
            sources[f"draft.{kind}"] = Source("derived", f"scaled with the verify table; before: {before}")
    return replace(profile, sources=sources)


def _host_keys(names: Mapping[str, float]) -> list[str]:
    return [name.removeprefix("host_") for name in HOST if name in names]


def workload_with(workload: Workload, overrides: Mapping[str, str]) -> Workload:
    """Return ``workload`` with ``--set workload.*`` values replaced (keys without the prefix).

    Raises:
        InputError: no such field, or a value that it cannot have.
    """
    fields = asdict(workload)
    for key, text in overrides.items():
        where = f"--set workload.{key}={text}"
        if key not in fields:
            raise InputError(f"{where}: no such field{did_you_mean(key, fields)}; known: {', '.join(fields)}")
        fields[key] = _as(type(fields[key]), text, where)
    return checked(Workload(**fields))


def _as(kind: type, text: str, where: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        what = {"int": "a whole number", "float": "a number"}[kind.__name__]
        raise InputError(f"{where}: must be {what}") from None


def checked(workload: Workload) -> Workload:
    """Return ``workload`` if its values make sense.

    Raises:
        InputError: the first that does not.
    """
    from dspark_sim.engine.prefill import parse_prefill

    least = {
        "requests": 1, "requests_at_one": 1, "max_output_tokens": 2, "prompt_tokens": 1, "output_tokens": 2,
        "output_shape": 0.2, "turnaround_ms": 0, "seed": 0,
    }  # fmt: skip
    for name, low in least.items():
        value = getattr(workload, name)
        if not low <= value < np.inf:
            raise InputError(f"workload.{name} is {value}; it must be at least {low}")
    parse_prefill(workload.prefill)
    return workload
