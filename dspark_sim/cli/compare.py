"""``dspark-sim compare``: what is different between two runs, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli import options as o
from dspark_sim.cli.common import print_json, warn
from dspark_sim.errors import InputError

_MOST = 6  # sentences printed


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Result folder that changes are against.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Result folder that is compared with A.")],
    pair: Annotated[
        list[str] | None,
        typer.Option("--pair", help="POLICY_OF_A=POLICY_OF_B, repeats; A and B may be one folder."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="HTML file; nothing is written without.")] = None,
    json_out: o.JsonOption = False,
) -> None:
    """Compare two runs point by point: paired differences with intervals, what moved, and why.

    The same (drafter, policy) is compared at the same load and seed; --pair compares two policies.

    Example: dspark-sim compare sweeps/before sweeps/after --out changes.html
    """
    from dspark_sim.results.compare import compare_document
    from dspark_sim.results.page_compare import compare_page
    from dspark_sim.results.store import read_results

    results = read_results(first), read_results(second)
    document = compare_document(*results, _names(first, second), [_pair(word) for word in pair or ()])
    if out is not None:
        from dspark_sim.files import write_text

        write_text(out, compare_page(document))
        warn(f"wrote {out}")
    if json_out:
        print_json(document)
    else:
        _print(document)


def _names(first: Path, second: Path) -> tuple[str, str]:
    """Return short names that tell the two folders apart."""
    names = first.resolve().name, second.resolve().name
    return names if names[0] != names[1] else (str(first), str(second))


def _pair(word: str) -> tuple[str, str]:
    """Return the two normalised policies of ``A=B``; options hold ``=`` too, so every place is tried."""
    from dspark_sim.policies.registry import parse_policy

    places = [i for i, character in enumerate(word) if character == "="]
    for place in places:
        try:
            return parse_policy(word[:place]).label, parse_policy(word[place + 1 :]).label
        except InputError:
            continue
    raise InputError(f"--pair {word!r}: expected POLICY=POLICY, as in --pair static:k=3=dspark-async")


def _print(document: dict[str, object]) -> None:
    from dspark_sim.results.compare_words import compare_question, compare_sentences, compare_table
    from dspark_sim.results.tables import footnotes

    print(footnotes([compare_question(document), *_asked(document)]) + "\n")
    print(compare_table(document) + "\n")
    told = document["notes"]
    assert isinstance(told, list), "compare_document lists them"
    print(footnotes([*compare_sentences(document)[:_MOST], *told]))


def _asked(document: dict[str, object]) -> list[str]:
    differs = document["differs"]
    assert isinstance(differs, list), "compare_document lists them"
    return [f"asked differently: {line}" for line in differs]
