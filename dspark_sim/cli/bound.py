"""``dspark-sim bound``: what any policy could reach, and how much of it policies do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dspark_sim.cli import options as o
from dspark_sim.cli.common import parse_concurrency

#: What the lines of the table are.
MEANING = (
    "Best static: the best of off and static:k (every k of the block) in hindsight; mtp is not among them.",
    "Clairvoyant: knows what would be accepted, but pays for whole block drafts every step, so off or mtp "
    "may stand above it. Bound: above every rule, with the cheapest drafts.",
)


def bound(
    *,
    trace: o.TraceOption,
    hw: o.HwOption,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", help="Policy spec, repeats; see `dspark-sim policies`. Default: dspark, dspark-async."
        ),
    ] = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Users of the closed loop: a comma list.")
    ] = ("1,16,64,256"),
    output_tokens: o.TokensOption = 50_000,
    seed: o.SeedOption = 0,
    drafter: Annotated[str | None, typer.Option("--drafter", help="Drafter of the trace.")] = None,
    lag: o.LagOption = None,
    assignments: o.SetOption = None,
    jobs: o.JobsOption = 0,
    json_out: o.JsonOption = False,
) -> None:
    """Compare policies with the best static length, a clairvoyant, and a bound above every policy.

    A policy's share is its part of the gain that the bound leaves over no speculation.

    Example: dspark-sim bound --trace qwen3-4b-chat.synth.parquet --hw h800.yaml --concurrency 16,64
    """
    from dataclasses import replace

    from dspark_sim.bounds import yardsticks
    from dspark_sim.cli import answer, plan
    from dspark_sim.cli.common import print_json, progress
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.sweeps.running import grid

    asked = [parse_policy(spec, lag).label for spec in policy or ("dspark", "dspark-async")]
    loads = parse_concurrency(concurrency)
    made = plan.make_plan(
        trace, hw, policies=["off", *asked], loads=loads, seeds=[seed], output_tokens=output_tokens,
        drafters=[drafter] if drafter else None, lag=lag, assignments=assignments, baseline="off",
    )  # fmt: skip
    setup, chosen = made.setup, made.setup.load_trace().drafter(drafter)
    labels = ["off", *(f"static:k={k}" for k in range(chosen.gamma + 1)), *asked]
    tasks = grid(setup, dict.fromkeys((chosen.name, label) for label in labels), loads, [seed])
    results = answer.compute(replace(made, tasks=tasks), jobs)
    points = results.points
    rows = []
    with progress(len(loads), "bounding") as advance:
        for load in loads:
            speeds = {p["policy"]: p["tok_per_s"] for p in points if p["concurrency"] == load}
            rows.append(
                yardsticks(
                    setup.load_trace(), setup.load_profile(), speeds, concurrency=load, drafter=chosen.name,
                    output_tokens=output_tokens, max_output_tokens=setup.max_output_tokens, seed=seed,
                )
            )  # fmt: skip
            advance(1)
    if json_out:
        print_json({"schema": "dspark-sim/bound/1", "drafter": chosen.name, "loads": rows})
    else:
        answer.print_caption(results)
        _print(rows, asked)
        print()
        answer.print_notes(results, *MEANING)


def _print(rows: list[dict[str, Any]], asked: list[str]) -> None:
    from dspark_sim.results.tables import text_table

    for row in rows:
        best = row["best_static"]
        lines = [("off", row["off"]), (f"best static: {best['policy']}", best["tok_per_s"])]
        lines += [(label, row["policies"][label]["tok_per_s"]) for label in asked]
        lines += [("clairvoyant, step by step", row["clairvoyant"]), ("bound", row["bound"])]
        gain = row["bound"] - row["off"]
        table = [
            {"": name, "tok/s": f"{speed:,.0f}", "share of the gain": f"{(speed - row['off']) / gain:.1%}"}
            for name, speed in lines
        ]
        print(f"\nconcurrency {row['concurrency']}\n")
        print(text_table({"": "<", "tok/s": ">", "share of the gain": ">"}, table))
