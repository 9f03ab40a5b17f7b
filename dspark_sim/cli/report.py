"""``dspark-sim report``: one HTML file that says and shows what result folders hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli import answer
from dspark_sim.cli import options as o
from dspark_sim.cli.common import parse_slas, print_json, warn


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Result folders of run or sweep, of one set-up.")
    ],
    *,
    sla: o.SlaOption = None,
    baseline: o.BaselineOption = None,
    bound: Annotated[
        Path | None, typer.Option("--bound", help="Document of `dspark-sim bound --json`: adds shares of it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file. Default: report.html in the first RUN.")
    ] = None,
    json_out: o.JsonOption = False,
) -> None:
    """Write one self-contained page, to send or to keep: words, interactive charts, sortable numbers.

    It opens offline in any browser and asks nothing of the network. With --json, the document behind it.

    Example: dspark-sim report sweeps/qwen3-4b-chat.synth-h800 --sla 80,120 --out page.html
    """
    from dspark_sim.arms import choose_baseline
    from dspark_sim.files import write_text
    from dspark_sim.results.page_report import report_page
    from dspark_sim.results.report import report_document
    from dspark_sim.results.shares import read_bounds, shares, with_shares
    from dspark_sim.results.store import merge

    slas = parse_slas(sla) if sla is not None else None
    results = merge(folders)
    against = choose_baseline(baseline, list(dict.fromkeys(p["policy"] for p in results.points)))
    document = report_document(results, answer.frontier_document(results, against, slas))
    if bound is not None:
        document = with_shares(document, shares(results.points, *read_bounds(bound)))
    if json_out:
        print_json(document)
    if out is not None or not json_out:
        target = out or folders[0] / "report.html"
        write_text(target, report_page(document))
        warn(f"wrote {target}")
