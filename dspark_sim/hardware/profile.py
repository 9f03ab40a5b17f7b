"""A hardware profile: what one engine step costs on one machine with one model, as measured tables.

The file is YAML (``format: dspark-sim/profile/1``; every key in docs/hardware.md). Keys carry their
unit, so numbers stay here as the file has them (ms, tokens, requests); :mod:`dspark_sim.hardware.cost`
converts to seconds once. Nothing is smoothed and no table need be monotone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Strict, Tag

from dspark_sim.schema import DraftKind

FORMAT = "dspark-sim/profile/1"

#: How a table is read between its sizes. ceil_to_capture: round up to a captured CUDA-graph size, then
#: read there (vLLM); floor: the largest measured size not above (SGLang's table); linear: interpolate
#: (TensorRT-LLM, ATOM, SGLang's additive table).
Lookup = Literal["ceil_to_capture", "floor", "linear"]
#: How a table goes on past its last size. last_octave: a line with the mean slope between the last
#: size and the largest size not above half of it; last_two: the slope of the last two points (vLLM's
#: planner); hold: the last value (SGLang's table).
Beyond = Literal["last_octave", "last_two", "hold"]
#: Where a number comes from.
How = Literal["measured", "composed", "derived", "fitted", "assumed"]


def _ascending(sizes: tuple[int, ...]) -> tuple[int, ...]:
    for before, after in pairwise(sizes):
        if after <= before:
            raise ValueError(f"sizes must rise strictly, but {after} follows {before}; sort them, each once")
    return sizes


def _same_length(section: Any, sizes: str, values: str) -> Any:
    """Refuse a table whose two columns differ in length, or one point that is to be extended by a slope."""
    wanted, given = len(getattr(section, sizes)), len(getattr(section, values))
    if wanted != given:
        raise ValueError(
            f"{sizes} has {wanted} entries but {values} has {given}; give one {values} entry for each"
        )
    if wanted == 1 and section.beyond != "hold":
        raise ValueError(f"beyond '{section.beyond}' needs two points, the table has one; use beyond: hold")
    return section


Ms = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Strict(), Field(ge=1)]
Sizes = Annotated[tuple[Count, ...], Field(min_length=1), AfterValidator(_ascending)]
Text = Annotated[str, Strict(), Field(min_length=1)]
#: Tags in angle brackets never show in messages (reading.py).
CaptureSizes = Annotated[
    Annotated[Literal["vllm", "table"], Tag("<name>")] | Annotated[Sizes, Tag("<list>")],
    Discriminator(lambda value: "<name>" if isinstance(value, str) else "<list>"),
]


class _Section:
    """A mapping of the file: unknown keys are errors."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Source(_Section):
    """Where a number comes from: how it was got, and in words which file, run or argument."""

    how: How
    source: Text


@dataclass(frozen=True, slots=True)
class VerifyTable(_Section):
    """Target forward pass by batch tokens: ``ms[i]`` at ``tokens[i]``, in captured graphs.

    context_tokens: KV context per request at which attention is already in the table; absent if the
        table is without attention, which then stands in its own section.
    monotone: apply a running maximum (what vLLM's planner does) before anything reads the table.
    """

    lookup: Lookup
    tokens: Sizes
    ms: tuple[Ms, ...]
    beyond: Beyond
    context_tokens: Count | None = None
    monotone: Annotated[bool, Strict()] = False


@dataclass(frozen=True, slots=True)
class Capture(_Section):
    """Captured CUDA-graph sizes: a list, ``vllm`` (vLLM's default list) or ``table`` (verify.tokens).

    Sizes above ``limit`` are not captured; past the largest captured size a step runs eagerly.
    ``limit`` 0 captures nothing (enforce-eager).
    """

    limit: Annotated[int, Strict(), Field(ge=0)]
    sizes: CaptureSizes


@dataclass(frozen=True, slots=True)
class EagerTail(_Section):
    """A step past the capture limit: its own measured table, or the verify table plus launch overhead.

    below: what holds between the limit and the first measured size: its value (``hold``, a cliff), or
        a line from the last captured size (``ramp``, what vLLM's planner believes).
    overhead_ms: instead of a table: added to the verify table, read linearly at the unpadded tokens.
    """

    tokens: Sizes | None = None
    ms: tuple[Ms, ...] | None = None
    beyond: Beyond | None = None
    below: Literal["hold", "ramp"] = "hold"
    overhead_ms: Ms | None = None


@dataclass(frozen=True, slots=True)
class Attention(_Section):
    """Attention of all layers: ms[i][j] at requests[i] running requests of mean KV context_tokens[j].

    Read bilinearly; below the first size of an axis its value holds, past the last ``beyond``.
    """

    requests: Sizes
    context_tokens: Sizes
    ms: tuple[tuple[Ms, ...], ...]
    beyond: Beyond


@dataclass(frozen=True, slots=True)
class ParallelDraft(_Section):
    """One parallel pass that drafts ``gamma`` tokens a request, by requests, plus a serial loop per position.

    A block of k tokens costs the pass at requests * k / gamma, and
    k * (serial_ms + serial_ms_per_request * requests).
    """

    gamma: Count
    lookup: Lookup
    requests: Sizes
    pass_ms: tuple[Ms, ...]
    beyond: Beyond
    serial_ms: Ms = 0.0
    serial_ms_per_request: Ms = 0.0


@dataclass(frozen=True, slots=True)
class SerialDraft(_Section):
    """One autoregressive draft pass (one token a request) by requests; k tokens cost k passes."""

    lookup: Lookup
    requests: Sizes
    pass_ms: tuple[Ms, ...]
    beyond: Beyond


def _table(sizes: str, values: str) -> AfterValidator:
    return AfterValidator(lambda section: _same_length(section, sizes, values))


_Parallel = Annotated[ParallelDraft, _table("requests", "pass_ms")]
_Serial = Annotated[SerialDraft, _table("requests", "pass_ms")]


@dataclass(frozen=True, slots=True)
class Drafters(_Section):
    """Draft cost by drafter kind; a kind that is absent cannot be simulated on this profile."""

    dspark: _Parallel | None = None
    dflash: _Parallel | None = None
    mtp: _Serial | None = None
    eagle: _Serial | None = None

    def get(self, kind: DraftKind) -> ParallelDraft | SerialDraft | None:
        """Return the cost of ``kind``, None if the profile has none."""
        return getattr(self, kind, None)

    @property
    def kinds(self) -> tuple[DraftKind, ...]:
        """Drafter kinds that the profile can charge."""
        known: tuple[DraftKind, ...] = ("dspark", "dflash", "mtp", "eagle")
        return tuple(kind for kind in known if self.get(kind) is not None)


@dataclass(frozen=True, slots=True)
class Host(_Section):
    """CPU time of a step outside the graphs.

    constant_ms: sampling and scheduling that no overlap hides; every step pays it.
    bubble_ms: pipeline bubble that a synchronous scheduler (lag 0) pays on top.
    per_request_ms: grows with the running requests.
    """

    constant_ms: Ms
    bubble_ms: Ms
    per_request_ms: Ms = 0.0


def _attention_shape(section: Attention) -> Attention:
    rows, columns = len(section.requests), len(section.context_tokens)
    if len(section.ms) != rows or any(len(row) != columns for row in section.ms):
        raise ValueError(
            f"ms must be {rows} rows (one per requests entry) of {columns} values (one per context_tokens "
            f"entry); it has {len(section.ms)} rows of {sorted({len(row) for row in section.ms})} values"
        )
    if section.beyond != "hold" and min(rows, columns) == 1:
        raise ValueError(f"beyond '{section.beyond}' needs two points on each axis; use beyond: hold")
    return section


def _one_eager_form(section: EagerTail) -> EagerTail:
    table = (section.tokens, section.ms, section.beyond)
    if section.overhead_ms is not None and any(part is not None for part in table):
        raise ValueError("give either overhead_ms or a table (tokens, ms, beyond), not both")
    if section.overhead_ms is None and any(part is None for part in table):
        raise ValueError("give overhead_ms, or a whole table: tokens, ms and beyond")
    if section.tokens is not None:
        _same_length(section, "tokens", "ms")
    return section


@dataclass(frozen=True, slots=True)
class HardwareProfile(_Section):
    """One machine with one model. Times in ms, sizes in tokens or requests, as in the file.

    max_num_seqs: most running requests the engine admits; None is unlimited.
    sources: how every number was got, by dotted path of the section or key.
    """

    format: Literal["dspark-sim/profile/1"]
    name: Text
    description: Text
    device: Text
    model: Text
    num_gpus: Count
    sources: dict[str, Source]
    verify: Annotated[VerifyTable, _table("tokens", "ms")]
    host: Host
    max_num_seqs: Count | None = None
    capture: Capture | None = None
    eager: Annotated[EagerTail, AfterValidator(_one_eager_form)] | None = None
    attention: Annotated[Attention, AfterValidator(_attention_shape)] | None = None
    draft: Drafters = field(default_factory=Drafters)

    @property
    def capture_limit(self) -> int | None:
        """Largest size that may be captured [tokens]; None if the profile knows no graphs."""
        return None if self.capture is None else self.capture.limit


def load_profile(name: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> HardwareProfile:
    """Read a profile by path or shipped bare name (``h800.yaml``), with ``--set`` overrides applied.

    Args:
        name: a path, or the bare name of a shipped profile; ``.yaml`` may be left off.
        overrides: dotted path -> YAML text, e.g. ``{"capture.limit": "4096"}``; a list may be written
            with bare commas.

    Raises:
        InputError: no such file.
        ProfileError: the content, or an override, breaks the format; ``problems`` holds every fault.
    """
    from dspark_sim.files import find
    from dspark_sim.hardware.reading import parse_profile, read_yaml

    path = Path(find(name, "hw_profiles", ".yaml"))
    return parse_profile(read_yaml(path), str(name), overrides or {})
