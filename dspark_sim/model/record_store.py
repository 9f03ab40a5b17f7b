"""Recordings on disk while they grow, and their way into a trace file.

A recording folder holds one ``.npz`` per request, written atomically, and ``settings.json``: a killed
run loses at most the request it was at, several processes may fill one folder, and a folder that was
begun with other settings is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import DataError, InputError
from dspark_sim.files import atomic_path, write_text
from dspark_sim.model.corpus import Text
from dspark_sim.model.record import DrafterRecord, request_id
from dspark_sim.schema import DraftKind
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.traces import DrafterTrace, Trace, offsets

_FIELDS = DrafterRecord.__slots__


class RecordingFolder:
    """The finished requests of one recording."""

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        """Open or begin ``folder`` for ``settings`` (JSON; everything that the numbers depend on).

        Raises:
            InputError: it was begun with other settings; the line names the first that differs.
        """
        self.folder = Path(folder)
        wanted = json.loads(json.dumps(settings))
        file = self.folder / "settings.json"
        if file.is_file():
            self._compare(json.loads(file.read_text(encoding="utf-8")), wanted)
        else:
            write_text(file, json.dumps(wanted, indent=2, sort_keys=True) + "\n")

    def _compare(self, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        for key in sorted(found.keys() | wanted.keys()):
            if found.get(key) != wanted.get(key):
                raise InputError(
                    f"{self.folder}: begun with {key} = {found.get(key)!r}, now {wanted.get(key)!r}; "
                    "finish it with its own settings, or remove the folder"
                )

    def path(self, text: Text) -> Path:
        """File of one request."""
        name = hashlib.sha256(request_id(text).encode()).hexdigest()[:20]
        return self.folder / f"{name}.npz"

    def has(self, text: Text) -> bool:
        """Whether the request is recorded."""
        return self.path(text).is_file()

    def write(self, text: Text, records: Mapping[str, DrafterRecord]) -> None:
        """Store one request."""
        arrays: dict[str, Any] = {"ids": text.ids}
        for name, record in records.items():
            present = {field: getattr(record, field) for field in _FIELDS}
            arrays |= {f"{name}.{field}": value for field, value in present.items() if value is not None}
        with atomic_path(self.path(text)) as temporary:
            np.savez(temporary, **arrays)

    def read(self, text: Text, drafters: Sequence[str]) -> dict[str, DrafterRecord]:
        """Return one request's records.

        Raises:
            DataError: the file is damaged, or it holds another text of that name.
        """
        path = self.path(text)
        try:
            with np.load(path, allow_pickle=False) as stored:
                if not np.array_equal(stored["ids"], text.ids):
                    raise DataError(path, request_id(text), "recorded from another text; remove the folder")
                rows = {name: [stored.get(f"{name}.{field}") for field in _FIELDS] for name in drafters}
                return {name: DrafterRecord(*row) for name, row in rows.items()}
        except (OSError, ValueError, KeyError) as error:
            if isinstance(error, InputError):
                raise
            raise DataError(path, request_id(text), f"damaged ({error}); remove the file") from None


def build_trace(
    name: str,
    meta: Mapping[str, Any],
    texts: Sequence[Text],
    records: Sequence[Mapping[str, DrafterRecord]],
) -> Trace:
    """Lay recorded requests out as a trace.

    Args:
        name: label of the trace.
        meta: the metadata document, drafters included.
        texts: one a request, in the order of the trace.
        records: theirs, by drafter.
    """
    length = np.array([text.response_len for text in texts], dtype=np.int64)
    return Trace(
        name=name,
        meta=dict(meta),
        request_id=[request_id(text) for text in texts],
        domain=[text.domain for text in texts],
        prompt_tokens_Q=np.array([text.prompt_len for text in texts], dtype=np.int64),
        output_tokens_Q=length,
        arrival_s_Q=None,
        offset_Q1=offsets(length),
        drafters={
            drafter: _drafter_trace(drafter, info["kind"], info["gamma"], [r[drafter] for r in records])
            for drafter, info in meta["drafters"].items()
        },
    )


def _drafter_trace(name: str, kind: DraftKind, gamma: int, records: Sequence[DrafterRecord]) -> DrafterTrace:
    def joined(field: str) -> NDArray[Any] | None:
        parts = [getattr(record, field) for record in records]
        return None if parts[0] is None else np.concatenate(parts)

    return DrafterTrace(
        name=name,
        kind=kind,
        gamma=gamma,
        accepted_N=np.concatenate([record.accepted_N for record in records]),
        confidence_logit_NG=joined("confidence_logit_NG"),
        confidence_logit_free_NG=joined("confidence_logit_free_NG"),
        accept_rate_NG=joined("accept_rate_NG"),
        calibration=Calibration.identity(gamma),
    )
