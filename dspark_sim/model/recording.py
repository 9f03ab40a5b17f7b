"""From texts, or prompts, to a trace or a log of live rounds: what ``dspark-sim record`` does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim import __version__
from dspark_sim.errors import InputError
from dspark_sim.model.checkpoints import checkpoint_hash, load_drafter
from dspark_sim.model.corpus import CorpusInfo, Text, read_texts, shards, texts
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.live import LiveDecoder, LiveSettings, decode_live
from dspark_sim.model.prompts import TokenPrompt
from dspark_sim.model.record import Recorder
from dspark_sim.model.record_store import RecordingFolder, build_trace
from dspark_sim.model.target import Target
from dspark_sim.rng import stream
from dspark_sim.schema import TRACE_FORMAT
from dspark_sim.workload.rounds import Rounds
from dspark_sim.workload.traces import Trace


@dataclass(frozen=True, slots=True)
class NamedDrafter:
    """A drafter, the name it gets in the trace, and the hash of the checkpoint it came from."""

    name: str
    drafter: Drafter
    checkpoint: str

    @property
    def meta(self) -> dict[str, Any]:
        """What the trace says about it, the sampling mode left out."""
        config = self.drafter.config
        return {
            "kind": config.kind,
            "gamma": config.gamma,
            "layers": config.num_layers,
            "head": config.head,
            "checkpoint": self.checkpoint,
        }


def load_named(words: Sequence[str], target: Target) -> list[NamedDrafter]:
    """Load drafters from words ``NAME=FOLDER`` or ``FOLDER`` (then named after their kind).

    Raises:
        InputError: a name twice, or a folder that holds no drafter.
    """
    found: dict[str, NamedDrafter] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        folder = folder if equals else word
        drafter = load_drafter(folder, target)
        name = name if equals else drafter.config.kind
        if name in found or not name or "." in name:
            raise InputError(f"--drafter {word}: name '{name}' is taken, empty or dotted; give NAME=FOLDER")
        found[name] = NamedDrafter(name, drafter, checkpoint_hash(folder))
    return list(found.values())


def open_texts(source: str | os.PathLike[str]) -> tuple[CorpusInfo, list[Text]]:
    """Read generated texts: a corpus folder, or the parquet exported from one.

    Raises:
        DataError: neither.
    """
    opened = shards(source) if Path(source).is_dir() else []
    return (opened[0].info, list(texts(source))) if opened else read_texts(source)


def choose_texts(found: Sequence[Text], domain: str, requests: int | None) -> list[Text]:
    """Return texts of ``domain`` (empty: all), the same number per prompt as far as ``requests`` goes.

    Samples of one prompt stand together, so that the recorder reads their prompt once.

    Raises:
        InputError: none is left.
    """
    kept = [text for text in found if domain in ("", text.domain)]
    if not kept:
        known = ", ".join(sorted({text.domain for text in found}))
        raise InputError(f"no text of domain '{domain}'; there are: {known or 'no texts at all'}")
    kept = sorted(kept, key=lambda text: (text.sample, text.domain, text.prompt_id))[:requests]
    return sorted(kept, key=lambda text: (text.domain, text.prompt_id, text.sample))


@dataclass(frozen=True, slots=True)
class RecordProgress:
    """Requests and anchors recorded so far by this process, and the requests it was given."""

    requests: int
    anchors: int
    total: int


def record_texts(
    recorder: Recorder,
    folder: RecordingFolder,
    chosen: Sequence[Text],
    *,
    part: tuple[int, int] = (0, 1),
    on_progress: Callable[[RecordProgress], None] | None = None,
) -> int:
    """Record every text of ``chosen`` that ``folder`` lacks; return the anchors recorded by this call.

    Several processes may share a folder: ``part`` (i, n) takes every n-th prompt, from the i-th.
    """
    prompts = sorted({text.prompt_id for text in chosen})
    mine = set(prompts[part[0] :: part[1]])
    todo = [text for text in chosen if text.prompt_id in mine and not folder.has(text)]
    anchors = 0
    for done, text in enumerate(todo, 1):
        if not folder.has(text):  # another process may have been here since
            folder.write(text, recorder.record(text))
            anchors += text.response_len
        if on_progress is not None:
            on_progress(RecordProgress(done, anchors, len(todo)))
    return anchors


def recording_settings(
    recorder: Recorder, info: CorpusInfo, drafters: Sequence[NamedDrafter]
) -> dict[str, Any]:
    """Everything that recorded numbers depend on, but the texts themselves."""
    return {
        "target": info.target,
        "dtype": str(recorder.target.dtype).removeprefix("torch."),
        "device": recorder.target.device.type,
        "temperature": recorder.temperature,
        "top_p": recorder.top_p,
        "seed": recorder.seed,
        "drafters": {d.name: d.meta for d in drafters},
        "recorder": __version__,
    }


def assemble(
    name: str,
    folder: RecordingFolder,
    chosen: Sequence[Text],
    *,
    settings: Mapping[str, Any],
    info: CorpusInfo,
    source: str,
) -> Trace:
    """Build the trace of ``chosen``, all of which ``folder`` holds.

    Args:
        name: label of the trace.
        folder: the finished recording.
        chosen: in the order of the trace.
        settings: from ``recording_settings``.
        info: how the texts were generated.
        source: where the prompts come from, in words.
    """
    sampling = "sample" if settings["temperature"] > 0 else "argmax"
    names = list(settings["drafters"])
    meta = {
        "format": TRACE_FORMAT,
        "target": info.target,
        "synthetic": False,
        "made": (
            f"recorded from the real pair at every output position; text sampled from the target at "
            f"temperature {info.temperature:g}, drafts drawn given the text"
        ),
        "temperature": settings["temperature"],
        "seed": settings["seed"],
        "dtype": settings["dtype"],
        "device": settings.get("device", "cpu"),
        "prompt_source": source,
        "recorder": f"dspark-sim {settings['recorder']}",
        "drafters": {n: {**meta, "sampling": sampling} for n, meta in settings["drafters"].items()},
        "notes": {
            "top_p": settings["top_p"],
            "max_new_tokens": info.max_new_tokens,
            "text_seed": info.seed,
            "prompts": len({text.prompt_id for text in chosen}),
            "accept_rate": "1 - TV up to position accepted + 1; 0 past it, where the target was not asked",
            "versions": {package: _version(package) for package in ("torch", "numpy")},
        },
    }
    return build_trace(name, meta, chosen, [folder.read(text, names) for text in chosen])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # e.g. a vendor's build of torch under another name
        return "unknown"


def live_rounds(
    target: Target,
    drafter: NamedDrafter,
    prompts: Sequence[TokenPrompt],
    settings: LiveSettings,
    *,
    passes: int,
    meta: Mapping[str, Any],
    on_progress: Callable[[int], None] | None = None,
) -> list[Rounds]:
    """Decode each prompt once a pass, in shuffled order; one log per pass.

    ``on_progress`` is told the rounds of every step.
    """
    longest = max(len(prompt.ids) for prompt in prompts)
    logs = []
    for sample in range(passes):
        order = stream(settings.seed, "live order", sample).permutation(len(prompts))
        requests = [(prompts[n], sample) for n in order]
        decoder = LiveDecoder(target, drafter.drafter, settings, longest)
        logs.append(decode_live(decoder, requests, dict(meta), on_progress))
    return logs


def prompts_of(
    trace: Trace, prompts: Sequence[TokenPrompt], count: int | None, seed: int
) -> list[TokenPrompt]:
    """Return the prompts that ``trace`` has texts of, or ``count`` of them drawn at random.

    Raises:
        InputError: there is none.
    """
    known = set(trace.prompt_key)
    found = [prompt for prompt in prompts if prompt.prompt_id in known]
    if not found:
        raise InputError(f"trace '{trace.name}' holds no text of any of these prompts")
    if count is None or count >= len(found):
        return found
    picked = np.sort(stream(seed, "live prompts").permutation(len(found))[:count])
    return [found[n] for n in picked]
