"""Which text each request replays: traces mixed by weight, laid out as flat arrays for an engine.

A request of n output tokens needs n - 1 decode tokens: anchors 0..n-2, and the last token. It replays
one or several *stretches* of recorded text, drawn from named streams:

- shorter than the recorded text: the text is cut; a round commits up to the last token at most;
- longer: it goes on with another text of the same trace (and domain), from that one's start: the last
  token of a stretch *is* anchor 0 of the next. So a text of n tokens gives n - 1 decode tokens, no
  anchor is replayed that the recorder did not draft from, and no round crosses a seam.

An engine walks row = ``first_S`` .. ``last_S`` of each stretch in turn. Shape legend: Q requests,
S stretches of all requests laid end to end, T texts of the mix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.join import join_traces
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.workloads import Workload

#: A request that needs more stretches than this has texts too short for its length.
MAX_STRETCHES = 10_000


@dataclass(frozen=True, eq=False)
class Mix:
    """Traces and weights.

    Attributes:
        trace: all traces laid end to end as one (:func:`~dspark_sim.workload.join.join_traces`).
        labels: name of each trace.
        weights: chance of each trace, summing to 1.
        text_T1: first text of each trace, and the number of texts at the end.
    """

    trace: Trace
    labels: tuple[str, ...]
    weights: tuple[float, ...]
    text_T1: IntArray


@dataclass(frozen=True, eq=False)
class Demand:
    """Requests in order, ready for an engine.

    Attributes:
        prompt_tokens_Q, output_tokens_Q: lengths [tokens]; output counts prefill's token.
        cached_prefix_tokens_Q: leading prompt tokens in a prefix cache; None: not known.
        source_Q: trace of the mix.
        text_Q: text of the mix that the first stretch replays.
        stretch_Q1: first stretch of each request, and S at the end.
        first_S, last_S: rows (anchors) of ``Mix.trace``; a request that stands on the ``last`` row of
            its last stretch is finished, on that of an earlier one it moves to the next ``first``.
        unknown_domains: domains of the workload that no trace has: their requests replay any text.
    """

    prompt_tokens_Q: IntArray
    output_tokens_Q: IntArray
    cached_prefix_tokens_Q: IntArray | None
    source_Q: IntArray
    text_Q: IntArray
    stretch_Q1: IntArray
    first_S: IntArray
    last_S: IntArray
    unknown_domains: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of requests, Q."""
        return len(self.output_tokens_Q)


def parse_mix(words: Sequence[str]) -> list[tuple[str, float]]:
    """Return (trace, weight) of ``--mix FILE=weight`` words; weights are scaled to sum to 1.

    Raises:
        InputError: a word without a weight, a weight that is no finite number above 0, a file twice.
    """
    found: dict[str, float] = {}
    for word in words:
        path, equals, text = word.rpartition("=")
        weight = _number(text)
        if not equals or not path.strip() or weight is None:
            raise InputError(f"--mix {word!r}: expected FILE=weight, as in --mix chat.parquet=0.6")
        if not (math.isfinite(weight) and weight > 0):
            raise InputError(f"--mix {word!r}: the weight must be a finite number above 0")
        if path.strip() in found:
            raise InputError(f"--mix {path.strip()}: given twice; say it once")
        found[path.strip()] = weight
    total = math.fsum(found.values())
    return [(path, weight / total) for path, weight in found.items()]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_mix(words: Sequence[str]) -> Mix:
    """Read the traces of ``--mix FILE=weight`` words.

    Raises:
        InputError: a malformed word, a missing file, or traces that do not go together.
        DataError: a file that breaks a rule of the trace format.
    """
    pairs = parse_mix(words)
    return make_mix([read_trace(Path(path)) for path, _ in pairs], [weight for _, weight in pairs])


def make_mix(traces: Sequence[Trace], weights: Sequence[float] | None = None) -> Mix:
    """Return the mix of ``traces``; weights above 0, alike if None.

    Raises:
        InputError: traces that do not go together, or one without a text of 2 tokens.
    """
    for trace in traces:
        if not (trace.output_tokens_Q > 1).any():
            raise InputError(f"trace '{trace.name}': no text is longer than the one token of prefill")
    shares = np.ones(len(traces)) if weights is None else np.array(weights, dtype=np.float64)
    counts = [len(trace.output_tokens_Q) for trace in traces]
    return Mix(
        trace=join_traces(traces),
        labels=tuple(trace.name for trace in traces),
        weights=tuple((shares / shares.sum()).tolist()),
        text_T1=np.concatenate([[0], np.cumsum(counts)]),
    )


def demand_of_mix(mix: Mix, count: int, seed: int, max_output_tokens: int | None = None) -> Demand:
    """Return ``count`` requests that replay whole texts of the mix, with the texts' own lengths.

    Raises:
        InputError: ``count`` is below 1, or ``max_output_tokens`` below 1.
    """
    if count < 1:
        raise InputError(f"{count} requests; must be at least 1")
    pools = _Pools(mix)
    group_Q = np.zeros(count, dtype=np.int64)
    start = pools.draw_first(group_Q, seed)
    return _lay_out(
        pools,
        start,
        seed,
        prompt_tokens=mix.trace.prompt_tokens_Q[start.text_Q],
        output_tokens=_cut(mix.trace.output_tokens_Q[start.text_Q], max_output_tokens),
    )


def demand_of_workload(
    mix: Mix, workload: Workload, seed: int, max_output_tokens: int | None = None
) -> Demand:
    """Return the requests of ``workload``, in order, with texts drawn from the mix.

    A request whose domain occurs in the mix replays texts of that domain, weighted among the traces
    that have it; any other draws from the whole mix.

    Raises:
        InputError: ``max_output_tokens`` is below 1, or texts far too short for the lengths.
    """
    pools = _Pools(mix, workload.domains)
    group_Q = pools.group_of_domain()[_domain_Q(workload)]
    demand = _lay_out(
        pools,
        pools.draw_first(group_Q, seed),
        seed,
        prompt_tokens=workload.prompt_tokens_Q,
        output_tokens=_cut(workload.output_tokens_Q, max_output_tokens),
        cached_prefix_tokens=workload.cached_prefix_tokens_Q,
    )
    return replace(demand, unknown_domains=tuple(d for d in workload.domains if d not in pools.known))


def _domain_Q(workload: Workload) -> IntArray:
    return np.full(len(workload), -1, dtype=np.int64) if workload.domain_Q is None else workload.domain_Q


def _cut(output_tokens_Q: IntArray, most: int | None) -> IntArray:
    if most is not None and most < 1:
        raise InputError(f"max_output_tokens is {most}; it must be at least 1")
    return output_tokens_Q if most is None else np.minimum(output_tokens_Q, most)


@dataclass(frozen=True, eq=False)
class _Start:
    """Where each request starts: its group of texts, its trace, its first text."""

    group_Q: IntArray
    source_Q: IntArray
    text_Q: IntArray


class _Pools:
    """Texts to draw from, by group (group 0: all texts; one more for each domain that occurs) and trace."""

    def __init__(self, mix: Mix, domains: tuple[str, ...] = ()) -> None:
        self.mix = mix
        self.domains = domains
        label_T = np.array(mix.trace.domain)
        decodes_T = mix.trace.output_tokens_Q > 1
        self.known = [d for d in domains if (decodes_T & (label_T == d)).any()]
        masks = [decodes_T, *(decodes_T & (label_T == d) for d in self.known)]
        self.texts = [[self._of_source(mask, k) for k in range(len(mix.labels))] for mask in masks]

    def _of_source(self, mask_T: Any, source: int) -> IntArray:
        first, last = self.mix.text_T1[source : source + 2]
        texts: IntArray = first + np.flatnonzero(mask_T[first:last])
        return texts

    def group_of_domain(self) -> IntArray:
        """Return the group of each domain of the workload; the last entry is for "no domain"."""
        groups = [self.known.index(d) + 1 if d in self.known else 0 for d in self.domains]
        return np.array([*groups, 0], dtype=np.int64)

    def draw_first(self, group_Q: IntArray, seed: int) -> _Start:
        """Draw trace and first text of each request."""
        uniform_Q = stream(seed, "mix", "trace").random(len(group_Q))
        source_Q = np.zeros(len(group_Q), dtype=np.int64)
        for group, texts in enumerate(self.texts):
            chance = np.array([w * bool(t.size) for w, t in zip(self.mix.weights, texts, strict=True)])
            ends = np.cumsum(chance) / chance.sum()
            chosen = group_Q == group
            source_Q[chosen] = np.searchsorted(ends[:-1], uniform_Q[chosen], side="right")
        text_Q = self.draw(group_Q, source_Q, stream(seed, "mix", "text").random(len(group_Q)))
        return _Start(group_Q, source_Q, text_Q)

    def draw(self, group_Q: IntArray, source_Q: IntArray, uniform_Q: FloatArray) -> IntArray:
        """Return the text that each uniform number in [0, 1) picks from its group and trace."""
        text_Q = np.zeros(len(group_Q), dtype=np.int64)
        for group, by_source in enumerate(self.texts):
            for source, texts in enumerate(by_source):
                chosen = np.flatnonzero((group_Q == group) & (source_Q == source))
                if chosen.size:
                    text_Q[chosen] = texts[(uniform_Q[chosen] * texts.size).astype(np.int64)]
        return text_Q


def _lay_out(
    pools: _Pools,
    start: _Start,
    seed: int,
    *,
    prompt_tokens: IntArray,
    output_tokens: IntArray,
    cached_prefix_tokens: IntArray | None = None,
) -> Demand:
    stretches = _stretches(pools, start, output_tokens - 1, seed)
    request_S, first_S, decode_S = (np.concatenate(column) for column in zip(*stretches, strict=True))
    order = np.argsort(request_S, kind="stable")
    count_Q = np.bincount(request_S, minlength=len(output_tokens))
    return Demand(
        prompt_tokens_Q=prompt_tokens,
        output_tokens_Q=output_tokens,
        cached_prefix_tokens_Q=cached_prefix_tokens,
        source_Q=start.source_Q,
        text_Q=start.text_Q,
        stretch_Q1=np.concatenate([[0], np.cumsum(count_Q)]),
        first_S=first_S[order],
        last_S=(first_S + decode_S)[order],
    )


def _stretches(
    pools: _Pools, start: _Start, decode_Q: IntArray, seed: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield (request, first row, decode tokens) of the first stretches, the second ones, and so on.

    Every request has a first stretch; one of a single output token has nothing to decode in it.
    """
    trace = pools.mix.trace
    active, text, left = np.arange(len(decode_Q)), start.text_Q, decode_Q
    for nth in range(1, MAX_STRETCHES + 1):
        taken = np.minimum(left, trace.output_tokens_Q[text] - 1)
        yield active, trace.offset_Q1[text], taken
        more = left > taken
        active, left = active[more], (left - taken)[more]
        if not active.size:
            return
        uniform = stream(seed, "mix", "text", nth).random(active.size)
        text = pools.draw(start.group_Q[active], start.source_Q[active], uniform)
    raise InputError(
        f"trace '{trace.name}': texts are too short for an output of {int(decode_Q.max()) + 1} tokens; "
        f"{MAX_STRETCHES} of them laid end to end do not reach it"
    )
