"""How good a drafter's confidences are: telling tokens apart (discrimination.py), and telling the truth.

Telling the truth: expected calibration error, Brier score and reliability of the survival c_1 ... c_j, on
prompts that the calibration never saw. Shape legend: M visited anchors, G = gamma, B bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.calibration import ECE_BINS, Calibration, Evidence, fit
from dspark_sim.workload.discrimination import Discrimination, discrimination
from dspark_sim.workload.fitting import METHODS, split_prompts
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import Reliability, evidence, score, visited


@dataclass(frozen=True, slots=True)
class Diagram:
    """Reliability of survivals in equal bins of 0..1, [G, B]; nan where a bin is empty.

    Attributes:
        rounds_GB: rounds in the bin.
        predicted_GB: mean predicted survival.
        observed_GB: share that survived.
    """

    rounds_GB: IntArray
    predicted_GB: FloatArray
    observed_GB: FloatArray


def diagram(calibration: Calibration, rounds: Evidence, bins: int = ECE_BINS) -> Diagram:
    """Sort the survivals that ``calibration`` gives to ``rounds`` into bins, position by position."""
    survival_MG = np.cumprod(calibration.apply(rounds.logit_MG), axis=1)
    rows = []
    for position in range(survival_MG.shape[1]):
        inside, hit = rounds.outcome(position)
        predicted = survival_MG[inside, position]
        place = np.minimum((predicted * bins).astype(np.int64), bins - 1)
        count = np.bincount(place, minlength=bins)
        with np.errstate(invalid="ignore"):
            means = [np.bincount(place, weights=x, minlength=bins) / count for x in (predicted, hit)]
        rows.append((count, *means))
    count, predicted, observed = (np.array(part) for part in zip(*rows, strict=True))
    return Diagram(count, predicted, observed)


@dataclass(frozen=True, slots=True)
class Scored:
    """One calibration on prompts that it never saw.

    Attributes:
        calibration: what was scored; ``identity`` for raw confidences.
        scores: by position; its AUC is of the survival, not of one position.
        diagram: the reliability diagram.
    """

    calibration: Calibration
    scores: Reliability
    diagram: Diagram

    @property
    def mean_ece(self) -> float:
        """Mean over positions of the ECE of the survival."""
        return float(np.nanmean(self.scores.ece_G))


@dataclass(frozen=True, slots=True)
class ConfidenceReport:
    """All evidence about one drafter's confidences in one trace.

    Attributes:
        drafter: its name.
        discrimination: over all visited anchors.
        methods: ``raw``, then each calibration method, fitted on half of the prompts, scored on the rest.
        prompts: prompts fitted on, and scored on.
        rounds: visited anchors scored on.
    """

    drafter: str
    discrimination: Discrimination
    methods: dict[str, Scored]
    prompts: tuple[int, int]
    rounds: int


def confidence_report(
    trace: Trace, drafter: str | None = None, methods: Sequence[str] = METHODS, seed: int = 0
) -> ConfidenceReport:
    """Fit each method on half of the prompts; score it, and the raw confidences, on the other half.

    Raises:
        InputError: unknown drafter, no confidence head, or a single prompt.
    """
    chosen = trace.drafter(drafter)
    if not chosen.has_confidence:
        raise InputError(f"trace '{trace.name}': drafter '{chosen.name}' has no confidence head")
    seen, unseen = (trace.take(rows) for rows in split_prompts(trace, seed))
    learner, judge = seen.drafter(chosen.name), unseen.drafter(chosen.name)
    lesson = evidence(seen, learner, visited(seen, learner))
    rounds = evidence(unseen, judge, visited(unseen, judge))
    fits = {"raw": Calibration.identity(chosen.gamma)} | {name: fit(lesson, name) for name in methods}
    return ConfidenceReport(
        chosen.name,
        discrimination(trace, chosen, visited(trace, chosen)),
        {name: Scored(fresh, score(fresh, rounds), diagram(fresh, rounds)) for name, fresh in fits.items()},
        (len(set(seen.prompt_key)), len(set(unseen.prompt_key))),
        len(rounds.accepted_M),
    )
