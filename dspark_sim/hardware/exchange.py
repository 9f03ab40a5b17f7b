"""Cost tables of engines, read and written: SGLang's floor and additive tables, TensorRT-LLM's additive one.

An engine's table is the cost of a whole step, drafting and host included; an imported profile therefore
has those at zero. The additive form T(R, B) = bias + alpha(R) + theta(B) is read linearly and clamped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from dspark_sim.errors import DataError, did_you_mean
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.fields import FORMAT
from dspark_sim.hardware.forward import additive_ms, forward_ms
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.schema import DraftKind

TableFormat = Literal["sglang", "sglang-additive", "trtllm"]
FORMATS: tuple[TableFormat, ...] = ("sglang", "sglang-additive", "trtllm")
#: TensorRT-LLM's default: trim only if the prediction gains more than this over the full length.
_TRTLLM_MINIMUM_GAIN = 0.04
_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True)
class _Additive:
    """Keys of an additive table and the ms in its unit of time."""

    bias: str
    requests: str
    alpha: str
    tokens: str
    theta: str
    unit_ms: float

    @property
    def keys(self) -> tuple[str, ...]:
        return self.bias, self.requests, self.alpha, self.tokens, self.theta


_FLOOR_KEYS = ("sample_batch_tokens", "sample_steps_per_sec")
_SGLANG = _Additive(
    "bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds", unit_ms=_MS_PER_S
)
_TRTLLM = _Additive(
    "fixed_overhead_ms", "batch_sizes", "batch_overhead_ms", "token_counts", "step_time_ms", unit_ms=1.0
)
_ADDITIVE: dict[TableFormat, _Additive] = {"sglang-additive": _SGLANG, "trtllm": _TRTLLM}
#: SGLang's table as pull requests quote it, in milliseconds.
_QUOTED = _Additive("bias_ms", "bs_probes", "alpha_ms", "m_probes", "theta_ms", unit_ms=1.0)


@dataclass(frozen=True, slots=True)
class Described:
    """What an engine's table does not say about itself, and a profile must.

    context_tokens: KV context per request at which the table was taken; None: not known.
    """

    name: str
    device: str
    model: str
    num_gpus: int
    source: str
    context_tokens: int | None = None


def choose_table(document: Any, wanted: str | None, label: str) -> dict[str, Any]:
    """Return the table in ``document``: itself, or one of several that it holds by name.

    Raises:
        DataError: no table, no such table, or several and none wanted.
    """
    if not isinstance(document, dict):
        raise DataError(label, "", "must be a JSON object with an engine's cost table")
    if wanted is None and _verify_section_of(document):
        return document
    named = [key for key, value in document.items() if isinstance(value, dict) and _verify_section_of(value)]
    if wanted is None and len(named) == 1:
        return cast(dict[str, Any], document[named[0]])
    if wanted in named:
        return cast(dict[str, Any], document[wanted])
    if not named:
        forms = "; ".join(", ".join(keys) for keys in (_FLOOR_KEYS, *(a.keys for a in _ADDITIVE.values())))
        raise DataError(label, "", f"no cost table in it; a table has the keys {forms}")
    rule = "name one of its tables" if wanted is None else f"no table '{wanted}'{did_you_mean(wanted, named)}"
    raise DataError(label, "", f"{rule} (--table): {', '.join(named)}")


def import_document(table: Mapping[str, Any], described: Described, label: str) -> dict[str, Any]:
    """Return an engine's table as a profile, as nested mappings.

    Raises:
        DataError: a column is no list of numbers, or a rate is not above 0.
    """
    read = _verify_section_of(table)
    assert read is not None
    context = described.context_tokens
    taken = {"how": "measured", "source": described.source}
    inside = {"how": "measured", "source": "contained in the table: it times whole steps"}
    stated = f"context {context} tokens" if context else "context not stated by the table"
    nothing = {"lookup": "linear", "requests": [1], "pass_ms": [0.0], "beyond": "hold"}
    kinds = ("dspark", "dflash", "mtp", "eagle")
    paths = ["host.constant_ms", "host.bubble_ms", *(f"draft.{kind}" for kind in kinds)]
    return {
        "format": FORMAT,
        "name": described.name,
        "description": f"an engine's own cost table of whole steps, {stated}",
        "device": described.device,
        "model": described.model,
        "num_gpus": described.num_gpus,
        "sources": {"verify": taken} | dict.fromkeys(paths, inside),
        "verify": read(table, label) | {"context_tokens": context or 1},
        "draft": {kind: ({"gamma": 1} if kind.startswith("d") else {}) | nothing for kind in kinds},
        "host": {"constant_ms": 0.0, "bubble_ms": 0.0},
    }


def _verify_section_of(table: Mapping[str, Any]) -> Callable[[Mapping[str, Any], str], dict[str, Any]] | None:
    """Return what reads ``table`` into a ``verify`` section, None if it has the keys of no format."""
    if all(key in table for key in _FLOOR_KEYS):
        return _floor_section
    for form in (_SGLANG, _TRTLLM, _QUOTED):
        if all(key in table for key in form.keys):
            return lambda table, label: _additive_section(form, table, label)
    return None


def _floor_section(table: Mapping[str, Any], label: str) -> dict[str, Any]:
    tokens, rates = (_numbers(table, key, label) for key in _FLOOR_KEYS)
    for i, rate in enumerate(rates):
        if rate <= 0:
            raise DataError(label, f"sample_steps_per_sec[{i}]", f"must be above 0, got {rate:g}")
    ms = [_MS_PER_S / rate for rate in rates]
    return {"lookup": "floor", "tokens": _whole(tokens), "ms": ms, "beyond": "hold"}


def _additive_section(form: _Additive, table: Mapping[str, Any], label: str) -> dict[str, Any]:
    def ms(key: str) -> list[float]:
        return [value * form.unit_ms for value in _numbers(table, key, label)]

    return {
        "lookup": "linear",
        "tokens": _whole(_numbers(table, form.tokens, label)),
        "ms": ms(form.theta),
        "beyond": "hold",
        "additive": {
            "bias_ms": _number(table[form.bias], form.bias, label) * form.unit_ms,
            "requests": _whole(_numbers(table, form.requests, label)),
            "ms": ms(form.alpha),
        },
    }


def _numbers(table: Mapping[str, Any], key: str, label: str) -> list[float]:
    values = table[key]
    if not isinstance(values, list):
        raise DataError(label, key, f"must be a list of numbers, got {type(values).__name__}")
    return [_number(value, f"{key}[{i}]", label) for i, value in enumerate(values)]


def _number(value: Any, where: str, label: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise DataError(label, where, f"must be a finite number, got {value!r}")
    return float(value)


def _whole(values: Sequence[float]) -> list[float]:
    return [int(value) if value.is_integer() else value for value in values]


def export_table(
    profile: HardwareProfile, form: TableFormat, *, kind: DraftKind, gamma: int, context_tokens: int
) -> dict[str, Any]:
    """Return a profile as an engine's table of whole steps (asynchronous: without the bubble).

    Args:
        profile: what to write.
        form: of the table.
        kind: drafter whose cost is in it; ``none`` leaves drafting out.
        gamma: draft tokens of a full block.
        context_tokens: KV context per request, for a profile with attention of its own.

    Raises:
        InputError: the profile has no cost of such a drafter.
    """
    tokens, requests = _probes(profile), _request_probes(profile)
    most = max(*requests, 1, -(-tokens[-1] // (1 + gamma)))
    whole = _WholeStep(StepCost(profile, most, tokens[-1]), kind, gamma, context_tokens)
    if form == "sglang":
        return _floor_table(whole, tokens)
    return _additive_table(whole, _ADDITIVE[form], tokens, requests)


@dataclass(frozen=True, slots=True)
class _WholeStep:
    """What an engine times: a step that drafts and verifies, at one KV context."""

    cost: StepCost
    kind: DraftKind
    gamma: int
    context_tokens: int

    def steps_per_s(self, batch_tokens: int) -> float:
        """Return the rate at full blocks of as many requests as ``batch_tokens`` hold."""
        requests = max(1, batch_tokens // (1 + self.gamma))
        kv_tokens, draft_s = requests * self.context_tokens, self._draft_s(requests)
        return 1.0 / self.cost.step_s(batch_tokens, requests, kv_tokens, draft_s, False)

    def alpha_ms(self, requests: int) -> float:
        """Return what goes by requests, an additive table's bias left out."""
        host, part = self.cost.profile.host, self.cost.profile.verify.additive
        seconds = self._draft_s(requests) + self.cost.attention_s(requests, requests * self.context_tokens)
        added_ms = float(additive_ms(self.cost.profile, requests)[requests]) - (part.bias_ms if part else 0.0)
        return seconds * _MS_PER_S + added_ms + host.per_request_ms * requests

    def bias_ms(self) -> float:
        """Return what every step pays."""
        host, part = self.cost.profile.host, self.cost.profile.verify.additive
        speculating_ms = host.speculating_ms if self.kind != "none" else 0.0
        return (part.bias_ms if part else 0.0) + host.constant_ms + speculating_ms

    def theta_ms(self, tokens: Sequence[int]) -> list[float]:
        """Return what goes by tokens."""
        profile, tokens_X = self.cost.profile, np.array(tokens, dtype=np.float64)
        forward_X = forward_ms(profile, tokens_X, self.cost.captured)
        return cast(list[float], (forward_X + profile.host.per_logit_row_ms * tokens_X).tolist())

    def _draft_s(self, requests: int) -> float:
        return self.cost.draft_s(self.kind, requests, self.gamma)


def _floor_table(whole: _WholeStep, tokens: list[int]) -> dict[str, Any]:
    return {
        "sample_batch_tokens": tokens,
        "sample_steps_per_sec": [_short(whole.steps_per_s(b)) for b in tokens],
        "max_batch_tokens": tokens[-1],
    }


def _additive_table(
    whole: _WholeStep, form: _Additive, tokens: list[int], requests: list[int]
) -> dict[str, Any]:
    table: dict[str, Any] = {
        form.bias: _short(whole.bias_ms() / form.unit_ms),
        form.requests: requests,
        form.alpha: [_short(whole.alpha_ms(r) / form.unit_ms) for r in requests],
        form.tokens: tokens,
        form.theta: [_short(ms / form.unit_ms) for ms in whole.theta_ms(tokens)],
    }
    return table | ({"minimum_predicted_gain": _TRTLLM_MINIMUM_GAIN} if form is _TRTLLM else {})


def _short(value: float) -> float:
    """Round away what converting units leaves behind."""
    return float(f"{value:.12g}")


def _probes(profile: HardwareProfile) -> list[int]:
    """Return the sizes that an engine would time: captured ones and eager ones, else the table's own."""
    captured = StepCost(profile, 1, 1).captured
    eager = profile.eager.tokens if profile.eager else None
    return (
        [*captured, *(t for t in eager or () if t > captured[-1])] if captured else [*profile.verify.tokens]
    )


def _request_probes(profile: HardwareProfile) -> list[int]:
    """Return the requests at which any part of the profile was measured."""
    sizes = {r for kind in profile.draft.kinds if (d := profile.draft.get(kind)) for r in d.requests if r > 1}
    sizes |= set(profile.attention.requests if profile.attention else ())
    sizes |= set(profile.verify.additive.requests if profile.verify.additive else ())
    return sorted(r for r in sizes or {1} if r <= (profile.max_num_seqs or r))
