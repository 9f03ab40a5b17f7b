"""``dspark-sim run``: several policies at one load, or along a short list of loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli import answer, open_loop, plan
from dspark_sim.cli import options as o
from dspark_sim.cli.common import parse_concurrency, parse_slas

#: Enough users that verifying everything costs noticeably and verifying nothing wastes the machine.
DEFAULT_LOAD = "64"

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder for points and pictures. Default: runs/TRACE-HW, none with --json.",
        rich_help_panel=o.OUTPUT,
    ),
]


def run(
    ctx: typer.Context,
    *,
    trace: o.TraceOption,
    hw: o.HwOption,
    believed: o.BelievedOption = None,
    policy: o.PolicyOption = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Users of the closed loop: one number or a comma list.")
    ] = DEFAULT_LOAD,
    output_tokens: o.TokensOption = 50_000,
    seed: o.SeedOption = 0,
    seeds: o.SeedsOption = 1,
    replicate: o.ReplicateOption = "seeds",
    drafter: o.DrafterOption = None,
    lag: o.LagOption = None,
    assignments: o.SetOption = None,
    baseline: o.BaselineOption = None,
    sla: o.SlaOption = None,
    workload: o.WorkloadOption = None,
    arrivals: o.ArrivalsOption = None,
    rate_scale: o.RateScaleOption = "1",
    requests: o.RequestsOption = None,
    mix: o.MixOption = None,
    slo: o.SloOption = None,
    warmup: o.WarmupOption = None,
    prefill: o.PrefillOption = "",
    replicas: o.ReplicasOption = 1,
    router: o.RouterOption = "round-robin",
    lockstep: o.LockstepOption = False,
    timeline: o.TimelineOption = None,
    stream: o.StreamOption = False,
    jobs: o.JobsOption = 0,
    fast: o.FastOption = None,
    out: OutOption = None,
    force: o.ForceOption = False,
    json_out: o.JsonOption = False,
) -> None:
    """Replay a trace on a step-cost profile under several policies: a table and two pictures.

    With --workload or --arrivals, requests arrive in time instead: latencies and throughput of a service,
    and with --slo who gets them.

    Example: dspark-sim run --trace qwen3-4b-chat.synth.parquet --hw h800.yaml --concurrency 1,16,64,256
    """
    from dspark_sim.engine.serving import Serving

    arriving = workload is not None or arrivals is not None
    if arrivals is not None:
        from dspark_sim.workload.arrivals import parse_arrivals

        parse_arrivals(arrivals)  # a typo in it goes before what does not go with it
    open_loop.check_words(o.given(ctx), arrivals=arriving)
    serving = Serving(prefill or ("mixed" if arriving else "none"), replicas, router, lockstep)
    loads, slas = parse_concurrency(concurrency), parse_slas(sla) if sla is not None else None
    asked = None
    if arriving:
        traffic = open_loop.asked_traffic(workload, arrivals, requests, mix)
        asked = open_loop.ask(traffic, rate_scale=rate_scale, slo=slo, warmup=warmup)
    made = plan.make_plan(
        trace, hw, policies=policy, loads=[plan.ANY_LOAD] if arriving else loads,
        seeds=range(seed, seed + seeds), output_tokens=output_tokens,
        drafters=drafter, lag=lag, assignments=assignments, baseline=baseline, believed=believed,
        replicate=replicate, serving=serving, fast=fast,
    )  # fmt: skip
    if asked is not None:
        open_loop.serve_all(
            made, asked, jobs=jobs, out=out, timeline=timeline, stream=stream, as_json=json_out, force=force
        )
        return
    if timeline is not None:
        open_loop.check_timeline(timeline, len(made.tasks))
    folder = plan.chosen_folder(out, "runs", made, json_out, force=force)
    results = answer.compute(made, jobs)
    document = answer.frontier_document(results, made.baseline, slas)
    # Written before it is printed: a reader who leaves the pipe early does not lose the simulation.
    if folder is not None:
        answer.write_all(results, document, folder)
    if json_out:
        answer.print_run_json(results)
    else:
        readings = len(loads) > 1 or slas is not None
        answer.print_answer(results, made.baseline, document, readings=readings, chosen=slas is None)
    if timeline is not None:
        from dspark_sim.sweeps.running import run_log

        open_loop.draw_timeline(timeline, run_log(made.tasks[0]))
