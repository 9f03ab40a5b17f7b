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
    typer.Option("--out", help="Folder for points and pictures. Default: runs/TRACE-HW, none with --json."),
]


def run(
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
    rate_scale: o.RateScaleOption = 1.0,
    requests: o.RequestsOption = None,
    mix: o.MixOption = None,
    prefill: o.PrefillOption = "",
    replicas: o.ReplicasOption = 1,
    router: o.RouterOption = "round-robin",
    lockstep: o.LockstepOption = False,
    timeline: o.TimelineOption = None,
    jobs: o.JobsOption = 0,
    out: OutOption = None,
    force: o.ForceOption = False,
    json_out: o.JsonOption = False,
) -> None:
    """Replay a trace on a step-cost profile under several policies: a table and two pictures.

    With --workload or --arrivals, requests arrive in time instead: latencies and throughput of a service.

    Example: dspark-sim run --trace qwen3-4b-chat.synth.parquet --hw h800.yaml --concurrency 1,16,64,256
    """
    from dspark_sim.engine.serving import Serving

    traffic = open_loop.Traffic(workload, arrivals, rate_scale, requests, tuple(mix or ())).checked()
    serving = Serving(prefill or ("none" if traffic is None else "mixed"), replicas, router, lockstep)
    loads, slas = parse_concurrency(concurrency), parse_slas(sla) if sla is not None else None
    asked = plan.make_plan(
        trace, hw, policies=policy, loads=loads, seeds=range(seed, seed + seeds), output_tokens=output_tokens,
        drafters=drafter, lag=lag, assignments=assignments, baseline=baseline, believed=believed,
        replicate=replicate, serving=serving,
    )  # fmt: skip
    if timeline is not None:
        open_loop.check_timeline(asked.tasks)
    if traffic is not None:
        open_loop.serve_all(asked, traffic, out=out, timeline=timeline, as_json=json_out)
        return
    folder = plan.chosen_folder(out, "runs", asked, json_out, force=force)
    results = answer.compute(asked, jobs)
    document = answer.frontier_document(results, asked.baseline, slas)
    # Written before it is printed: a reader who leaves the pipe early does not lose the simulation.
    if folder is not None:
        answer.write_all(results, document, folder)
    if json_out:
        answer.print_run_json(results)
    else:
        answer.print_answer(results, asked.baseline, document, readings=len(loads) > 1 or slas is not None)
    if timeline is not None:
        open_loop.draw_timeline(timeline, open_loop.log_of(asked.tasks[0], None))
