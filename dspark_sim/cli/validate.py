"""``dspark-sim validate``: published measurements against the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dspark_sim.validation.cases import CaseResult, Row


def validate(
    case: Annotated[
        str,
        typer.Argument(
            help="A case, or all: paper, figure5, dcut, kv-capped, sglang-h200, vllm-flash, vllm-pro."
        ),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random stream.")] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for a picture and a JSON document of every case.")
    ] = None,
) -> None:
    """Simulate what others measured; print both sides and the error. Exit 1 if a tolerance is broken.

    A tolerance that is known not to hold prints as a known miss, and breaks if the miss widens.

    Example: dspark-sim validate figure5
    """
    from dspark_sim.cli.common import output_folder, print_json, progress
    from dspark_sim.validation.cases import CASES, run_case

    folder = None if out is None else output_folder(out)
    names = list(CASES) if case == "all" else [case]
    results = []
    with progress(len(names), "cases") as advance:
        for name in names:
            results.append(run_case(name, seed))
            advance(1)
            if folder is not None:
                _write(results[-1], folder)
    if json_out:
        documents = [result.document() for result in results]
        print_json(
            documents[0] if case != "all" else {"schema": "dspark-sim/validate-all/1", "cases": documents}
        )
    else:
        print("\n\n".join([*map(_text, results), *_missed(results)]))
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def _write(result: CaseResult, folder: Path) -> None:
    import json

    from dspark_sim.cli.common import clean, warn
    from dspark_sim.files import write_text
    from dspark_sim.results.plots_validation import draw_case

    document = json.dumps(clean(result.document()), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(folder / f"{result.name}.json", document + "\n")
    for suffix in (".png", ".svg"):
        draw_case(result.title, result.panels, folder / f"{result.name}{suffix}", "; ".join(result.sources))
    warn(f"wrote {folder / result.name}.json, .png, .svg")


def _missed(results: list[CaseResult]) -> list[str]:
    """Return one paragraph that lists the known misses of several cases; none if there are none."""
    lines = [
        f"  {result.name}: {check.what} {check.value:.3g}, {check.rule}"
        for result in results
        for check in result.known_misses
    ]
    return ["\n".join(["known misses:", *lines])] if lines and len(results) > 1 else []


def _text(result: CaseResult) -> str:
    from dspark_sim.results.tables import footnotes, text_table

    columns = {"": "<", "measured": ">", "simulated": ">", "error": ">", "unit": "<", "role": "<"}
    checks = {"tolerance": "<", "value": ">", "rule": "<", "verdict": "<"}
    return "\n".join(
        [
            f"{result.name}: {result.title}\n",
            text_table(columns, [_cells(row) for row in result.rows]),
            "",
            text_table(
                checks,
                [
                    {
                        "tolerance": check.what,
                        "value": f"{check.value:.3g}",
                        "rule": check.rule,
                        "verdict": check.verdict if check.passed else "BROKEN",
                    }
                    for check in result.checks
                ],
            ),
            "",
            footnotes([*result.notes, *(f"source: {source}" for source in result.sources)]),
        ]
    )


def _cells(row: Row) -> dict[str, str]:
    from dspark_sim.results.tables import number, signed

    digits = 0 if row.simulated >= 1000 else 1 if row.simulated >= 10 else 3
    error = row.error
    difference = number(error, 3 if abs(row.simulated) < 10 else 1) if row.points else signed(error)
    bounds = "" if row.bounds is None else f" ({row.bounds[0]:,.0f} to {row.bounds[1]:,.0f})"
    return {
        "": row.what,
        "measured": number(row.measured, digits),
        "simulated": number(row.simulated, digits) + bounds,
        "error": difference,
        "unit": row.unit,
        "role": row.role,
    }
