"""Rounds of drafters on texts: expected full-block replays, prompt by prompt, kept on disk as they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.files import write_text
from dspark_sim.model.checkpoints import checkpoint_hash, drafter_folder, load_drafter
from dspark_sim.model.corpus import CorpusInfo, Text, read_texts
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.evaluate import DraftQuality, text_quality
from dspark_sim.model.features import text_features
from dspark_sim.model.loading import load_target, read_json
from dspark_sim.model.target import Target
from dspark_sim.study.subjects import Subject
from dspark_sim.study.tally import Tally


class Evaluator:
    """Evaluates drafters of one target on the same texts; results are cached by checkpoint and texts."""

    def __init__(self, texts: Sequence[str], target: str, per_domain: int, cache: Path) -> None:
        """Read the texts.

        Args:
            texts: parquet files of texts (``generate --export``), all at one temperature.
            target: name or path of the target.
            per_domain: texts of each domain, one a prompt as far as possible.
            cache: folder of finished evaluations.

        Raises:
            InputError: files of different temperatures, or texts of temperature 0.
        """
        self._chosen: list[Text] = []
        infos: list[CorpusInfo] = []
        for path in texts:
            info, found = read_texts(path)
            infos.append(info)
            self._chosen += _first_of_prompts(found, per_domain)
        temperatures = {info.temperature for info in infos}
        if len(temperatures) != 1 or 0.0 in temperatures:
            raise InputError(f"--texts: one temperature above 0 is needed, these have {sorted(temperatures)}")
        self.info = infos[0]
        self.cache = cache
        self._target_name = target
        self._target: Target | None = None
        self._features: dict[tuple[str, int], Text] = {}

    @property
    def texts(self) -> int:
        """Texts that each drafter is evaluated on."""
        return len(self._chosen)

    @property
    def target(self) -> Target:
        """The target, loaded when it is first needed."""
        if self._target is None:
            self._target = load_target(self._target_name)
        return self._target

    def load(self, folder: str) -> Drafter:
        """Load a drafter, bound to the target."""
        return load_drafter(folder, self.target)

    def tally(self, folder: str, on_text: Callable[[int], None] | None = None) -> Tally:
        """Return the expected rounds of the drafter in ``folder``, from the cache if they are there."""
        path = self.cache / f"{checkpoint_hash(folder)}-{self._key()}.json"
        if path.is_file():
            return _read(path)
        drafter = self.load(folder)
        found: dict[tuple[str, str], DraftQuality] = {}
        for text in self._chosen:
            key = (text.prompt_id, text.domain)
            quality = text_quality(drafter, self._with_features(text, drafter), self.info.temperature)
            found[key] = found[key] + quality if key in found else quality
            if on_text is not None:
                on_text(1)
        tally = _tally(found)
        self.cache.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(_document(tally)))
        return tally

    def _with_features(self, text: Text, drafter: Drafter) -> Text:
        """Target features of a text; kept, since all drafters of a target usually tap the same layers."""
        from dataclasses import replace

        known = self._features.get(text.key)
        if known is None:
            info = replace(self.info, taps=drafter.config.target_layer_ids)
            known = replace(text, features=text_features(self.target, info, [text])[0])
            self._features[text.key] = known
        return known

    def _key(self) -> str:
        names = "\n".join(f"{text.prompt_id}#{text.sample}" for text in self._chosen)
        return hashlib.sha256(f"{self.info}\n{names}".encode()).hexdigest()[:12]


def _first_of_prompts(texts: Sequence[Text], per_domain: int) -> list[Text]:
    """The first sample of each prompt, then the second, ...: ``per_domain`` texts of each domain."""
    ordered = sorted(texts, key=lambda t: (t.sample, hashlib.sha256(t.prompt_id.encode()).digest()))
    kept: list[Text] = []
    counts: dict[str, int] = {}
    for text in (t for t in ordered if t.response_len >= 2):
        counts[text.domain] = counts.get(text.domain, 0) + 1
        if counts[text.domain] <= per_domain:
            kept.append(text)
    return kept


def subject_of(folder: str, name: str = "") -> Subject:
    """Describe a drafter by its config.json."""
    where = drafter_folder(folder)
    raw = read_json(where / "config.json")
    drafter = load_drafter(folder)
    training: dict[str, Any] = raw.get("training", {})
    config = drafter.config
    return Subject(
        name=name or where.name,
        kind=config.kind,
        gamma=config.gamma,
        layers=config.num_layers,
        head=config.head,
        anchors=training.get("anchors"),
        source=str(folder),
        checkpoint=checkpoint_hash(folder),
    )


def _tally(found: dict[tuple[str, str], DraftQuality]) -> Tally:
    keys = sorted(found)
    return Tally(
        tuple(prompt for prompt, _ in keys),
        tuple(domain for _, domain in keys),
        np.array([found[key].rounds for key in keys]),
        np.array([float(found[key].tokens) for key in keys]),
        np.array([found[key].reached_G for key in keys]),
        np.array([found[key].accepted_G for key in keys]),
    )


def _document(tally: Tally) -> dict[str, Any]:
    arrays = ("rounds_K", "committed_K", "reached_KG", "accepted_KG")
    lists = {name: getattr(tally, name).tolist() for name in arrays}
    return {"prompts": list(tally.prompts), "domains": list(tally.domains), **lists}


def _read(path: Path) -> Tally:
    raw = read_json(path)
    arrays = (np.array(raw[name]) for name in ("rounds_K", "committed_K", "reached_KG", "accepted_KG"))
    return Tally(tuple(raw["prompts"]), tuple(raw["domains"]), *arrays)
