"""``dspark-sim report``: one HTML file that says and shows what result folders hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark_sim.cli import answer
from dspark_sim.cli import options as o
from dspark_sim.cli.common import parse_slas, print_json, warn, working
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    Of users in a loop it shows the frontier, read at SLA anchors; of requests that arrived in time their
    latencies, queues and objectives by rate.

    Example: dspark-sim report sweeps/qwen3-4b-chat.synth-h800 --sla 80,120 --out page.html
    """
    from dspark_sim.files import write_text
    from dspark_sim.results.page_report import report_page
    from dspark_sim.results.page_served import served_page
    from dspark_sim.results.serving_store import one_kind

    slas = parse_slas(sla) if sla is not None else None
    served, given = one_kind(folders), {"--sla": sla, "--bound": bound}
    with working("reading"):
        if served:
            document = _of_arrivals(folders, baseline, [name for name in given if given[name]])
        else:
            document = _of_users(folders, baseline, slas, bound)
    draw = served_page if served else report_page
    if json_out:
        print_json(document)
    if out is not None or not json_out:
        target = out or folders[0] / "report.html"
        write_text(target, draw(document))
        warn(f"wrote {target}")


def _of_arrivals(folders: Sequence[Path], baseline: str | None, given: Sequence[str]) -> dict[str, Any]:
    """Return the document of served requests; ``given`` are options that only users in a loop have."""
    from dspark_sim.arms import choose_baseline
    from dspark_sim.results.report_served import served_document
    from dspark_sim.results.serving_store import merge_served

    if given:
        raise InputError(
            f"{given[0]}: is for users in a loop, and requests arrived in {folders[0]}; their objectives are "
            "those of `run --slo`"
        )
    served = merge_served(folders)
    policies = list(dict.fromkeys(run["policy"] for run in served.runs))
    return served_document(served, choose_baseline(baseline, policies))


def _of_users(
    folders: Sequence[Path], baseline: str | None, slas: list[float] | None, bound: Path | None
) -> dict[str, Any]:
    """Return the document of users in a loop."""
    from dspark_sim.arms import choose_baseline
    from dspark_sim.results.report import report_document
    from dspark_sim.results.shares import read_bounds, shares, with_shares
    from dspark_sim.results.store import merge

    results = merge(folders)
    against = choose_baseline(baseline, list(dict.fromkeys(p["policy"] for p in results.points)))
    document = report_document(results, answer.frontier_document(results, against, slas))
    return document if bound is None else with_shares(document, shares(results.points, *read_bounds(bound)))
