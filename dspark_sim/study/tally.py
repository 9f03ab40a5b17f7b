"""Rounds of one drafter per prompt, counted in a trace or expected on texts, and what follows from them.

Shape legend: K prompts, G = gamma, B resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.rng import stream
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import visited

RESAMPLES = 1000
_ENDS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Tally:
    """Full-block replay of one drafter, prompt by prompt.

    Attributes:
        prompts, domains: name and domain of each prompt [K], ascending by name.
        rounds_K, committed_K: rounds, and output tokens that they committed (bonus included).
        reached_KG, accepted_KG: rounds that decided position j on its own, and that accepted it.
    """

    prompts: tuple[str, ...]
    domains: tuple[str, ...]
    rounds_K: FloatArray
    committed_K: FloatArray
    reached_KG: FloatArray
    accepted_KG: FloatArray

    def rows(self, domain: str) -> IntArray:
        """Indices of the prompts of ``domain``."""
        return np.flatnonzero(np.array(self.domains) == domain).astype(np.int64)

    def figures(self, weight_BK: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return accepted length [B] and conditional acceptance [B, G], prompts weighted per resample."""
        with np.errstate(invalid="ignore", divide="ignore"):
            length: FloatArray = (weight_BK @ self.committed_K) / (weight_BK @ self.rounds_K)
            conditional: FloatArray = (weight_BK @ self.accepted_KG) / (weight_BK @ self.reached_KG)
        return length, conditional


def tally_of_trace(trace: Trace, name: str) -> Tally:
    """Count the visited anchors of drafter ``name``."""
    drafter = trace.drafter(name)
    anchors = visited(trace, drafter)
    keys = np.array(trace.prompt_key)[trace.request_N[anchors]]
    prompts, place = np.unique(keys, return_inverse=True)
    domain_of = dict(zip(trace.prompt_key, trace.domain, strict=True))
    accepted, remaining = drafter.accepted_N[anchors].astype(np.int64), trace.remaining_N[anchors]
    position_G = np.arange(drafter.gamma)
    reached = (remaining[:, None] > position_G) & (accepted[:, None] >= position_G)

    def summed(values: FloatArray) -> FloatArray:
        total = np.zeros((len(prompts), *values.shape[1:]))
        np.add.at(total, place, values)
        return total

    return Tally(
        tuple(prompts.tolist()),
        tuple(domain_of[prompt] for prompt in prompts.tolist()),
        summed(np.ones(len(anchors))),
        summed(np.minimum(accepted + 1, remaining).astype(float)),
        summed(reached.astype(float)),
        summed((reached & (accepted[:, None] > position_G)).astype(float)),
    )


def joined(tallies: Sequence[Tally]) -> Tally:
    """All prompts of several tallies of one drafter (traces of different domains)."""
    order = np.argsort([prompt for tally in tallies for prompt in tally.prompts], kind="stable")

    def all_of(field: str) -> FloatArray:
        whole: FloatArray = np.concatenate([getattr(tally, field) for tally in tallies])[order]
        return whole

    return Tally(
        tuple(all_of("prompts").tolist()),
        tuple(all_of("domains").tolist()),
        *(all_of(field) for field in ("rounds_K", "committed_K", "reached_KG", "accepted_KG")),
    )


def shared_prompts(tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    """Keep the prompts that every tally has, so that drafters are compared on the same ones."""
    common = set.intersection(*(set(tally.prompts) for tally in tallies.values()))
    kept = {}
    for name, tally in tallies.items():
        at = np.flatnonzero([prompt in common for prompt in tally.prompts])
        kept[name] = Tally(
            tuple(tally.prompts[n] for n in at),
            tuple(tally.domains[n] for n in at),
            tally.rounds_K[at],
            tally.committed_K[at],
            tally.reached_KG[at],
            tally.accepted_KG[at],
        )
    return kept


@dataclass(frozen=True, slots=True)
class Figures:
    """One drafter on one domain (or ``mean``, the plain mean over domains): value, then every resample.

    The first of the B rows is the estimate itself; the others are resamples of prompts, the same for all
    drafters, so that differences of two drafters have paired intervals.
    """

    length_B: FloatArray
    conditional_BG: FloatArray

    @property
    def length(self) -> float:
        """Accepted length, bonus included [tokens/round]."""
        return float(self.length_B[0])

    @property
    def conditional_G(self) -> FloatArray:
        """Conditional acceptance by position."""
        value: FloatArray = self.conditional_BG[0]
        return value


def interval(values_B: FloatArray) -> tuple[float, float]:
    """95% percentile interval of resamples (the estimate in front left out); nan where nothing was seen."""
    seen = values_B[1:][~np.isnan(values_B[1:])]
    if not len(seen):
        return float("nan"), float("nan")
    low, high = np.quantile(seen, _ENDS)
    return float(low), float(high)


def figures(
    tallies: Mapping[str, Tally], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, dict[str, Figures]]:
    """Return drafter -> domain -> figures, over the prompts that all drafters have.

    Prompts are resampled within each domain; ``mean`` follows the domains.
    """
    common = shared_prompts(tallies)
    first = next(iter(common.values()))
    found: dict[str, dict[str, Figures]] = {name: {} for name in common}
    for domain in dict.fromkeys(first.domains):
        at = first.rows(domain)
        random = stream(seed, "study", domain)
        drawn = random.multinomial(len(at), np.full(len(at), 1 / len(at)), size=resamples)
        weight_BK = np.zeros((resamples + 1, len(first.prompts)))
        weight_BK[0, at] = 1.0
        weight_BK[1:, at] = drawn
        for name, tally in common.items():
            found[name][domain] = Figures(*tally.figures(weight_BK))
    for by_domain in found.values():
        parts = list(by_domain.values())
        by_domain["mean"] = Figures(
            np.mean([part.length_B for part in parts], axis=0),
            np.mean([part.conditional_BG for part in parts], axis=0),
        )
    return found
