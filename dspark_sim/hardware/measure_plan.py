"""What a measurement is: the sizes that are timed, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

from dspark_sim.hardware.tables import vllm_capture_sizes
from dspark_sim.schema import DraftKind

#: verify: the target's pass; own: the attention of its own tokens alone; attention: by KV length;
#: draft: a block; sample: what follows the pass; prefill: one prompt; check: a whole step.
Part = Literal["verify", "own", "prefill", "attention", "draft", "sample", "check"]


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One size that is timed: ``requests`` requests of ``tokens`` tokens, each after ``context`` others.

    ``drafter`` is the kind of a further drafter whose block is timed; "": the plan's own.
    """

    part: Part
    requests: int
    tokens: int
    context: int
    drafter: str = ""

    @property
    def batch_tokens(self) -> int:
        """Tokens that the target runs."""
        return self.requests * self.tokens


@dataclass(frozen=True, slots=True)
class Further:
    """A drafter beside the plan's own: only its blocks are timed."""

    drafter: str
    kind: DraftKind
    gamma: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a measurement is; two of the same plan can be joined.

    Attributes:
        target, drafter: by name; drafter "" times the target alone.
        kind: of the drafter.
        gamma: draft tokens of a block.
        device, dtype, clock: what ran, and which clock timed it.
        threads: of a pass on a CPU.
        verify_tokens: batch tokens of the target's pass.
        draft_requests: requests of a draft pass.
        contexts: KV lengths of attention; the middle one is that of drafting and of the checks.
        capture_limit: sizes up to here run as CUDA graphs; 0: none do.
        seed: of tokens and of the order of each round.
        versions: of the libraries.
        further: drafters of other kinds, whose blocks are timed too.
    """

    target: str
    drafter: str
    kind: DraftKind
    gamma: int
    device: str
    dtype: str
    clock: str
    threads: int
    verify_tokens: tuple[int, ...]
    draft_requests: tuple[int, ...]
    contexts: tuple[int, ...]
    capture_limit: int
    seed: int
    versions: Mapping[str, str]
    further: tuple[Further, ...] = ()

    @property
    def context(self) -> int:
        """KV length of drafting and of the checks [tokens]."""
        return self.contexts[len(self.contexts) // 2]

    @property
    def queries(self) -> int:
        """Tokens a request at which attention is timed: what a scheduler keeps of a block, not all of it."""
        return 1 + self.gamma // 4

    def points(self) -> list[Point]:
        """Return everything to time, in a fixed order."""
        requests, half = self.draft_requests, 1 + self.gamma // 2
        shapes = [verify_shape(tokens, half) for tokens in self.verify_tokens]
        found = [Point(part, *shape, 0) for part in ("verify", "own") for shape in shapes]
        found += [Point("prefill", 1, tokens, 0) for tokens in (32, 96, 288)]
        found += [Point("attention", r, self.queries, c) for r, c in product(requests, self.contexts)]
        if self.drafter:
            found += [Point("draft", r, 1, self.context) for r in requests]
            found += [Point("draft", r, 1, self.context, f.kind) for f, r in product(self.further, requests)]
            found += [Point("sample", r, t, self.context) for r, t in product(requests[::2], (1, half))]
        found += [Point("check", r, t, self.context) for r, t in product(requests[::2], (1, half))]
        return found

    def captures(self, point: Point) -> bool:
        """Whether a point runs as a CUDA graph: passes and attention, up to the capture limit."""
        return point.part in ("verify", "own", "attention") and point.batch_tokens <= self.capture_limit

    def document(self) -> dict[str, Any]:
        """Return the plan JSON-ready; equal documents, equal plans."""
        plain = asdict(self)
        if not self.further:  # as plans were written before there were any
            del plain["further"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Plan:
        """Return the plan that ``document`` was made of."""
        found: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in document.items()
        }
        found["further"] = tuple(Further(**each) for each in found.get("further", ()))
        return cls(**found)


def verify_shape(batch_tokens: int, most: int) -> tuple[int, int]:
    """Return (requests, tokens a request) of a pass: as few requests as ``most`` tokens each allow."""
    each = max(d for d in range(1, most + 1) if batch_tokens % d == 0)
    return batch_tokens // each, each


def capture_sizes_of(tokens: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return the sizes to time on a device with graphs: vLLM's up to ``limit``, then those of ``tokens``."""
    captured = vllm_capture_sizes(limit)
    return (*captured, *(size for size in tokens if size > limit))
