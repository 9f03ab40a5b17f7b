"""Case ``figure5``: acceptance rate under a static threshold on confidence.

Acceptance: the shape of figure 2 by domain, its logits shifted to the accepted length that table 1
gives for the dataset. Confidence: the law whose AUCs are those of figure 6. Nothing is fitted on
figure 5. The rate counts the bonus token on both sides: (rounds + accepted) / (rounds + verified).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.schema import FloatArray
from dspark_sim.validation.cases import CaseResult, Check, Line, Panel, Row
from dspark_sim.validation.tables import read_rows, source_of
from dspark_sim.validation.yields import law_trace, shifted_to
from dspark_sim.workload.published import QWEN3_4B
from dspark_sim.workload.synthetic import SynthDrafter
from dspark_sim.workload.traces import Trace

_THRESHOLDS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9)
_ANCHORS, _TOKENS, _CONCURRENCY = 100_000, 100_000, 32
_LIMIT_POINTS = 4.0


def figure5(seed: int = 0) -> CaseResult:
    """Predict the acceptance rates of figure 5 from table 1, figure 2 and figure 6."""
    datasets = read_rows("figure5")
    traces = {row["dataset"]: _trace(row) for row in datasets}
    curves = {name: _sweep(trace, "confidence", _THRESHOLDS, seed) for name, trace in traces.items()}
    survival = {name: _sweep(trace, "survival", (0.9,), seed)[0] for name, trace in traces.items()}
    rows = [
        Row(
            f"{row['dataset']} at threshold {at:g}",
            float(row[f"rate_pct_at_{at:g}"]),
            float(curves[row["dataset"]][_THRESHOLDS.index(at)]),
            "points",
            "predicted",
            points=True,
        )
        for row in datasets
        for at in (0.0, 0.9)
    ]
    other = ", ".join(f"{name} {rate:.1f}" for name, rate in survival.items())
    return CaseResult(
        name="figure5",
        title="Acceptance rate under a static confidence threshold (Qwen3-4B, gamma 7)",
        sources=[source_of("figure5")],
        rows=rows,
        checks=[Check("worst error [points]", max(abs(row.error or 0.0) for row in rows), _LIMIT_POINTS)],
        panels=[_panel(datasets, curves)],
        notes=[
            "nothing is fitted on figure 5: accepted length from table 1, shape from figure 2, "
            "confidence law from the AUCs of figure 6",
            f"the threshold is on conditional confidence; on survival, 0.9 would give {other} percent",
        ],
    )


def _trace(row: Mapping[str, str]) -> Trace:
    conditional = shifted_to(QWEN3_4B[row["domain"]]["dspark"], float(row["accepted_len"]))
    return law_trace([SynthDrafter("dspark", "dspark", conditional)], "Qwen3-4B", anchors=_ANCHORS)


def _sweep(trace: Trace, on: str, thresholds: tuple[float, ...], seed: int) -> FloatArray:
    """Return the acceptance rate, bonus counted, at each threshold [percent]."""
    profile = load_profile("h800")
    rates = []
    for at in thresholds:
        policy = parse_policy(f"threshold:on={on},at={at}")
        run = simulate(
            trace,
            profile,
            policy,
            concurrency=_CONCURRENCY,
            output_tokens=_TOKENS,
            seed=seed,
        )
        accepted, verified = run.position_accepted.sum(), run.position_verified.sum()
        rates.append(100 * (run.rounds + accepted) / (run.rounds + verified))
    return np.array(rates)


def _panel(datasets: list[dict[str, str]], curves: Mapping[str, FloatArray]) -> Panel:
    lines = []
    for index, row in enumerate(datasets):
        name, look = row["dataset"], f"static:k={2 * index + 1}"
        lines.append(Line(name, look, np.array(_THRESHOLDS), curves[name]))
        measured = np.array([float(row["rate_pct_at_0"]), float(row["rate_pct_at_0.9"])])
        lines.append(Line(f"{name}, paper", look, np.array([0.0, 0.9]), measured, measured=True))
    return Panel("", "threshold on conditional confidence", "acceptance rate, bonus counted [%]", lines)
