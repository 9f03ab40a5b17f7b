"""Mooncake's traces (Qin et al., FAST 2025): JSON Lines with block hashes of the prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

from dspark_sim.errors import DataError
from dspark_sim.schema import FloatArray, IntArray
from dspark_sim.workload.arrivals import batch_sizes, spread_batches
from dspark_sim.workload.importers.common import requests
from dspark_sim.workload.importers.documents import documents, whole_number
from dspark_sim.workload.importers.registry import importer
from dspark_sim.workload.tables import PARQUET
from dspark_sim.workload.workloads import Workload, read_workload

#: Tokens of a prompt that one hash stands for.
BLOCK_TOKENS = 512
_LENGTHS = {"timestamp": 0, "input_length": 0, "output_length": 0}


@importer("mooncake", gives="workload", file="*_trace.jsonl, or a request table quantised in time")
def mooncake(
    path: Path, *, spread_s: Annotated[float, Ge(0)] = 3.0, seed: Annotated[int, Ge(0)] = 0
) -> Workload:
    """Read lines with timestamp [ms], input_length, output_length and hash_ids.

    The clock of the conversation trace ticks about every 3 s. Requests of one instant are spread
    uniformly over ``spread_s`` seconds (up to the next instant at most); 0 leaves them as they are.
    ``cached_prefix_tokens`` counts the leading 512-token blocks seen earlier in the file: what a
    prefix cache without limit would hold.

    Raises:
        DataError: a line is not JSON, or lacks a number.
    """
    if path.suffix == PARQUET:
        table = read_workload(path)
        arrival, cached = table.arrivals, table.cached_prefix_tokens_Q
        prompt, output = table.prompt_tokens_Q, table.output_tokens_Q
    else:
        arrival, prompt, output, cached = _read_lines(path)
    together = int(batch_sizes(arrival).max())
    notes = [f"up to {together} requests share an instant"]
    if spread_s:
        # Only what is in order can be spread up to the next instant; the table sorts again, stably.
        order = np.argsort(arrival, kind="stable")
        arrival, prompt, output = spread_batches(arrival[order], spread_s, seed), prompt[order], output[order]
        cached = None if cached is None else cached[order]
        notes.append(f"requests of one instant spread uniformly over {spread_s:g} s, seed {seed}")
    return requests(
        path,
        "mooncake",
        prompt_tokens=prompt,
        output_tokens=output,
        arrival_s=arrival,
        cached_prefix_tokens=cached,
        notes=notes,
    )


def _read_lines(path: Path) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
    rows, hashes = [], []
    for place, line in documents(path):
        if not isinstance(line, dict):
            raise DataError(path, place, "must be a JSON object")
        rows.append([whole_number(path, place, line, key, least) for key, least in _LENGTHS.items()])
        hashes.append(_hash_ids(path, place, line))
    if not rows:
        raise DataError(path, "", "holds no request")
    timestamp_ms, prompt, output = np.array(rows, dtype=np.int64).T
    return timestamp_ms / 1000.0, prompt, output, cached_prefix(hashes, prompt)


def _hash_ids(path: Path, place: str, line: dict[str, Any]) -> list[Any]:
    hashes = line.get("hash_ids", [])
    if not isinstance(hashes, list):
        raise DataError(path, f"{place}, key 'hash_ids'", "must be a list of block hashes")
    return hashes


def cached_prefix(hashes: list[list[Any]], prompt_tokens_Q: IntArray) -> IntArray:
    """Return the prompt tokens [Q] that a cache without limit holds: leading blocks seen before.

    Args:
        hashes: block hashes of each prompt, in order of arrival.
        prompt_tokens_Q: prompt lengths; the last block of a prompt may be shorter than the others.
    """
    seen: set[Any] = set()
    blocks = np.zeros(len(hashes), dtype=np.int64)
    for q, ids in enumerate(hashes):
        blocks[q] = next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
    cached: IntArray = np.minimum(blocks * BLOCK_TOKENS, prompt_tokens_Q)
    return cached
