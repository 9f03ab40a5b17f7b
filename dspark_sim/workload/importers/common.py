"""What request importers share: rows to keep, order, time from the first arrival, notes on both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dspark_sim.errors import DataError
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.workloads import Workload, label_codes


def requests(
    path: Path,
    importer: str,
    *,
    prompt_tokens: IntArray,
    output_tokens: IntArray,
    arrival_s: FloatArray | None = None,
    cached_prefix_tokens: IntArray | None = None,
    domain: list[str] | None = None,
    notes: list[str] | None = None,
) -> Workload:
    """Return the workload of an imported file.

    Requests without a prompt or without an output (logs keep failed ones) are dropped, arrivals out
    of order are sorted, time starts at the first arrival; each is noted where it changed anything.

    Raises:
        DataError: no request is left.
    """
    domains, domain_Q = label_codes(domain) if domain else ((), None)
    said = list(notes or [])
    whole = Workload(
        name=path.name.partition(".")[0],
        source={},
        arrival_s_Q=arrival_s,
        prompt_tokens_Q=prompt_tokens,
        output_tokens_Q=output_tokens,
        cached_prefix_tokens_Q=cached_prefix_tokens,
        domain_Q=domain_Q,
        domains=domains,
    )
    kept = whole.take(_order(path, whole, said))
    arrival = kept.arrival_s_Q
    return replace(
        kept,
        source={"importer": importer, "file": path.name, "notes": said},
        arrival_s_Q=None if arrival is None else arrival - arrival[0],
    )


def _order(path: Path, whole: Workload, notes: list[str]) -> IntArray:
    good = (whole.prompt_tokens_Q >= 1) & (whole.output_tokens_Q >= 1)
    if not good.any():
        raise DataError(path, "", "no request with a prompt and an output of at least 1 token each")
    if not good.all():
        notes.append(f"dropped {int((~good).sum())} of {len(good)} requests without prompt or output tokens")
    rows = np.flatnonzero(good)
    if whole.arrival_s_Q is None:
        return rows
    arrival = whole.arrival_s_Q[rows]
    late = int((np.diff(arrival) < 0).sum())
    if late:
        notes.append(f"sorted by arrival: {late} requests were logged out of order")
    return rows[np.argsort(arrival, kind="stable")]
