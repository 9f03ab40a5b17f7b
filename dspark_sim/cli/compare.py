"""``dspark-sim compare``: what is different between two runs, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dspark_sim.cli import options as o
from dspark_sim.cli.common import print_json, warn, working
from dspark_sim.errors import InputError

_MOST = 6  # sentences printed
Names = tuple[str, str]
Pairs = list[tuple[str, str]]


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
    from dspark_sim.results.serving_store import one_kind

    pairs = [_pair(word) for word in pair or ()]
    names = _names(first, second, pairs)
    served = one_kind([first, second])
    with working("comparing"):
        document = (_of_arrivals if served else _of_users)(first, second, names, pairs)
    if out is not None:
        from dspark_sim.files import write_text
        from dspark_sim.results.page_compare import compare_page, compare_served_page

        write_text(out, (compare_served_page if served else compare_page)(document))
        warn(f"wrote {out}")
    if json_out:
        print_json(document)
    else:
        _print(document, served=served)


def _of_users(first: Path, second: Path, names: Names, pairs: Pairs) -> dict[str, Any]:
    from dspark_sim.results.compare import compare_document
    from dspark_sim.results.store import read_results

    return compare_document(read_results(first), read_results(second), names, pairs)


def _of_arrivals(first: Path, second: Path, names: Names, pairs: Pairs) -> dict[str, Any]:
    from dspark_sim.results.compare_served import compare_served_document
    from dspark_sim.results.serving_store import read_served

    return compare_served_document(read_served(first), read_served(second), names, pairs)


def _names(first: Path, second: Path, pairs: Pairs) -> Names:
    """Return short names that tell the two sides apart: of one folder, those of the policies."""
    names = first.resolve().name, second.resolve().name
    if first.resolve() == second.resolve() and len(pairs) == 1:
        return pairs[0]
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


def _print(document: dict[str, Any], *, served: bool) -> None:
    from dspark_sim.results import compare_served_words as of_arrivals
    from dspark_sim.results import compare_words as of_users
    from dspark_sim.results.tables import footnotes

    if served:
        question, table = of_arrivals.served_compare_question, of_arrivals.served_compare_table
        sentences = of_arrivals.served_sentences
    else:
        question, table = of_users.compare_question, of_users.compare_table
        sentences = of_users.compare_sentences
    asked = [f"asked differently: {line}" for line in document["differs"]]
    print(footnotes([question(document), *asked]) + "\n")
    print(table(document) + "\n")
    print(footnotes([*sentences(document)[:_MOST], *document["notes"]]))
