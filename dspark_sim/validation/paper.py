"""Case ``paper``: DSpark-5 on V4-Flash and V4-Pro, predicted from the MTP-1 curves alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dspark_sim.validation.cases import CaseResult, Check, Line, Panel, Row
from dspark_sim.validation.paper_predict import DSPARK
from dspark_sim.validation.paper_run import POLICIES, Model, Served, paper_trace
from dspark_sim.validation.priors import FIRST_DECLARED, PAPER, Prior, modes
from dspark_sim.validation.tables import source_of

_HALF_WIDTH_LIMIT = 15.0
_FIT_LIMIT = 2.0
_SENSITIVITY_AT = 100.0
_ANCHOR_LIMIT = 12.0


def paper(seed: int = 0) -> CaseResult:
    """Fit MTP-1, predict DSpark-5, MTP-3 and MTP-5, and compare with what the paper printed."""
    models = _models(PAPER, seed)
    served = [model.serve(policy) for model in models for policy in POLICIES]
    by_key = {(run.model, run.policy): run for run in served}
    anchors = [row for model in models for row in model.anchors(by_key[model.name, DSPARK])]
    first = [row for model in _models(FIRST_DECLARED, seed) for row in model.anchors(model.serve(DSPARK))]
    return CaseResult(
        name="paper",
        title="DSpark-5 on live V4 traffic, predicted from the paper's MTP-1 curves alone",
        sources=[source_of(f"paper_{name}") for name in ("fig8_mtp1", "fig7_mtp1", "anchors")],
        rows=[*_fit_rows(models, by_key), *_anchor_rows(anchors)],
        checks=[*_checks(models, by_key), _anchors_inside(anchors), _anchors_near(anchors)],
        panels=_panels(models, by_key),
        notes=[*_NOTES, _first_note(first)],
        extra={
            "series": [row for run in served for row in run.series()],
            "anchors": anchors,
            "first_declared": {
                "modes": {name: modes(priors) for name, priors in FIRST_DECLARED.items()},
                "anchors": first,
            },
            "sensitivity": [row for model in models for row in model.sensitivity(_SENSITIVITY_AT)],
        },
    )


def _models(priors: Mapping[str, Mapping[str, Prior]], seed: int) -> list[Model]:
    """Return the models at ``priors``; acceptance is one law for all of them."""
    at = modes(next(iter(priors.values())))
    trace = paper_trace(at["traffic"], at["dspark_shift"])
    return [Model(name, own, trace, seed) for name, own in priors.items()]


_NOTES = (
    "fitted: the MTP-1 curves; predicted: everything else. The printed anchors are compared with only",
    "intervals: 95% of the draws from the priors (docs/validation.md), around the engine's run of their "
    "most likely values",
    "SLA anchors are read on figure 7's own MTP-1 curve, throughput by concurrency on figure 8's",
)


def _fit_rows(models: list[Model], served: Mapping[tuple[str, str], Served]) -> list[Row]:
    rows = []
    for model in models:
        run = served[model.name, POLICIES[0]]
        for i in np.flatnonzero(np.isin(run.concurrency, (20, 50, 100, 200))):
            what = f"{model.name} MTP-1 at {run.concurrency[i]:.0f} requests"
            rows.append(Row(what, model.curve.tok_per_s_P[i], float(run.tok_per_s[i]), "tok/s/GPU", "fitted"))
    return rows


def _anchor_rows(anchors: list[dict[str, Any]]) -> list[Row]:
    return [
        Row(
            f"{row['model']} DSpark at {row['sla']:.0f} tok/s/user",
            row["published_tok_per_s_per_gpu"],
            row["tok_per_s_per_gpu"],
            "tok/s/GPU",
            "predicted",
            (row["low"], row["high"]),
        )
        for row in anchors
    ]


def _checks(models: list[Model], served: Mapping[tuple[str, str], Served]) -> list[Check]:
    checks = []
    for model in models:
        fitted, run = served[model.name, POLICIES[0]], served[model.name, DSPARK]
        known = (run.concurrency >= 20) & (run.concurrency <= 200)
        off = np.abs(fitted.tok_per_s / model.curve.tok_per_s_P - 1)[known]
        half = ((run.bounds[1] - run.bounds[0]) / 2 / run.tok_per_s)[known]
        checks.append(Check(f"{model.name}: MTP-1 fit, worst error [%]", 100 * off.max(), _FIT_LIMIT))
        checks.append(
            Check(f"{model.name}: half width of DSpark's interval [%]", 100 * half.max(), _HALF_WIDTH_LIMIT)
        )
        last = [float(served[model.name, policy].tok_per_s[-1]) for policy in POLICIES]
        for policy, tok_per_s in zip(POLICIES[2:], last[2:], strict=True):
            what = f"{model.name}: {policy} over mtp:k=1 at {run.concurrency[-1]:.0f} requests"
            checks.append(Check(what, tok_per_s / last[0], 1.0))
    return checks


def _anchors_inside(anchors: list[dict[str, Any]]) -> Check:
    inside = [row["low"] <= row["published_tok_per_s_per_gpu"] <= row["high"] for row in anchors]
    return Check("printed anchors inside their intervals", float(sum(inside)), len(anchors), at_least=True)


def _off_pct(anchor: Mapping[str, Any]) -> float:
    return float(100 * (anchor["tok_per_s_per_gpu"] / anchor["published_tok_per_s_per_gpu"] - 1))


def _anchors_near(anchors: list[dict[str, Any]]) -> Check:
    worst = max(abs(_off_pct(row)) for row in anchors)
    return Check("throughput at the printed anchors, worst error [%]", worst, _ANCHOR_LIMIT)


def _first_note(anchors: list[dict[str, Any]]) -> str:
    errors = ", ".join(f"{row['model']} at {row['sla']:.0f} {_off_pct(row):+.1f}%" for row in anchors)
    first, now = modes(FIRST_DECLARED["V4-Pro"]), modes(PAPER["V4-Pro"])
    later = ", ".join(name for name in now if now[name] != first.get(name))
    return (
        f"with every prior as first declared: {errors}. Derived from other evidence after these errors had "
        f"been seen: {later} (docs/validation.md)"
    )


def _panels(models: list[Model], served: Mapping[tuple[str, str], Served]) -> list[Panel]:
    panels = []
    for model in models:
        runs = [served[model.name, policy] for policy in POLICIES]
        lines = [
            Line(r.policy, r.policy, r.concurrency, r.tok_per_s, band=(r.bounds[0], r.bounds[1]))
            for r in runs
        ]
        curve = model.curve
        lines.append(Line("paper", POLICIES[0], curve.concurrency_P, curve.tok_per_s_P, measured=True))
        panels.append(Panel(model.name, "concurrency per GPU [requests]", "throughput [tok/s/GPU]", lines))
    return panels
