"""Options that several commands share, each said once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

#: Headings of help pages.
SERVING = "Requests that arrive in time, and the engines that serve them"
OUTPUT = "Output and speed"


def _shipped(kind: str, suffix: str) -> Callable[[str], list[str]]:
    """Return what completes the bare name of a shipped file."""

    def complete(incomplete: str) -> list[str]:
        from dspark_sim.files import data_folder

        names = (path.name.removesuffix(suffix) for path in data_folder(kind).glob("*" + suffix))
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


def _policies(incomplete: str) -> list[str]:
    """Return the names of policies that begin so."""
    from dspark_sim.policies.registry import policies

    return [info.name for info in policies() if info.name.startswith(incomplete)]


TraceOption = Annotated[
    str,
    typer.Option(
        "--trace",
        help="Acceptance trace: a path or a shipped name.",
        autocompletion=_shipped("traces", ".parquet"),
    ),
]
HwOption = Annotated[
    str,
    typer.Option(
        "--hw",
        help="Hardware profile: a path or a shipped name.",
        autocompletion=_shipped("hw_profiles", ".yaml"),
    ),
]
BelievedOption = Annotated[
    str | None,
    typer.Option(
        "--believed",
        help="Cost that planners believe: a profile, or how an engine would have profiled this one: vllm, "
        "sglang, sglang-additive, sglang-captured, trtllm, linear, flat. Default: the true cost.",
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="Policy spec, repeats; see `dspark-sim policies`. Default: six of them.",
        autocompletion=_policies,
    ),
]
TokensOption = Annotated[
    int, typer.Option("--output-tokens", min=1, help="Output tokens to measure per point.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random stream.")]
SeedsOption = Annotated[
    int,
    typer.Option("--seeds", min=1, help="Replications, at seed, seed + 1, ...; two or more give intervals."),
]
ReplicateOption = Annotated[
    str,
    typer.Option(
        "--replicate",
        help="What replications differ in: seeds (all replay every prompt: how well this trace was "
        "simulated) or prompts (each replays its own share: how well the prompts stand for the traffic).",
    ),
]
DrafterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter", help="Drafter of the trace, repeats. Default: dspark; for mtp, the mtp drafter."
    ),
]
LagOption = Annotated[
    int | None, typer.Option("--lag", min=0, help="Lag [steps] of rules that read older confidences.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override one field: capture.limit=512, workload.max_output_tokens=256; repeats."
    ),
]
BaselineOption = Annotated[
    str | None, typer.Option("--baseline", help="Policy that percentages are against.")
]
SlaOption = Annotated[
    str | None,
    typer.Option("--sla", help="Anchors [tok/s/user], as in 80,120: readings and lines in the picture."),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs", min=0, help="Worker processes; 0: one per core where it pays.", rich_help_panel=OUTPUT
    ),
]
BackendOption = Annotated[
    str,
    typer.Option(
        "--backend",
        help="Where points are computed: local, or ray (the cluster of RAY_ADDRESS; extra: ray).",
        rich_help_panel=OUTPUT,
    ),
]
FastOption = Annotated[
    bool | None,
    typer.Option(
        "--fast/--no-fast",
        help="Compiled step (extra: fast); same figures. Default: for long closed loops if it is there.",
        rich_help_panel=OUTPUT,
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace what the output folder holds of another run.", rich_help_panel=OUTPUT
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON document on stdout and nothing else there.", rich_help_panel=OUTPUT
    ),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        help="Request table: arrivals and lengths, instead of users in a loop.",
        rich_help_panel=SERVING,
    ),
]
ArrivalsOption = Annotated[
    str | None,
    typer.Option(
        "--arrivals",
        help="Arrivals by spec: poisson:rate=5, gamma:rate=5,cv=2, burst:n=1000, ...",
        rich_help_panel=SERVING,
    ),
]
RateScaleOption = Annotated[
    str,
    typer.Option(
        "--rate-scale",
        help="Arrivals come so many times as fast: one number or a comma list.",
        rich_help_panel=SERVING,
    ),
]
SloOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        help="Objective: tpot_p99=25ms, ttft_p99=2s; metrics ttft, tpot, e2e, queue; any quantile; repeats.",
        rich_help_panel=SERVING,
    ),
]
WarmupOption = Annotated[
    float | None,
    typer.Option(
        "--warmup",
        help="Share of the requests, in order of arrival, that are served but not measured. "
        "Default: 0.25 under --arrivals, 0 (measured whole) under a workload's own and a burst.",
        rich_help_panel=SERVING,
    ),
]
RequestsOption = Annotated[
    int | None,
    typer.Option(
        "--requests",
        min=1,
        help="How many requests arrive. Default: all of the workload.",
        rich_help_panel=SERVING,
    ),
]
MixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mix",
        help="FILE=weight, repeats: arriving requests replay texts of several traces.",
        rich_help_panel=SERVING,
    ),
]
PrefillOption = Annotated[
    str,
    typer.Option(
        "--prefill",
        help="Prompts: none, mixed[:budget=8192], separate[:budget=8192], disaggregated[:workers=1].",
        rich_help_panel=SERVING,
    ),
]
ReplicasOption = Annotated[
    int, typer.Option("--replicas", min=1, help="Engines behind the router.", rich_help_panel=SERVING)
]
RouterOption = Annotated[
    str, typer.Option("--router", help="round-robin, least-loaded or two-choices.", rich_help_panel=SERVING)
]
LockstepOption = Annotated[
    bool,
    typer.Option(
        "--lockstep",
        help="Replicas are attention ranks: a step lasts as long as its slowest.",
        rich_help_panel=SERVING,
    ),
]
TimelineOption = Annotated[
    Path | None,
    typer.Option(
        "--timeline", help="Chrome trace of the one run, OUT.json.gz, for Perfetto.", rich_help_panel=OUTPUT
    ),
]
StreamOption = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Write steps and requests while they are served, and keep none: for runs of millions.",
        rich_help_panel=OUTPUT,
    ),
]


def given(ctx: typer.Context) -> list[str]:
    """Return the names of the parameters that the user gave, rather than left at their default."""
    return [
        name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
