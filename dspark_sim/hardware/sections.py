"""Sections of the profile format, each a mapping of the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Strict, Tag

from dspark_sim.hardware.fields import (
    Amount,
    Beyond,
    Count,
    How,
    Lookup,
    Ms,
    Section,
    Sizes,
    Text,
    same_length,
    table,
)
from dspark_sim.schema import DraftKind

#: Tags in angle brackets never show in messages (reading.py).
CaptureSizes = Annotated[
    Annotated[Literal["vllm", "table"], Tag("<name>")] | Annotated[Sizes, Tag("<list>")],
    Discriminator(lambda value: "<name>" if isinstance(value, str) else "<list>"),
]


@dataclass(frozen=True, slots=True)
class Source(Section):
    """Where a number comes from: how it was got, and in words which file, run or argument."""

    how: How
    source: Text


@dataclass(frozen=True, slots=True)
class Additive(Section):
    """What an additive table adds to its part by tokens: ``bias_ms`` + ``ms[i]`` at ``requests[i]``.

    Read linearly, clamped at both ends (TensorRT-LLM's and SGLang's form, bias + alpha(R) + theta(B)).
    """

    bias_ms: Ms
    requests: Sizes
    ms: tuple[Ms, ...]


def _additive_shape(section: Additive) -> Additive:
    if len(section.requests) != len(section.ms):
        raise ValueError(f"requests has {len(section.requests)} entries but ms has {len(section.ms)}")
    return section


@dataclass(frozen=True, slots=True)
class VerifyTable(Section):
    """Target forward pass by batch tokens: ``ms[i]`` at ``tokens[i]``, in captured graphs.

    context_tokens: KV context per request at which attention is already in the table; absent if the
        table is without attention, which then stands in its own section.
    monotone: apply a running maximum (what vLLM's planner does) before anything reads the table.
    additive: a part by running requests that comes on top.
    """

    lookup: Lookup
    tokens: Sizes
    ms: tuple[Ms, ...]
    beyond: Beyond
    context_tokens: Count | None = None
    monotone: Annotated[bool, Strict()] = False
    additive: Annotated[Additive, AfterValidator(_additive_shape)] | None = None


@dataclass(frozen=True, slots=True)
class Capture(Section):
    """Captured CUDA-graph sizes: a list, ``vllm`` (vLLM's default list) or ``table`` (verify.tokens).

    Sizes above ``limit`` are not captured; past the largest captured size a step runs eagerly.
    ``limit`` 0 captures nothing (enforce-eager). Each captured size takes ``memory_mib_per_size`` of
    the memory that the KV cache would have (on all GPUs together).
    """

    limit: Annotated[int, Strict(), Field(ge=0)]
    sizes: CaptureSizes
    memory_mib_per_size: Amount = 0.0


@dataclass(frozen=True, slots=True)
class EagerTail(Section):
    """A step past the capture limit: its own measured table, or the verify table plus launch overhead.

    lookup: between measured sizes, a line (``linear``), or what the next of them costs (``ceil``, stairs:
        eager kernels are tuned for few sizes and run what is tuned).
    below: what holds between the limit and the first measured size: its value (``hold``, a cliff), or
        a line from the last captured size (``ramp``, what vLLM's planner believes).
    overhead_ms: instead of a table: added to the verify table, read linearly at the unpadded tokens.
    """

    tokens: Sizes | None = None
    ms: tuple[Ms, ...] | None = None
    beyond: Beyond | None = None
    lookup: Literal["linear", "ceil"] = "linear"
    below: Literal["hold", "ramp"] = "hold"
    overhead_ms: Ms | None = None


@dataclass(frozen=True, slots=True)
class Attention(Section):
    """Attention of all layers: ms[i][j] at requests[i] running requests of mean KV context_tokens[j].

    Read bilinearly; below the first size of an axis its value holds, past the last ``beyond``.
    """

    requests: Sizes
    context_tokens: Sizes
    ms: tuple[tuple[Ms, ...], ...]
    beyond: Beyond


@dataclass(frozen=True, slots=True)
class ParallelDraft(Section):
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
class SerialDraft(Section):
    """One autoregressive draft pass (one token a request) by requests; k tokens cost k passes."""

    lookup: Lookup
    requests: Sizes
    pass_ms: tuple[Ms, ...]
    beyond: Beyond


_Parallel = Annotated[ParallelDraft, table("requests", "pass_ms")]
_Serial = Annotated[SerialDraft, table("requests", "pass_ms")]


@dataclass(frozen=True, slots=True)
class Drafters(Section):
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
class Host(Section):
    """CPU time of a step outside the graphs.

    constant_ms: sampling and scheduling that no overlap hides; every step pays it.
    bubble_ms: pipeline bubble that a synchronous scheduler (lag 0) pays on top.
    per_request_ms: grows with the running requests.
    per_logit_row_ms: grows with the rows that are sampled from or verified (prefill tokens are not).
    speculating_ms: on top in steps that draft (rejection sampling, drafting's own bookkeeping).
    """

    constant_ms: Ms
    bubble_ms: Ms
    per_request_ms: Ms = 0.0
    per_logit_row_ms: Ms = 0.0
    speculating_ms: Ms = 0.0


@dataclass(frozen=True, slots=True)
class Experts(Section):
    """What real tokens cost on top of a mixture-of-experts profile that was timed on dummy ones.

    Dummy tokens touch few experts, B real ones all of them in the end:
    all_ms * (1 - (1 - active / total) ** B). Not charged where the eager tail has its own table, whose
    steps are bound by launches.
    """

    all_ms: Ms
    active: Count
    total: Count


@dataclass(frozen=True, slots=True)
class Prefill(Section):
    """Cost of prompt tokens; where the table is left out, the verify table is read at their number.

    tokens, ms, beyond: a step of prompt tokens only, by their number, read linearly, host time apart.
    ms_per_million_pairs: attention of prompt tokens: per million pairs of a prompt token and one
        before it.
    mixed_ms: on top of a step that carries prompt tokens beside verify tokens.
    """

    tokens: Sizes | None = None
    ms: tuple[Ms, ...] | None = None
    beyond: Beyond | None = None
    ms_per_million_pairs: Ms = 0.0
    mixed_ms: Ms = 0.0


@dataclass(frozen=True, slots=True)
class KvMemory(Section):
    """Paged KV cache of one replica, all its GPUs together.

    block_tokens: tokens of one request in a block.
    num_blocks: blocks, as the engine's start-up log counts them; or instead
    memory_gib: memory for the KV cache and the captured graphs, with
    bytes_per_token: KV of one token, all layers of the target.
    draft_bytes_per_token: KV of one token in the drafter's layers; held only where something drafts.
    watermark: share of the blocks that admission leaves free.
    """

    block_tokens: Count
    num_blocks: Count | None = None
    memory_gib: Amount | None = None
    bytes_per_token: Count | None = None
    draft_bytes_per_token: Annotated[int, Strict(), Field(ge=0)] = 0
    watermark: Annotated[float, Strict(), Field(ge=0, lt=1)] = 0.0


def attention_shape(section: Attention) -> Attention:
    """Refuse a grid whose rows or columns are not those of its axes."""
    rows, columns = len(section.requests), len(section.context_tokens)
    if len(section.ms) != rows or any(len(row) != columns for row in section.ms):
        raise ValueError(
            f"ms must be {rows} rows (one per requests entry) of {columns} values (one per context_tokens "
            f"entry); it has {len(section.ms)} rows of {sorted({len(row) for row in section.ms})} values"
        )
    if section.beyond != "hold" and min(rows, columns) == 1:
        raise ValueError(f"beyond '{section.beyond}' needs two points on each axis; use beyond: hold")
    return section


def one_eager_form(section: EagerTail) -> EagerTail:
    """Refuse anything but a whole table or an overhead."""
    table = (section.tokens, section.ms, section.beyond)
    if section.overhead_ms is not None and any(part is not None for part in table):
        raise ValueError("give either overhead_ms or a table (tokens, ms, beyond), not both")
    if section.overhead_ms is None and any(part is None for part in table):
        raise ValueError("give overhead_ms, or a whole table: tokens, ms and beyond")
    if section.tokens is not None:
        same_length(section, "tokens", "ms")
    return section


def few_of_all(section: Experts) -> Experts:
    """Refuse more active experts than there are."""
    if section.active > section.total:
        raise ValueError(f"{section.active} active of {section.total} experts; active must be at most total")
    return section


def one_kv_form(section: KvMemory) -> KvMemory:
    """Refuse anything but a number of blocks or memory with bytes per token."""
    if (section.num_blocks is None) == (section.memory_gib is None):
        raise ValueError("give either num_blocks, or memory_gib and bytes_per_token")
    if section.memory_gib is not None and section.bytes_per_token is None:
        raise ValueError("memory_gib needs bytes_per_token: KV of one token, all layers of the target")
    if section.num_blocks is not None and section.draft_bytes_per_token and not section.bytes_per_token:
        raise ValueError("draft_bytes_per_token needs bytes_per_token to be compared with")
    return section
