"""``dspark-sim parity``: does this code compute what a reference implementation computed?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def parity(
    folder: Annotated[Path, typer.Argument(help="Holds target/, drafter/ and expected.safetensors.")],
    *,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Largest error, absolute or relative to a tensor's scale.")
    ] = 1e-5,
    double: Annotated[
        bool, typer.Option("--double", help="Compute in float64: what is left is the reference's rounding.")
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Recompute a checkpoint's reference tensors, one by one; exit 1 if one misses the tolerance.

    Prefill, rounds of greedy drafting with a growing cache, teacher-forced blocks and losses. A tensor passes
    if its largest error is at most the tolerance, absolutely or as a share of its largest magnitude.

    Example: dspark-sim parity tests/data/parity/dspark_gated_b7
    """
    from dspark_sim.cli.common import print_json, working
    from dspark_sim.model.parity import parity_report

    with working("recomputing"):
        report = parity_report(folder, tolerance=tolerance, double=double)
    if json_out:
        print_json(report)
    else:
        _print(report)
    if not report["ok"]:
        raise typer.Exit(1)


def _print(report: dict[str, Any]) -> None:
    from dspark_sim.results.tables import text_table

    columns = {"tensor": "<", "largest error": ">", "of the largest magnitude": ">", "passes by": "<"}
    print(text_table(columns, [_cells(name, row) for name, row in report["tensors"].items()]))
    if report["unread"]:
        print(f"\nnot compared, unknown names: {', '.join(report['unread'])}")
    count, missed = len(report["tensors"]), report["missed"]
    verdict = (
        f"{len(missed)} of {count} tensors miss it: {', '.join(missed)}" if missed else f"all {count} pass"
    )
    beyond = sum(row["beyond"] for row in report["tensors"].values())
    elements = sum(row["elements"] for row in report["tensors"].values())
    print(
        f"\ntolerance {report['tolerance']:g} in {report['dtype']}: {verdict}; taken one by one, {beyond} of "
        f"{elements:,} elements deviate by more than it both absolutely and from their own value"
    )


def _cells(name: str, row: dict[str, Any]) -> dict[str, str]:
    return {
        "tensor": name,
        "largest error": f"{row['absolute']:.1e}",
        "of the largest magnitude": f"{row['relative']:.1e}",
        "passes by": row["passes"] or "MISSES",
    }
