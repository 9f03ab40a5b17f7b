"""How much of what is possible a policy reaches: its part of the gain that a bound leaves over ``off``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_sim.errors import DataError, InputError
from dspark_sim.results.metrics import Point
from dspark_sim.results.stats import Interval, t_interval

SCHEMA = "dspark-sim/bound/1"
_OFF = "off"


def read_bounds(path: Path) -> tuple[str, dict[int, float]]:
    """Return drafter and bound [tok/s] by load of a document that ``dspark-sim bound --json`` printed.

    Raises:
        InputError: there is no such file.
        DataError: it holds something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; `dspark-sim bound --json` prints one") from None
    except ValueError as error:
        raise DataError(path, "", f"not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise DataError(path, "schema", f"expected '{SCHEMA}', as `dspark-sim bound --json` prints")
    try:
        bounds = {int(row["concurrency"]): float(row["bound"]) for row in document["loads"]}
        return str(document["drafter"]), bounds
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(path, "loads", f"needs concurrency and bound of every load ({error})") from None


def shares(
    points: Sequence[Point], drafter: str, bounds: Mapping[int, float]
) -> dict[tuple[str, str, int], Interval]:
    """Return (drafter, policy, load) -> share of the gain that the bound leaves over ``off``, paired by seed.

    Loads without a bound, without ``off``, or where the bound leaves no gain have none.

    Raises:
        InputError: a point passes its bound, so the bounds are of another set-up.
    """
    off = {(p["concurrency"], p["seed"]): p["tok_per_s"] for p in points if p["policy"] == _OFF}
    found: dict[tuple[str, str, int], list[float]] = {}
    for p in points:
        load, base = p["concurrency"], off.get((p["concurrency"], p["seed"]))
        limit = bounds.get(load)
        if p["drafter"] != drafter or limit is None:
            continue
        if p["tok_per_s"] > limit:
            raise InputError(
                f"{p['policy']} at {load} users passes the bound: {p['tok_per_s']:,.0f} above {limit:,.0f} "
                "tok/s; the bounds are of another trace, profile or setting"
            )
        if base is not None and limit > base:
            key = (p["drafter"], p["policy"], load)
            found.setdefault(key, []).append((p["tok_per_s"] - base) / (limit - base))
    return {key: t_interval(values) for key, values in found.items()}


def with_shares(document: dict[str, Any], found: Mapping[tuple[str, str, int], Interval]) -> dict[str, Any]:
    """Return a report document whose rows carry their share as [mean, low, high]."""
    rows = []
    for row in document["points"]:
        drafter, _, policy = row["key"].partition("|")
        share = found.get((drafter, policy, row["load"]))
        triple = [None] * 3 if share is None else [share.mean, *(share.bounds or (None, None))]
        rows.append(row | {"share": triple})
    return document | {"points": rows, "bounded": True}
