"""Logs of rounds: what really happened, request by request, live or in a replay.

A log cannot be replayed under another policy (only a dense trace can); it is there to be compared.
Shape legend: M rounds, G = gamma.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import DataError
from dspark_sim.files import atomic_path
from dspark_sim.schema import IntArray

META_KEY = b"dspark_sim_rounds"
_COUNTS = ("anchor", "verify_len", "accepted")


@dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds in the order in which they ran.

    Attributes:
        meta: how the log was made.
        request_id: ``<prompt id>#<sample>`` of each round [M].
        anchor_M: output position of the anchor, 0 is the token of prefill.
        verify_len_M: draft tokens verified.
        accepted_M: those accepted, never past the end of the text.
        confidence_logit_MG: raw logits of the whole block, float16 as in traces.
    """

    meta: dict[str, Any]
    request_id: list[str]
    anchor_M: IntArray
    verify_len_M: IntArray
    accepted_M: IntArray
    confidence_logit_MG: NDArray[np.float16]

    def __len__(self) -> int:
        """Return M."""
        return len(self.request_id)

    @property
    def prompt_key(self) -> list[str]:
        """Prompt of each round."""
        return [name.rpartition("#")[0] for name in self.request_id]

    def take(self, rows: NDArray[Any]) -> Rounds:
        """Return the rounds of ``rows`` (indices or a mask [M]), in that order."""
        index = np.arange(len(self))[rows]
        return Rounds(
            meta=self.meta,
            request_id=[self.request_id[row] for row in index],
            anchor_M=self.anchor_M[index],
            verify_len_M=self.verify_len_M[index],
            accepted_M=self.accepted_M[index],
            confidence_logit_MG=self.confidence_logit_MG[index],
        )


def merge(parts: Sequence[Rounds]) -> Rounds:
    """Return the rounds of several logs as one, under the first one's metadata."""
    return Rounds(
        meta=parts[0].meta,
        request_id=[name for part in parts for name in part.request_id],
        anchor_M=np.concatenate([part.anchor_M for part in parts]),
        verify_len_M=np.concatenate([part.verify_len_M for part in parts]),
        accepted_M=np.concatenate([part.accepted_M for part in parts]),
        confidence_logit_MG=np.concatenate([part.confidence_logit_MG for part in parts]),
    )


def write_rounds(path: str | os.PathLike[str], rounds: Rounds) -> None:
    """Write a log as parquet, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    gamma = rounds.confidence_logit_MG.shape[1]
    logits = pa.FixedSizeListArray.from_arrays(pa.array(rounds.confidence_logit_MG.ravel()), gamma)
    columns = {name: pa.array(getattr(rounds, f"{name}_M"), pa.int32()) for name in _COUNTS}
    table = pa.table({"request_id": rounds.request_id, **columns, "confidence_logit": logits})
    document = json.dumps(rounds.meta, sort_keys=True).encode()
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata({META_KEY: document}), temporary, compression="zstd")


def read_rounds(path: str | os.PathLike[str]) -> Rounds:
    """Read what ``write_rounds`` wrote.

    Raises:
        DataError: no such file, or not a log of rounds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path).combine_chunks()
        meta = json.loads((table.schema.metadata or {})[META_KEY])
        logits = table["confidence_logit"].combine_chunks()
        block = logits.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)
        anchor, verify_len, accepted = (table[name].to_numpy().astype(np.int64) for name in _COUNTS)
        return Rounds(meta, table["request_id"].to_pylist(), anchor, verify_len, accepted, block)
    except FileNotFoundError:
        raise DataError(path, "", "no such file") from None
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise DataError(path, "", f"not a log of rounds ({str(error).splitlines()[0]})") from None
