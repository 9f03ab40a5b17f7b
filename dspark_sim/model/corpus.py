"""Generated texts on disk, with or without the target features that training needs.

A corpus is a folder of shards (safetensors, written atomically, never changed): a killed run loses
at most the shard it was filling. A shard holds, for its texts one after the other,

    ids         int32 [tokens]       prompt then response
    offsets     int64 [texts + 1]    where each text starts in ``ids``
    prompt_len  int32 [texts]
    taps        float16 [fed, m, d]  tapped layers, RMS-normalised per token where the metadata says so
    hidden      float16 [fed, d]     after the final norm
    lse         float32 [fed]        log sum exp(logits / temperature), NaN inside the prompt

where a text's *fed* tokens are all but its last (nothing was ever predicted from that one). The
metadata key ``corpus`` holds JSON: prompt_id, domain and sample per text, seed, temperature, taps,
normalize_taps, target.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dspark_sim.errors import DataError
from dspark_sim.files import atomic_path


@dataclass(frozen=True, slots=True)
class Features:
    """What the target computed on the fed tokens of one text (F of them).

    Attributes:
        taps_Fmd: float16.
        hidden_Fd: float16.
        lse_F: float32 log-normaliser at the corpus temperature.
    """

    taps_Fmd: Tensor
    hidden_Fd: Tensor
    lse_F: Tensor


@dataclass(frozen=True, slots=True)
class Text:
    """One sampled answer.

    Attributes:
        prompt_id, domain, sample: which prompt, and the how-manieth answer to it (from 0).
        prompt_len: tokens of the prompt, chat template included.
        ids: int32, prompt then response (the end token included where it was drawn).
        features: None in a corpus without them.
    """

    prompt_id: str
    domain: str
    sample: int
    prompt_len: int
    ids: np.ndarray
    features: Features | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What makes a text unique in a corpus."""
        return self.prompt_id, self.sample

    @property
    def response_len(self) -> int:
        """Output tokens."""
        return len(self.ids) - self.prompt_len


@dataclass(frozen=True, slots=True)
class CorpusInfo:
    """How the texts of a corpus were made; equal for all its shards."""

    target: str
    temperature: float
    seed: int
    max_new_tokens: int
    taps: tuple[int, ...] | None = None
    normalize_taps: bool = True


class ShardWriter:
    """Collects texts and writes a shard whenever ``texts_per_shard`` are there."""

    def __init__(
        self, folder: str | os.PathLike[str], info: CorpusInfo, worker: int, texts_per_shard: int
    ) -> None:
        self.folder = Path(folder)
        self.info = info
        self.worker = worker
        self.texts_per_shard = texts_per_shard
        self._pending: list[Text] = []

    def add(self, text: Text) -> None:
        """Take one text; writes a shard when enough are there."""
        self._pending.append(text)
        if len(self._pending) >= self.texts_per_shard:
            self.flush()

    def flush(self) -> None:
        """Write what is pending, if anything."""
        if not self._pending:
            return
        number = len(list(self.folder.glob(f"shard-{self.worker:02d}-*.safetensors")))
        write_shard(
            self.folder / f"shard-{self.worker:02d}-{number:05d}.safetensors", self.info, self._pending
        )
        self._pending = []


def write_shard(path: Path, info: CorpusInfo, texts: Sequence[Text]) -> None:
    """Write one shard atomically."""
    ids = [torch.from_numpy(text.ids.astype(np.int32)) for text in texts]
    ends = np.cumsum([0] + [len(text.ids) for text in texts])
    tensors = {
        "ids": torch.cat(ids),
        "offsets": torch.from_numpy(ends.astype(np.int64)),
        "prompt_len": torch.tensor([text.prompt_len for text in texts], dtype=torch.int32),
    }
    features = [text.features for text in texts if text.features is not None]
    if features:
        assert len(features) == len(texts)
        tensors["taps"] = torch.cat([f.taps_Fmd for f in features])
        tensors["hidden"] = torch.cat([f.hidden_Fd for f in features])
        tensors["lse"] = torch.cat([f.lse_F for f in features])
    meta: dict[str, Any] = {"info": asdict(info), "texts": [[t.prompt_id, t.domain, t.sample] for t in texts]}
    with atomic_path(path) as temporary:
        save_file(tensors, str(temporary), metadata={"corpus": json.dumps(meta)})


class Shard:
    """One shard opened for reading; tensors are mapped, so a text costs what it reads."""

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            DataError: not a shard.
        """
        try:
            opened: Any = safe_open(str(path), framework="pt")
            meta = json.loads(opened.metadata()["corpus"])
            self.offsets: list[int] = opened.get_tensor("offsets").tolist()
            self.prompt_len: list[int] = opened.get_tensor("prompt_len").tolist()
        except Exception as error:
            raise DataError(path, "", f"not a corpus shard ({error})") from None
        self._file = opened
        self.path = path
        self.keys: list[tuple[str, str, int]] = [(p, d, int(s)) for p, d, s in meta["texts"]]
        raw = meta["info"]
        raw["taps"] = tuple(raw["taps"]) if raw["taps"] is not None else None
        self.info = CorpusInfo(**raw)

    def __len__(self) -> int:
        """Texts in the shard."""
        return len(self.keys)

    def text(self, n: int, *, features: bool = True) -> Text:
        """Return text ``n``, with its features where the shard has them and ``features`` is set."""
        start, end = self.offsets[n], self.offsets[n + 1]
        prompt_id, domain, sample = self.keys[n]
        ids = self._file.get_slice("ids")[start:end].numpy()
        loaded = self._features(start - n, end - n - 1) if features and self.info.taps is not None else None
        return Text(prompt_id, domain, sample, self.prompt_len[n], ids, loaded)

    def _features(self, first: int, last: int) -> Features:
        # Each earlier text has one fed token less than tokens, hence the shifted offsets.
        taps, hidden, lse = (self._file.get_slice(k)[first:last] for k in ("taps", "hidden", "lse"))
        return Features(taps, hidden, lse)


def shards(folder: str | os.PathLike[str]) -> list[Shard]:
    """Open all shards of a corpus, in the order of their names."""
    return [Shard(path) for path in sorted(Path(folder).glob("shard-*.safetensors"))]


def done_keys(folder: str | os.PathLike[str]) -> set[tuple[str, int]]:
    """(prompt_id, sample) of every text that the corpus holds already."""
    return {(p, s) for shard in shards(folder) for p, _, s in shard.keys}


def texts(folder: str | os.PathLike[str]) -> Iterator[Text]:
    """All texts of a corpus without features."""
    for shard in shards(folder):
        for n in range(len(shard)):
            yield shard.text(n, features=False)


def export_texts(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], *, domain: str | None = None
) -> int:
    """Write the texts of a corpus (of one ``domain``) as one parquet of token ids; return how many.

    Columns: prompt_id, domain, sample (int32), prompt_tokens (int32), ids (list<int32>, prompt
    then response). The metadata key ``corpus`` holds the corpus information as JSON.
    """
    opened = shards(folder)
    if not opened:
        raise DataError(folder, "", "holds no corpus shard")
    wanted = (text for text in texts(folder) if domain in (None, text.domain))
    rows = sorted(wanted, key=lambda t: (t.domain, t.prompt_id, t.sample))
    table = pa.table(
        {
            "prompt_id": pa.array([t.prompt_id for t in rows], pa.string()),
            "domain": pa.array([t.domain for t in rows], pa.string()),
            "sample": pa.array([t.sample for t in rows], pa.int32()),
            "prompt_tokens": pa.array([t.prompt_len for t in rows], pa.int32()),
            "ids": pa.array([t.ids for t in rows], pa.list_(pa.int32())),
        }
    ).replace_schema_metadata({"corpus": json.dumps(asdict(opened[0].info))})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    return len(rows)


def read_texts(path: str | os.PathLike[str]) -> tuple[CorpusInfo, list[Text]]:
    """Read what ``export_texts`` wrote.

    Raises:
        DataError: not such a file.
    """
    try:
        table = pq.read_table(path)
        raw = json.loads((table.schema.metadata or {})[b"corpus"])
        raw["taps"] = tuple(raw["taps"]) if raw["taps"] is not None else None
        rows = table.to_pylist()
        found = [
            Text(r["prompt_id"], r["domain"], r["sample"], r["prompt_tokens"], np.array(r["ids"], np.int32))
            for r in rows
        ]
    except FileNotFoundError:
        raise DataError(path, "", "no such file") from None
    except (pa.ArrowInvalid, KeyError, TypeError) as error:
        raise DataError(path, "", f"not a parquet of generated texts ({error})") from None
    return CorpusInfo(**raw), found
