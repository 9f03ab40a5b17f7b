"""``dspark-sim evaluate``: drafters against each other on texts of the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark_sim.cli.generate import DRAFTER, TARGET, load_on

if TYPE_CHECKING:
    from dspark_sim.model.corpus import CorpusInfo, Text


def evaluate(
    texts: Annotated[
        list[Path],
        typer.Argument(help="Texts of the target: corpus folders, or parquets exported from them."),
    ],
    *,
    drafter: Annotated[
        list[str] | None, typer.Option(help="FOLDER, shipped name, or NAME=FOLDER; repeats.")
    ] = None,
    target: Annotated[str, typer.Option(help="Target model: a name or a folder.")] = TARGET,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Only prompts that training keeps for validation.")
    ] = False,
    per_domain: Annotated[int | None, typer.Option(min=1, help="Texts of each domain; default: all.")] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Resamples of prompts, for the intervals.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, or cuda (weights and products in bfloat16).")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads.")] = 1,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Give accepted length by domain and conditional acceptance by position of drafters on the same texts.

    Exact expectations of full-block replay, no sampling of drafts; 95% intervals from resampling prompts.
    In a pipe it says nothing until its end.

    Example: dspark-sim evaluate texts.parquet --held-out --drafter dspark=a --drafter dflash=b
    """
    from dspark_sim.cli.common import print_json, progress
    from dspark_sim.model import recording
    from dspark_sim.model.comparison import compare, score_texts
    from dspark_sim.model.runtime import use_threads

    use_threads(threads)
    info, found = _open(texts)
    chosen = _choose(found, held_out, per_domain)
    loaded = load_on(target, device)
    drafters = recording.load_named(drafter or [DRAFTER], loaded)
    with progress(len(chosen), "evaluating") as advance:
        scores = score_texts(loaded, {d.name: d.drafter for d in drafters}, info, chosen, advance)
    document = compare(scores, resamples, seed)
    for d in drafters:
        document["drafters"][d.name]["checkpoint"] = d.checkpoint
    document |= {
        "texts": [str(path) for path in texts],
        "held_out": held_out,
        "temperature": info.temperature,
    }
    if json_out:
        print_json(document)
    else:
        _print(document)


def _open(paths: Sequence[Path]) -> tuple[CorpusInfo, list[Text]]:
    """Return all texts, and how they were made.

    Raises:
        InputError: they differ in target or temperature.
    """
    from dspark_sim.errors import InputError
    from dspark_sim.model.recording import open_texts

    opened = [open_texts(path) for path in paths]
    info = opened[0][0]
    for path, (other, _) in zip(paths, opened, strict=True):
        if (other.target, other.temperature) != (info.target, info.temperature):
            raise InputError(
                f"{path}: texts of {other.target} at temperature {other.temperature:g}, but {paths[0]} holds "
                f"those of {info.target} at {info.temperature:g}; evaluate them one by one"
            )
    return info, [text for _, found in opened for text in found]


def _choose(found: Sequence[Text], held_out: bool, per_domain: int | None) -> list[Text]:
    """Return the texts asked for; of each domain the first by hash of the prompt, whole prompts together."""
    from dspark_sim.errors import InputError
    from dspark_sim.model.trainer import TrainConfig
    from dspark_sim.model.trainset import is_held_out, prompt_order

    percent = TrainConfig().held_out_percent
    kept = [text for text in found if not held_out or is_held_out(text.prompt_id, percent)]
    if not kept:
        raise InputError("evaluate: none of these texts is of a held-out prompt; leave --held-out away")
    kept.sort(key=lambda text: (text.domain, text.sample, prompt_order(text.prompt_id)))
    counts: dict[str, int] = {}
    chosen = []
    for text in kept:
        counts[text.domain] = counts.get(text.domain, 0) + 1
        if per_domain is None or counts[text.domain] <= per_domain:
            chosen.append(text)
    return chosen


def _print(document: Mapping[str, Any]) -> None:
    from dspark_sim.results.tables import text_table

    domains = list(document["prompts"])
    lengths = {"drafter": "<", **dict.fromkeys(domains, ">"), "mean": ">"}
    print("accepted length [tokens/round] with 95% intervals")
    rows = []
    for name, found in document["drafters"].items():
        cells = {domain: _words(found["domains"][domain]["accepted_len"]) for domain in domains}
        rows.append({"drafter": name, **cells, "mean": _words(found["mean"])})
    print(text_table(lengths, rows))
    print("\nconditional acceptance by position, all domains")
    gamma = max(len(found["conditional"]) for found in document["drafters"].values())
    columns = {"drafter": "<", **{str(j + 1): ">" for j in range(gamma)}, "change a position": ">"}
    rows = []
    for name, found in document["drafters"].items():
        cells = {str(j + 1): f"{one['value']:.3f}" for j, one in enumerate(found["conditional"])}
        rows.append({"drafter": name, **cells, "change a position": _words(found["slope"], "+.4f")})
    print(text_table(columns, [dict.fromkeys(columns, "") | row for row in rows]))
    first = next(iter(document["drafters"]))
    for name, gain in document["against_first"].items():
        print(f"\n{first} over {name}: {_words(gain, '+.1%')} accepted length")


def _words(one: Mapping[str, float], form: str = ".3f") -> str:
    return f"{one['value']:{form}} [{one['low']:{form}}, {one['high']:{form}}]"
