"""BurstGPT: two months of a university's calls to hosted models (Wang et al., arXiv 2401.17644)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.workload.importers.common import requests
from dspark_sim.workload.importers.registry import importer
from dspark_sim.workload.tables import NumberTable
from dspark_sim.workload.workloads import Workload

_NEEDED = ("Timestamp", "Model", "Request tokens", "Response tokens", "Log Type")
_KNOWN = (*_NEEDED, "Total tokens", "Session ID", "Elapsed time")


@importer("burstgpt", gives="workload", file="BurstGPT_*.csv")
def burstgpt(path: Path, *, model: str = "") -> Workload:
    """Read a CSV file; the log type (conversation or API) becomes the domain.

    Failed calls have a response of 0 tokens and are dropped.

    Args:
        path: the file; ``Timestamp`` is in seconds.
        model: keep the calls to this model only, such as ``GPT-4``; empty: all.

    Raises:
        InputError: no call to ``model``.
        DataError: a column is missing or unknown, a cell is no number.
    """
    table = NumberTable(path, text=["Model", "Log Type", "Session ID"])
    table.check_columns(_NEEDED, _KNOWN)
    seconds = table.floats("Timestamp")
    table.refuse_where("Timestamp", seconds, ~np.isfinite(seconds), "must be a finite time [s]")
    models, kind = np.array(table.strings("Model")), np.array(table.strings("Log Type"))
    kept = (models == model) | (not model)
    if not kept.any():
        raise InputError(f"{path}: no call to model '{model}'{did_you_mean(model, set(models.tolist()))}")
    return requests(
        path,
        "burstgpt",
        prompt_tokens=table.integers("Request tokens", least=0)[kept],
        output_tokens=table.integers("Response tokens", least=0)[kept],
        arrival_s=seconds[kept],
        domain=kind[kept].tolist(),
        notes=[f"calls to {model} only"] if model else [],
    )
