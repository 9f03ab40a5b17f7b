"""The law of the output, written out: two requests, blocks of three, two letters, in fractions.

A world gives each request a target p, a drafter q and confidences c_j, all functions of the tokens
before. Every pair of blocks is enumerated; the rule decides on it; verification, residual and bonus
are followed branch by branch; the rest of each text comes from the target. The joint law of the first
three tokens of both requests must be the product of the two targets' laws, exactly.

A coupled bonus tests the first unverified token of the block; the text then goes on as if that token
had been verified, so its law is that of a block verified one token further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from dspark_sim.audit.worlds import draw_view, with_confidence
from dspark_sim.errors import InputError
from dspark_sim.policies.base import BatchView, Past, Policy

LETTERS = "AB"
GAMMA = 3
REQUESTS = 2
Block = tuple[int, ...]
Law = list[Fraction]

_TENTHS = 10
_BLOCKS: list[Block] = list(product(range(2), repeat=GAMMA))
_CONFIDENCES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class Request:
    """Target, drafter and confidence head of one request; keys are the tokens since its anchor.

    p_of_a, q_of_a: probability that target and drafter give the letter A next.
    confidence: c_{j+1} after j draft tokens.
    """

    p_of_a: dict[Block, Fraction]
    q_of_a: dict[Block, Fraction]
    confidence: dict[Block, float]


@dataclass(frozen=True)
class ExactLaw:
    """The output of a rule in one world, against the target's.

    Attributes:
        single: per request, outputs (three letters) -> (law under the rule, the target's).
        joint: outputs of both requests -> the same.
        distance: total variation distance of the joint laws.
        single_distance: the largest of the two requests'.
    """

    single: list[dict[str, tuple[Fraction, Fraction]]]
    joint: dict[str, tuple[Fraction, Fraction]]
    distance: Fraction
    single_distance: Fraction


def draw_request(rng: np.random.Generator) -> Request:
    """Return a random request: probabilities in tenths, confidences of a few values."""
    prefixes = [prefix for length in range(GAMMA) for prefix in product(range(2), repeat=length)]
    p, q = ({f: Fraction(int(rng.integers(1, _TENTHS)), _TENTHS) for f in prefixes} for _ in range(2))
    return Request(p, q, {f: float(rng.choice(_CONFIDENCES)) for f in prefixes})


def search(
    policy: Policy, *, coupled: bool = False, worlds: int = 4, tries: int = 120, seed: int = 0
) -> tuple[ExactLaw, int]:
    """Return the law in the first world where it is not the target's, and how many laws were written out.

    Of ``tries`` random worlds the law is written out in the first ``worlds``, and in all those where the
    rule decides differently on blocks that its decision does not tell apart. ``coupled``: the bonus is
    drawn by testing the first token that is not verified.

    Raises:
        InputError: the rule verifies more tokens than a block of three has.
    """
    if int(policy.options.get("k", 0)) > GAMMA:
        raise InputError(f"policy {policy.label}: the exact mode has blocks of {GAMMA} tokens")
    rng = np.random.default_rng(seed)
    written: list[ExactLaw] = []
    for tried in range(tries):
        world = _draw_world(policy, rng)
        if tried < worlds or _tells_apart(policy, *world, coupled):
            written.append(output_law(policy, *world, coupled=coupled))
            if written[-1].distance:
                break
    return written[-1], len(written)


def _draw_world(policy: Policy, rng: np.random.Generator) -> tuple[list[Request], BatchView]:
    requests = [draw_request(rng) for _ in range(REQUESTS)]
    return requests, draw_view(policy, rng, Past.nothing(REQUESTS), GAMMA)


def _tells_apart(policy: Policy, requests: list[Request], view: BatchView, coupled: bool) -> bool:
    """Whether two pairs of blocks that agree on the first one's tested prefixes are decided differently."""
    pairs = list(product(_BLOCKS, repeat=REQUESTS))
    decided = [_decide(policy, requests, pair, view) for pair in pairs]
    by_prefix: dict[tuple[Block, ...], set[tuple[int, ...]]] = {}
    for lengths in set(decided):
        by_prefix.clear()
        for pair, others in zip(pairs, decided, strict=True):
            prefix = tuple(block[: length + coupled] for block, length in zip(pair, lengths, strict=True))
            by_prefix.setdefault(prefix, set()).add(others)
        if any(lengths in found and len(found) > 1 for found in by_prefix.values()):
            return True
    return False


def output_law(
    policy: Policy, requests: list[Request], view: BatchView, *, coupled: bool = False
) -> ExactLaw:
    """Return the law of the first three tokens of both requests when ``policy`` decides on each block.

    Args:
        policy: the rule.
        requests: the two requests.
        view: costs, lagged survivals and counts of the step; its confidences are put in block by block.
        coupled: whether the bonus tests the first token that is not verified.
    """
    emitted = [_Emitted(request) for request in requests]
    target = [_target_law(request) for request in requests]
    joint: Law = [Fraction(0)] * len(_BLOCKS) ** 2
    for first in _BLOCKS:
        partial: dict[int, Law] = {}
        for second in _BLOCKS:
            decided = _decide(policy, requests, (first, second), view)
            lengths = [min(length + coupled, GAMMA) for length in decided]
            weight, law = emitted[1].weight(second), emitted[1].law(second, lengths[1])
            held = partial.setdefault(lengths[0], [Fraction(0)] * len(_BLOCKS))
            partial[lengths[0]] = [h + weight * share for h, share in zip(held, law, strict=True)]
        for length, others in partial.items():
            weight, law = emitted[0].weight(first), emitted[0].law(first, length)
            for n, share in enumerate(law):
                for m, other in enumerate(others):
                    joint[n * len(_BLOCKS) + m] += weight * share * other
    return _compare(joint, target)


def _decide(
    policy: Policy, requests: list[Request], blocks: tuple[Block, ...], view: BatchView
) -> tuple[int, int]:
    confidence = np.array([
        [request.confidence[block[:j]] for j in range(GAMMA)]
        for request, block in zip(requests, blocks, strict=True)
    ])  # fmt: skip
    lengths = policy(with_confidence(view, confidence)).tolist()
    return lengths[0], lengths[1]


def _probability(of_a: dict[Block, Fraction], prefix: Block, letter: int) -> Fraction:
    return of_a[prefix] if letter == 0 else 1 - of_a[prefix]


class _Emitted:
    """The output of one request, given its block and how much of it is verified; computed once each."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._known: dict[tuple[Block, int], Law] = {}

    def weight(self, block: Block) -> Fraction:
        """Return the probability that the drafter drafts ``block``."""
        steps = [_probability(self._request.q_of_a, block[:j], x) for j, x in enumerate(block)]
        return math.prod(steps, start=Fraction(1))

    def law(self, block: Block, length: int) -> Law:
        """Return the law of the output when ``length`` tokens of ``block`` are verified."""
        if (block, length) not in self._known:
            self._known[block, length] = self._follow(block, length)
        return self._known[block, length]

    def _follow(self, block: Block, length: int) -> Law:
        request, law, kept = self._request, [Fraction(0)] * len(_BLOCKS), Fraction(1)
        for j in range(length):
            prefix, letter = block[:j], block[j]
            p = _probability(request.p_of_a, prefix, letter)
            accept = min(Fraction(1), p / _probability(request.q_of_a, prefix, letter))
            # Of two letters, the residual max(p - q, 0) of a rejected one holds only the other.
            _continue(request, (*prefix, 1 - letter), kept * (1 - accept), law)
            kept *= accept
        _continue(request, block[:length], kept, law)
        return law


def _continue(request: Request, prefix: Block, mass: Fraction, law: Law) -> None:
    """Add ``mass`` to the outputs that the target makes of ``prefix``."""
    if not mass:
        return
    if len(prefix) == GAMMA:
        law[_BLOCKS.index(prefix)] += mass
        return
    for letter in range(2):
        share = mass * _probability(request.p_of_a, prefix, letter)
        _continue(request, (*prefix, letter), share, law)


def _target_law(request: Request) -> Law:
    law = [Fraction(0)] * len(_BLOCKS)
    _continue(request, (), Fraction(1), law)
    return law


def _compare(joint: Law, target: list[Law]) -> ExactLaw:
    size = len(_BLOCKS)
    rows = [joint[n * size : (n + 1) * size] for n in range(size)]
    columns = zip(*rows, strict=True)
    single = [[sum(row, Fraction(0)) for row in side] for side in (rows, columns)]
    product_law = [one * other for one in target[0] for other in target[1]]
    words = ["".join(LETTERS[letter] for letter in block) for block in _BLOCKS]
    pairs = [f"{one} {other}" for one in words for other in words]
    return ExactLaw(
        single=[_table(words, *laws) for laws in zip(single, target, strict=True)],
        joint=_table(pairs, joint, product_law),
        distance=_distance(joint, product_law),
        single_distance=max(_distance(*laws) for laws in zip(single, target, strict=True)),
    )


def _distance(one: Law, other: Law) -> Fraction:
    return sum((abs(a - b) for a, b in zip(one, other, strict=True)), Fraction(0)) / 2


def _table(words: list[str], law: Law, target: Law) -> dict[str, tuple[Fraction, Fraction]]:
    return {word: (one, other) for word, one, other in zip(words, law, target, strict=True)}
