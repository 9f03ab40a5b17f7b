"""``dspark-sim frontier``: what result folders say at SLA anchors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli import answer
from dspark_sim.cli import options as o
from dspark_sim.cli.common import output_folder, parse_slas, print_json, warn


def frontier(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Result folders of run or sweep.")
    ],
    sla: o.SlaOption = None,
    baseline: o.BaselineOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the pictures. Default: none are drawn."),
    ] = None,
    json_out: o.JsonOption = False,
) -> None:
    """Read the Pareto frontiers of simulated points at SLA anchors, and at the baseline's throughput.

    At an SLA: the best tok/s/GPU at which each user still gets that speed. At matched throughput: the
    best tok/s/user at the throughput that the baseline reaches at the SLA. Both are linear in
    concurrency between simulated loads; nothing is extrapolated.

    Example: dspark-sim frontier sweeps/qwen3-4b-chat.synth-h800 --sla 80,120 --baseline mtp:k=1
    """
    from dspark_sim.arms import choose_baseline
    from dspark_sim.results.store import merge

    slas = parse_slas(sla) if sla is not None else None
    results = merge(folders)
    against = choose_baseline(baseline, list(dict.fromkeys(p["policy"] for p in results.points)))
    document = answer.frontier_document(results, against, slas)
    if json_out:
        print_json(document)
    else:
        answer.print_readings(results, document, chosen=slas is None)
    if out is not None:
        paths = answer.write_pictures(results, document, output_folder(out))
        warn(f"wrote {out}/: {', '.join(path.name for path in paths)}")
