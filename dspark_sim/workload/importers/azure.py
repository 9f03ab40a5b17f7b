"""Azure's LLM inference traces (Patel et al., Splitwise, ISCA 2024)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dspark_sim.workload.importers.common import requests
from dspark_sim.workload.importers.registry import importer
from dspark_sim.workload.tables import NumberTable
from dspark_sim.workload.workloads import Workload

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@importer("azure2023", gives="workload", file="AzureLLMInferenceTrace_{conv,code}.csv")
def azure2023(path: Path) -> Workload:
    """Read a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens.

    Raises:
        DataError: a column is missing or unknown, a cell is no time or no whole number.
    """
    import pandas as pd

    table = NumberTable(path, text=["TIMESTAMP"])
    table.check_columns(_COLUMNS, _COLUMNS)
    written = np.array(table.strings("TIMESTAMP"), dtype=object)
    stamps = pd.to_datetime(pd.Series(written), format="ISO8601", errors="coerce", utc=True)
    table.refuse_where("TIMESTAMP", written, stamps.isna().to_numpy(), "not a date and time")
    seconds = np.asarray((stamps - stamps.min()).dt.total_seconds(), dtype=np.float64)
    return requests(
        path,
        "azure2023",
        prompt_tokens=table.integers("ContextTokens", least=0),
        output_tokens=table.integers("GeneratedTokens", least=0),
        arrival_s=seconds,
    )
