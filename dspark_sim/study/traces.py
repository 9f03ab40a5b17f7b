"""Studies of confidences in recorded traces: figures 5 and 6 of the paper, and what a head can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dspark_sim.results.plots_study import Curve, Panel
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.study import paper
from dspark_sim.study.result import Row, Study
from dspark_sim.workload.confidence import ConfidenceReport, confidence_report
from dspark_sim.workload.discrimination import RESAMPLES, Part, pooled_discrimination, share_interval
from dspark_sim.workload.traces import DrafterTrace, Trace
from dspark_sim.workload.visits import visited

THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Positions of figure 6.
_POSITIONS = (1, 3, 5, 7)
#: Fewest events that a share of the ceiling is judged by.
_EVENTS = 1000
_METHODS = {"raw": "raw", "sts": "STS", "bias": "temperature and bias"}


def with_head(traces: Sequence[Trace]) -> list[tuple[Trace, DrafterTrace]]:
    """Return each trace with its DSpark drafter that has a confidence head, others left out."""
    found = []
    for trace in traces:
        heads = [d for d in trace.drafters.values() if d.has_confidence and d.kind == "dspark"]
        if heads:
            found.append((trace, heads[0]))
    return found


def threshold_study(traces: Sequence[Trace]) -> Study:
    """Verify a prefix as long as each confidence exceeds a threshold (calibrated confidences)."""
    rows: list[Row] = []
    rates, lengths = [], []
    for trace, drafter in with_head(traces):
        own = [threshold_row(trace, drafter, at) for at in THRESHOLDS]
        _, *ends = paper.THRESHOLD.get(trace.name, ("", None, None))
        published = dict(zip((0.0, 0.9), ends, strict=True))
        for row in own:
            rows.append({**row, "paper rate [%]": published.get(row["threshold"])})
        label = f"{trace.name}, {drafter.name}"
        rates.append(Curve(label, trace.name, THRESHOLDS, [row["rate [%]"] for row in own]))
        if ends[0] is not None:
            dataset = paper.THRESHOLD[trace.name][0]
            rates.append(Curve(f"{dataset}, Qwen3-4B", trace.name, (0.0, 0.9), ends, paper=True))
        verified = [row["verified per round"] for row in own]
        lengths.append(Curve(label, trace.name, verified, [row["accepted length"] for row in own]))
    panels = [
        Panel("acceptance rate, bonus counted", "threshold on confidence", "accepted [%]", rates, top=100.0),
        Panel("what it costs", "drafts verified per round", "accepted length [tokens/round]", lengths),
    ]
    lacks = [] if rows else ["a trace of a DSpark drafter with confidences"]
    notes = ["rate = (rounds + accepted) / (rounds + verified); replayed on the anchors that the rule visits"]
    title = "Acceptance rate under a static threshold on confidence"
    return Study("threshold", title, "figure 5", rows, panels if rows else [], notes, lacks)


def threshold_row(trace: Trace, drafter: DrafterTrace, threshold: float) -> Row:
    """Replay one threshold: drafts are verified up to the first confidence that does not reach it."""
    confident = drafter.confidence_NG() >= threshold
    verify_N = confident.cumprod(axis=1).sum(axis=1)
    rounds, accepted, verified = walk(trace, drafter.accepted_N.astype(np.int64), verify_N)
    return {
        "trace": trace.name,
        "drafter": drafter.name,
        "threshold": threshold,
        "verified per round": verified / rounds,
        "accepted length": (rounds + accepted) / rounds,
        "rate [%]": 100 * (rounds + accepted) / (rounds + verified),
    }


def walk(trace: Trace, accepted_N: IntArray, verify_N: IntArray) -> tuple[int, int, int]:
    """Return rounds, accepted and verified drafts of a replay that verifies ``verify_N`` at each anchor.

    A round that would reach past the end of its text is left out of all three: what it would have
    accepted is not known.
    """
    committed_N = np.minimum(accepted_N, verify_N) + 1
    at, end = trace.offset_Q1[:-1], trace.offset_Q1[1:] - 1
    rounds = accepted = verified = 0
    while (running := at + verify_N[np.minimum(at, len(verify_N) - 1)] < end).any():
        at, end = at[running], end[running]
        rounds += len(at)
        accepted += int(committed_N[at].sum()) - len(at)
        verified += int(verify_N[at].sum())
        at = at + committed_N[at]
    return rounds, accepted, verified


def confidence_studies(traces: Sequence[Trace], seed: int = 0) -> tuple[Study, Study]:
    """Return ``reliability`` (figure 6, DSpark) and ``confidence`` (AUC beside its ceiling, all drafters)."""
    reports = {
        trace.name: confidence_report(trace, drafter.name, seed=seed) for trace, drafter in with_head(traces)
    }
    lacks = [] if reports else ["a trace of a DSpark drafter with confidences"]
    return _reliability(reports, lacks), _confidence(traces, lacks)


def _reliability(reports: dict[str, ConfidenceReport], lacks: Sequence[str]) -> Study:
    rows: list[Row] = []
    panels = []
    for name, report in reports.items():
        gamma = len(report.discrimination.events_G)
        for j in range(gamma):
            rows.append(_reliability_row(name, j, report))
        errors = {method: scored.mean_ece for method, scored in report.methods.items()}
        rows.append(
            {"trace": name, "position": "mean"}
            | {f"ECE {_METHODS[m]}": error for m, error in errors.items()}
            | {f"Brier {_METHODS[m]}": _mean(s.scores.brier_G) for m, s in report.methods.items()}
            | {"paper ECE before": None, "paper ECE after STS": None}
        )
        for position in (p for p in _POSITIONS if p <= gamma):
            panels.append(_diagram_panel(name, position - 1, report))
    first = next(iter(reports.values()), None)
    notes = []
    if first is not None:
        seen, unseen = first.prompts
        notes = [
            f"ECE and Brier of the survival (product of confidences); fitted on {seen} prompts a trace, "
            f"scored on the {unseen} others; 20 equal bins; bins of fewer than 30 rounds are not drawn",
            "paper: Alpaca, Qwen3-4B; its ECE is computed here from the points of figure 6",
        ]
    title = "Reliability of the survival before and after calibration"
    return Study("reliability", title, "figure 6", rows, panels, notes, lacks)


def _reliability_row(name: str, j: int, report: ConfidenceReport) -> Row:
    published = paper.ECE.get(j + 1, (None, None))
    row: Row = {"trace": name, "position": j + 1}
    for score in ("ECE", "Brier"):
        for method, scored in report.methods.items():
            row[f"{score} {_METHODS[method]}"] = float(getattr(scored.scores, f"{score.lower()}_G")[j])
    return row | {"paper ECE before": published[0], "paper ECE after STS": published[1]}


def _mean(values: FloatArray) -> float:
    return float(np.nanmean(values))


def _diagram_panel(name: str, j: int, report: ConfidenceReport) -> Panel:
    curves = [Curve("perfect", "ideal", (0.0, 1.0), (0.0, 1.0))]
    for method, scored in report.methods.items():
        drawn = scored.diagram.rounds_GB[j] >= 30
        predicted, observed = (x[j][drawn] for x in (scored.diagram.predicted_GB, scored.diagram.observed_GB))
        if len(predicted):
            curves.append(Curve(_METHODS[method], method, predicted.tolist(), observed.tolist()))
    title = f"{name}, position {j + 1}"
    return Panel(title, "predicted survival", "share that survived", curves, top=1.0)


def _confidence(traces: Sequence[Trace], lacks: Sequence[str]) -> Study:
    rows: list[Row] = []
    panels = []
    for name in dict.fromkeys(d.name for trace in traces for d in trace.drafters.values()):
        parts = [
            (trace, drafter, visited(trace, drafter))
            for trace in traces
            if (drafter := trace.drafters.get(name)) is not None and drafter.has_confidence
        ]
        groups = {trace.name: [part] for part in parts for trace in part[:1]}
        if len(parts) > 1:
            groups["together"] = parts
        curves = []
        for label, group in groups.items():
            own = _share_rows(name, label, group)
            rows += own
            curves.append(_share_curve(label, own))
        if curves:
            panels.append(Panel(name, "position", "share of the ceiling", curves, top=1.0))
    notes = [
        "AUC of a position's own confidence over the rounds that decided it; ceiling: AUC of the analytic "
        "acceptance rate 1 - TV(q, p); share = (AUC - .5) / (ceiling - .5), interval 95 % from "
        f"{RESAMPLES} resamples of prompts",
        f"drawn: positions with {_EVENTS:,} events or more; together: all traces in one ranking",
    ]
    title = "What confidences can tell apart"
    return Study("confidence", title, "not in the paper", rows, panels, notes, lacks)


def _share_rows(drafter: str, label: str, parts: Sequence[Part]) -> list[Row]:
    told, (low_G, high_G) = pooled_discrimination(parts), share_interval(parts)
    return [
        {
            "drafter": drafter,
            "trace": label,
            "position": j + 1,
            "events": int(told.events_G[j]),
            "AUC": float(told.auc_G[j]),
            "ceiling": float(told.ceiling_G[j]),
            "share": float(told.share_G[j]),
            "low": float(low_G[j]),
            "high": float(high_G[j]),
        }
        for j in range(len(told.events_G))
    ]


def _share_curve(label: str, rows: Sequence[Row]) -> Curve:
    drawn: list[Any] = [row for row in rows if row["events"] >= _EVENTS]
    x, y = [row["position"] for row in drawn], [row["share"] for row in drawn]
    return Curve(label, label, x, y, [row["low"] for row in drawn], [row["high"] for row in drawn])
