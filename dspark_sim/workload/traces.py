"""A dense trace in memory: what a drafter would do from every output position of recorded texts.

Dense, because a policy that verifies less moves the next anchor to a place that a log of rounds
never drafted from. Shape legend: Q requests, N anchors of all requests laid end to end, G = gamma.
Anchor ``i`` of request ``q`` is row ``offset_Q1[q] + i``; anchor 0 is the token that prefill yields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.schema import DraftKind, FloatArray, IntArray
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.shelf import Shelf, slices

Float16Array = NDArray[np.float16]
GRID = 2.0**24


def quantise(x: NDArray[np.floating]) -> FloatArray:
    """Round to the grid of 2**-24, on which float64 sums of survivals are exact in any order."""
    rounded: FloatArray = np.rint(np.asarray(x, dtype=np.float64) * GRID) / GRID
    return rounded


@dataclass(frozen=True, eq=False)
class DrafterTrace:
    """One drafter over all anchors of a trace.

    Attributes:
        accepted_N: draft tokens accepted by a full-block verification, 0..gamma, never past the end
            of the text.
        confidence_logit_NG: raw logit of the confidence of each position, of the block that is
            coupled to the text (its first ``accepted`` tokens are the text). None: no head.
        confidence_logit_free_NG: the same for a second block, drawn independently of the text; what
            lagged schedulers see past the verified prefix. None: not recorded.
        accept_rate_NG: analytic acceptance probability 1 - TV(p, q) of each position, where recorded.
        shelf: where the arrays lie that are mapped into memory; None: memory holds them.
    """

    name: str
    kind: DraftKind
    gamma: int
    accepted_N: NDArray[np.uint8]
    confidence_logit_NG: Float16Array | None
    confidence_logit_free_NG: Float16Array | None
    accept_rate_NG: Float16Array | None
    calibration: Calibration
    shelf: Shelf | None = field(default=None, repr=False)
    _cache: dict[tuple[str, bool], FloatArray] = field(default_factory=dict, init=False, repr=False)

    @property
    def has_confidence(self) -> bool:
        """Whether the drafter has a confidence head."""
        return self.confidence_logit_NG is not None

    def logits_NG(self, free: bool = False) -> Float16Array:
        """Return the raw logits [N, G] of the coupled or the free block.

        Raises:
            InputError: the trace holds none.
        """
        logits = self.confidence_logit_free_NG if free else self.confidence_logit_NG
        if logits is None:
            column = "confidence_logit_free" if free else "confidence_logit"
            raise InputError(
                f"drafter '{self.name}' has no column '{self.name}.{column}': "
                f"{'lagged scheduling' if free else 'a policy that reads confidences'} needs it"
            )
        return logits

    def confidence_NG(self, free: bool = False) -> FloatArray:
        """Return calibrated conditional confidences [N, G]: P(position accepted | those before were).

        Raises:
            InputError: the trace holds no logits of that block.
        """
        return self._cached("confidence", free)

    def survival_NG(self, free: bool = False) -> FloatArray:
        """Return calibrated survivals [N, G]: running products of the confidences, on the 2**-24 grid.

        Raises:
            InputError: the trace holds no logits of that block.
        """
        return self._cached("survival", free)

    def _cached(self, what: str, free: bool) -> FloatArray:
        if (what, free) not in self._cache:
            make = self.confidence_of if what == "confidence" else self.survival_of
            block = f"{what}-free" if free else what
            rows = len(self.accepted_N)
            self._cache[what, free] = self.laid_out(
                block, np.float64, (rows, self.gamma), (make(some, free) for some in slices(rows))
            )
        return self._cache[what, free]

    def confidence_of(self, anchors: slice, free: bool = False) -> FloatArray:
        """Return :meth:`confidence_NG` of some anchors alone, not kept. Raises as that does."""
        return self.calibration.apply(self.logits_NG(free)[anchors])

    def survival_of(self, anchors: slice, free: bool = False) -> FloatArray:
        """Return :meth:`survival_NG` of some anchors alone, not kept. Raises as that does."""
        return quantise(np.cumprod(self.confidence_of(anchors, free), axis=1))

    @property
    def home(self) -> Shelf | None:
        """The shelf of the drafter, if that is where all its arrays lie, unchanged."""
        arrays = (self.accepted_N, self.confidence_logit_NG, self.confidence_logit_free_NG)
        return self.shelf if self.shelf is not None and all(map(self.shelf.owns, arrays)) else None

    def laid_out(
        self, name: str, kind: type[np.generic], shape: tuple[int, ...], parts: Iterable[NDArray[Any]]
    ) -> Any:
        """Return an array that is made of the drafter's part by part: mapped as it is, or held."""
        shelf = self.home
        if shelf is not None:
            made_of = hashlib.sha256(f"{self.name} {self.gamma} {self.calibration}".encode()).hexdigest()
            return shelf.array(f"{name}-{made_of[:16]}", kind, shape[1:], parts)
        held, first = np.empty(shape, dtype=kind), 0
        for part in parts:
            held[first : first + len(part)] = part
            first += len(part)
        return held

    def take(self, anchors: IntArray) -> DrafterTrace:
        """Return the drafter over the chosen anchors, in that order."""

        def pick(x: Any) -> Any:
            return None if x is None else x[anchors]

        return replace(
            self,
            accepted_N=self.accepted_N[anchors],
            confidence_logit_NG=pick(self.confidence_logit_NG),
            confidence_logit_free_NG=pick(self.confidence_logit_free_NG),
            accept_rate_NG=pick(self.accept_rate_NG),
            shelf=None,
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """Recorded or synthetic texts with one or more drafters over the same texts.

    Attributes:
        name: label in tables (the file's name without its suffix).
        meta: the metadata document of the file (``trace_meta.TraceMeta`` says what is in it).
        request_id: unique, ``<prompt id>#<sample>``.
        output_tokens_Q: tokens of each text, the one from prefill included.
        arrival_s_Q: arrival times in seconds, or None.
        offset_Q1: first anchor of each request, and N at the end.
    """

    name: str
    meta: dict[str, Any]
    request_id: list[str]
    domain: list[str]
    prompt_tokens_Q: IntArray
    output_tokens_Q: IntArray
    arrival_s_Q: FloatArray | None
    offset_Q1: IntArray
    drafters: Mapping[str, DrafterTrace]

    @property
    def synthetic(self) -> bool:
        """Whether acceptance was drawn from a model of acceptance, not recorded from a pair."""
        return bool(self.meta["synthetic"])

    @property
    def pair_label(self) -> str:
        """Target and how the trace was made, for captions; a synthetic trace says so first."""
        return f"{'SYNTHETIC, ' if self.synthetic else ''}{self.meta['target']}: {self.meta['made']}"

    @property
    def prompt_key(self) -> list[str]:
        """Prompt of each request: samples of one prompt share it, and stay together in a split."""
        return [name.rpartition("#")[0] or name for name in self.request_id]

    @cached_property
    def request_N(self) -> IntArray:
        """Request (row) of each anchor."""
        return np.repeat(np.arange(len(self.output_tokens_Q)), self.output_tokens_Q)

    @cached_property
    def anchor_N(self) -> IntArray:
        """Place of each anchor in its text, 0..n-1."""
        return np.arange(self.offset_Q1[-1]) - self.offset_Q1[:-1][self.request_N]

    @cached_property
    def remaining_N(self) -> IntArray:
        """Tokens of the text after each anchor, n - 1 - i."""
        return self.output_tokens_Q[self.request_N] - 1 - self.anchor_N

    def request_of(self, anchors: IntArray) -> IntArray:
        """Return the request (row) of the given anchors; :attr:`request_N` holds that of all."""
        found: IntArray = np.searchsorted(self.offset_Q1, anchors, side="right") - 1
        return found

    def remaining_of(self, anchors: IntArray) -> IntArray:
        """Return the tokens of the text after the given anchors, n - 1 - i."""
        return self.offset_Q1[self.request_of(anchors) + 1] - 1 - anchors

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of everything but the name: metadata, calibration included, and all columns."""
        digest = hashlib.sha256()
        texts = [self.request_id, self.domain, self.meta]
        digest.update(json.dumps(texts, sort_keys=True).encode())
        for array in self._arrays():
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _arrays(self) -> list[NDArray[Any]]:
        arrays: list[NDArray[Any] | None] = [self.prompt_tokens_Q, self.output_tokens_Q, self.arrival_s_Q]
        for name in sorted(self.drafters):
            d = self.drafters[name]
            arrays += [d.accepted_N, d.confidence_logit_NG, d.confidence_logit_free_NG, d.accept_rate_NG]
        return [np.zeros(0) if array is None else array for array in arrays]

    def drafter(self, name: str | None = None) -> DrafterTrace:
        """Return the drafter ``name``; None means the only one, else ``dspark``, else the first.

        Raises:
            InputError: the trace has no such drafter.
        """
        if name is None:
            return self.drafters.get("dspark") or next(iter(self.drafters.values()))
        if name not in self.drafters:
            raise InputError(
                f"trace '{self.name}' has no drafter '{name}'{did_you_mean(name, self.drafters)}; "
                f"it has: {', '.join(self.drafters)}"
            )
        return self.drafters[name]

    def take(self, rows: ArrayLike) -> Trace:
        """Return the trace of the chosen requests (indices or a mask [Q]), in that order."""
        index = np.arange(len(self.request_id))[np.asarray(rows)]
        length = self.output_tokens_Q[index]
        offset = offsets(length)
        anchors = np.arange(offset[-1]) + np.repeat(self.offset_Q1[index] - offset[:-1], length)
        return replace(
            self,
            request_id=[self.request_id[q] for q in index],
            domain=[self.domain[q] for q in index],
            prompt_tokens_Q=self.prompt_tokens_Q[index],
            output_tokens_Q=length,
            arrival_s_Q=None if self.arrival_s_Q is None else self.arrival_s_Q[index],
            offset_Q1=offset,
            drafters={name: d.take(anchors) for name, d in self.drafters.items()},
        )

    def share_of_prompts(self, index: int, count: int) -> Trace:
        """Return share ``index`` of ``count`` disjoint ones, all samples of a prompt in one share.

        Replications over different prompts are independent draws of the traffic, so an interval over
        them says how well the recorded prompts stand for it. Prompts are dealt in an order of their
        own (by hash of their name), the same for every trace that holds them.

        Raises:
            InputError: fewer prompts than shares.
        """
        prompts = sorted(set(self.prompt_key), key=lambda name: hashlib.sha256(name.encode()).digest())
        if len(prompts) < count:
            have = f"trace '{self.name}' has {len(prompts)}"
            raise InputError(f"{have} prompts; {count} replications want that many prompts")
        mine = set(prompts[index::count])
        return self.take([name in mine for name in self.prompt_key])

    def with_calibration(self, drafter: str, calibration: Calibration) -> Trace:
        """Return the trace with ``calibration`` on one drafter, in its metadata too."""
        meta: dict[str, Any] = json.loads(json.dumps(self.meta))
        meta["drafters"][drafter]["calibration"] = calibration.to_json()
        fresh = replace(self.drafters[drafter], calibration=calibration)
        return replace(self, meta=meta, drafters={**self.drafters, drafter: fresh})


def offsets(output_tokens_Q: IntArray) -> IntArray:
    """Return the first anchor of each request, and the number of anchors at the end [Q+1]."""
    ends: IntArray = np.concatenate([[0], np.cumsum(output_tokens_Q)]).astype(np.int64)
    return ends
