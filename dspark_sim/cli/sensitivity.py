"""``dspark-sim sensitivity``: one thing worse than it was, and what policies lose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dspark_sim.cli import options as o


def sensitivity(
    axis: Annotated[
        str,
        typer.Argument(
            help="lag; temperature, bias, noise, auc (of the confidences); believed, shift, stale, "
            "truncated, context (of the believed cost); gamma; domain, mixture."
        ),
    ],
    *,
    trace: o.TraceOption,
    hw: o.HwOption,
    policy: o.PolicyOption = None,
    other: Annotated[str | None, typer.Option("--with", help="Second trace, for mixture.")] = None,
    values: Annotated[str | None, typer.Option("--values", help="A comma list. Default: the usual.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Users of the loop.")] = 64,
    output_tokens: o.TokensOption = 20_000,
    seed: o.SeedOption = 0,
    assignments: o.SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the picture and the table.")] = None,
    json_out: o.JsonOption = False,
) -> None:
    """Vary what policies are told (or the drafter, or the traffic) along one axis, all else equal.

    Example: dspark-sim sensitivity noise --trace chat.parquet --hw h800.yaml --policy dspark-async
    """
    from dspark_sim import sensitivity as lab
    from dspark_sim.cli.common import parse_set, print_json, progress
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.results.notes import pair_note, scene
    from dspark_sim.workload.trace_io import read_trace

    chosen, read = lab.axis(axis), read_trace(trace)
    second = None if other is None else read_trace(other)
    world = lab.World(read, load_profile(hw, parse_set(assignments or ())), other=second)
    specs = [parse_policy(spec).label for spec in policy or ("static:k=3", "dspark", "dspark-async")]
    tried = lab.values_of(axis, read, values)
    settings = {"concurrency": concurrency, "output_tokens": output_tokens, "seed": seed}
    rows = []
    with progress(len(tried) * len(specs), "simulating") as advance:
        for row in lab.explore(axis, world, tried, specs, **settings):
            rows.append(row)
            advance(1)
    footer = scene(read, world.profile, concurrency)
    if out is not None:
        _draw(rows, (chosen.words, f"Sensitivity to {axis}", footer), read.synthetic, out)
    if json_out:
        print_json({"schema": "dspark-sim/sensitivity/1", "axis": axis, **settings, "rows": rows})
    else:
        _print(rows, chosen.words, footer, pair_note(read.meta["target"], world.profile.model))


def _draw(rows: list[dict[str, Any]], texts: tuple[str, str, str], synthetic: bool, out: Path) -> None:
    from dspark_sim.cli.common import output_folder, warn
    from dspark_sim.results.canvas import save
    from dspark_sim.results.plots_sensitivity import sensitivity_figure

    words, title, footer = texts
    name = title.replace(" ", "-").lower()
    figure = sensitivity_figure(rows, words, title, footer, synthetic)
    for path in save(figure, output_folder(out), name):
        warn(f"wrote {path}")


def _print(rows: list[dict[str, Any]], words: str, footer: str, differ: list[str]) -> None:
    from dspark_sim.cli.answer import wrapped
    from dspark_sim.results.tables import COUNTED, footnotes, text_table

    cells = [
        {
            words: str(row["value"]),
            "policy": row["policy"],
            "tok/s": f"{row['point']['tok_per_s']:,.0f}",
            "change": f"{row['change']:+.1%}",
            "verify\nbudget": f"{row['point']['verification_budget']:.2f}",
            "accepted\nlength": f"{row['point']['accepted_len']:.2f}",
        }
        for row in rows
    ]
    print(text_table({key: "<" if key in (words, "policy") else ">" for key in cells[0]}, cells))
    print(wrapped(footer))
    print(footnotes([COUNTED, *differ]))
