"""``dspark-sim waterfall``: where the gap between a policy and the bound comes from."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli import options as o


def waterfall(
    policy: Annotated[str, typer.Argument(help="Policy spec.")] = "dspark-async",
    *,
    trace: o.TraceOption,
    hw: o.HwOption,
    believed: o.BelievedOption = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Users of the loop.")] = 64,
    output_tokens: o.TokensOption = 20_000,
    seed: o.SeedOption = 0,
    lag: o.LagOption = None,
    assignments: o.SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the picture.")] = None,
    json_out: o.JsonOption = False,
) -> None:
    """Mend one flaw of a policy after the other, up to the bound, on common random numbers.

    Example: dspark-sim waterfall dspark-async --trace chat.parquet --hw h800.yaml --concurrency 64
    """
    from dspark_sim.cli.answer import wrapped
    from dspark_sim.cli.common import output_folder, parse_set, print_json, progress, warn
    from dspark_sim.hardware.believed import Block, believe
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.results.canvas import save
    from dspark_sim.results.notes import pair_note, scene
    from dspark_sim.results.plots_sensitivity import waterfall_figure
    from dspark_sim.results.tables import footnotes, text_table
    from dspark_sim.waterfall import Case, count
    from dspark_sim.waterfall import waterfall as climb
    from dspark_sim.workload.trace_io import read_trace

    read, profile = read_trace(trace), load_profile(hw, parse_set(assignments or ()))
    drafter = read.drafter()
    table = None if believed is None else believe(believed, profile, Block(drafter.kind, drafter.gamma))
    case = Case(read, profile, concurrency, output_tokens, seed, table)
    rule = parse_policy(policy, lag)
    with progress(count(case, rule), "mending") as advance:
        rungs = climb(case, rule, lambda: advance(1))
    steps = [(rung.name, rung.tok_per_s) for rung in rungs]
    footer = scene(read, profile, concurrency)
    if out is not None:
        for path in save(waterfall_figure(steps, footer, read.synthetic), output_folder(out), "waterfall"):
            warn(f"wrote {path}")
    gains = [0.0, *(after - before for (_, before), (_, after) in itertools.pairwise(steps))]
    if json_out:
        rows = [
            {"name": name, "tok_per_s": speed, "gain": gain}
            for (name, speed), gain in zip(steps, gains, strict=True)
        ]
        print_json({"schema": "dspark-sim/waterfall/1", "concurrency": concurrency, "rungs": rows})
        return
    cells = [
        {
            "mended": name,
            "tok/s": f"{speed:,.0f}",
            "gain": f"{gain:+,.0f}",
            "of the gap": f"{_share(gain, steps):.1%}",
        }
        for (name, speed), gain in zip(steps, gains, strict=True)
    ]
    print(text_table({"mended": "<", "tok/s": ">", "gain": ">", "of the gap": ">"}, cells))
    print(wrapped(footer))
    if differ := pair_note(read.meta["target"], profile.model):
        print(footnotes(differ))


def _share(gain: float, steps: list[tuple[str, float]]) -> float:
    gap = steps[-1][1] - steps[0][1]
    return gain / gap if gap else 0.0
