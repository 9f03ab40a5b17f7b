"""What a fit and its predictions say, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dspark_sim.fitting.fitted_file import Estimated, Provenance
from dspark_sim.fitting.predict import Predicted
from dspark_sim.results.tables import footnotes, number, signed, text_table
from dspark_sim.schema import FloatArray

#: Two unknowns whose logarithms are correlated beyond this are told apart by nothing in the sweep.
ENTANGLED = 0.8
#: Fitted rows missed by more than this on average [%] say that the model is not of this system.
MISFIT_PCT = 8.0


def unknowns_text(provenance: Provenance) -> str:
    """Return the table of unknowns and what the sweep says of them."""
    columns = {"unknown": "<", "fitted": ">", "95% interval": ">", "prior": ">", "told by the sweep": "<"}
    rows = [
        {
            "unknown": u.name,
            "fitted": f"{u.value:.4g}",
            "95% interval": f"{u.low:.3g} to {u.high:.3g}",
            "prior": f"{u.prior_mode:.3g} x/: {math.exp(1.96 * u.prior_spread):.2f}",
            "told by the sweep": _told(u),
        }
        for u in provenance.unknowns
    ]
    return text_table(columns, rows) + "\n\n" + footnotes(_entangled(provenance))


def _told(unknown: Estimated) -> str:
    moved = abs(math.log(unknown.value / unknown.prior_mode)) / unknown.prior_spread
    if unknown.identified:
        return f"yes: {100 * (1 - unknown.width):.0f}% narrower than its prior"
    if moved > 1:
        return f"pushed {moved:.1f} spreads off its prior, not pinned down"
    return "hardly: the prior decides" if unknown.width < 0.9 else "no: the prior stands"


def _entangled(provenance: Provenance) -> list[str]:
    covariance = np.array(provenance.covariance)
    width = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(width, width)
    names = [unknown.name for unknown in provenance.unknowns]
    pairs = [
        f"{names[i]} and {names[j]} are told together only: correlation {correlation[i, j]:+.2f}"
        for i in range(len(names))
        for j in range(i)
        if abs(correlation[i, j]) > ENTANGLED
    ]
    return pairs or ["no two unknowns are entangled: every correlation is below 0.8 either way"]


def rows_text(
    predicted: Sequence[Predicted],
    used: set[tuple[str, int]],
    bounds: tuple[FloatArray, FloatArray] | None = None,
) -> str:
    """Return the table of every row on both sides, and the errors of used and held rows.

    Args:
        predicted: rows.
        used: (arm, concurrency) of those that were fitted.
        bounds: interval of tok/s, each [X].
    """
    columns = {
        "arm": "<", "users": ">", "tok/s": ">", "simulated": ">", "interval": ">", "error": ">",
        "tok/s/user": ">", "simulated ": ">", "error ": ">", "": "<",
    }  # fmt: skip
    if bounds is None:
        del columns["interval"]
    rows = []
    for i, p in enumerate(predicted):
        span = "" if bounds is None else f"{bounds[0][i]:,.0f} to {bounds[1][i]:,.0f}"
        rows.append(
            {
                "arm": p.measured.arm,
                "users": str(p.measured.concurrency),
                "tok/s": number(p.measured.tok_per_s, 0),
                "simulated": number(p.tok_per_s, 0),
                "interval": span,
                "error": signed(100 * p.error),
                "tok/s/user": _or_dash(p.measured.tok_per_s_per_user),
                "simulated ": number(p.tok_per_s_per_user, 1),
                "error ": "" if math.isnan(p.user_error) else signed(100 * p.user_error),
                "": "fitted" if (p.measured.arm, p.measured.concurrency) in used else "predicted",
            }
        )
    return (
        text_table(columns, rows) + "\n\n" + footnotes([*errors(predicted, used), *misfit(predicted, used)])
    )


def misfit(predicted: Sequence[Predicted], used: set[tuple[str, int]]) -> list[str]:
    """Say where the fitted rows themselves are missed: then the curves are hardly those of the system."""
    missed = [abs(100 * p.error) for p in predicted if (p.measured.arm, p.measured.concurrency) in used]
    if not missed or np.mean(missed) <= MISFIT_PCT:
        return []
    return [
        f"the fitted rows themselves are missed by {np.mean(missed):.0f}% on average: do not trust the rest. "
        "If the curves of --hw are another system's, fit --borrowed scales them; if the benchmark sent other "
        "requests, --set workload.requests=N and the like say so"
    ]


def _or_dash(value: float) -> str:
    return "-" if math.isnan(value) else number(value, 1)


def errors(predicted: Sequence[Predicted], used: set[tuple[str, int]]) -> list[str]:
    """Return one line on the errors of each arm."""
    lines = []
    for arm in dict.fromkeys(p.measured.arm for p in predicted):
        mine = [p for p in predicted if p.measured.arm == arm]
        size = np.array([abs(100 * p.error) for p in mine])
        user = np.array([abs(100 * p.user_error) for p in mine])
        speed = "" if np.isnan(user).all() else f"; tok/s/user {np.nanmean(user):.1f}%"
        role = "fitted" if (arm, mine[0].measured.concurrency) in used else "predicted"
        lines.append(
            f"{arm} ({role}): tok/s {size.mean():.1f}% off on average, {size.max():.1f}% at worst{speed}"
        )
    return lines
