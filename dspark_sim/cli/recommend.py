"""``dspark-sim recommend``: what to run for an SLA, in one paragraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_sim.cli import answer, plan
from dspark_sim.cli import options as o
from dspark_sim.cli.common import parse_int, parse_slas, print_json, progress

if TYPE_CHECKING:
    from dspark_sim.results.metrics import Point
    from dspark_sim.sweeps.running import Task


def recommend(
    *,
    trace: o.TraceOption,
    hw: o.HwOption,
    sla: Annotated[str, typer.Option("--sla", help="Speed that each user must get [tok/s/user]: 80,120.")],
    policy: o.PolicyOption = None,
    capture_limit: Annotated[
        str | None,
        typer.Option(
            "--capture-limit", help="Capture limits to try [tokens]: 512,1024. Default: the profile's."
        ),
    ] = None,
    max_users: Annotated[int, typer.Option("--max-users", min=1, help="Most users of one replica.")] = 256,
    output_tokens: o.TokensOption = 20_000,
    seed: o.SeedOption = 0,
    seeds: o.SeedsOption = 2,
    drafter: o.DrafterOption = None,
    lag: o.LagOption = None,
    assignments: o.SetOption = None,
    jobs: o.JobsOption = 0,
    json_out: o.JsonOption = False,
) -> None:
    """Find the best setting for an SLA: policy, draft length, most users, capture limit.

    The answer is the highest tok/s/GPU that was simulated at which each user still gets the SLA, with its
    evidence, its margin over the next best, and the accepted length at which speculating starts to pay.
    Exit 1 if no SLA can be met.

    Example: dspark-sim recommend --trace qwen3-4b-chat.synth.parquet --hw h800.yaml --sla 80
    """
    from dspark_sim import recommend_words as words
    from dspark_sim.recommend import TRIED, Search, Setting, loads_up_to
    from dspark_sim.results.store import Results
    from dspark_sim.sweeps.running import about
    from dspark_sim.sweeps.running import sweep as simulate_all

    slas = parse_slas(sla)
    limits = [None] if capture_limit is None else sorted({_limit(word) for word in capture_limit.split(",")})
    asked = [
        task
        for limit in limits
        for task in plan.make_plan(
            trace, hw, policies=policy, defaults=TRIED, loads=[1], seeds=[seed], output_tokens=output_tokens,
            drafters=drafter, lag=lag, baseline=None,
            assignments=[*(assignments or ()), *([f"capture.limit={limit}"] if limit else ())],
        ).tasks
    ]  # fmt: skip
    settings = [Setting(task.setup, task.drafter, task.policy) for task in asked]

    def measure(tasks: Sequence[Task]) -> list[Point]:
        with progress(len(tasks), "simulating") as advance:
            points = simulate_all(
                tasks, jobs=jobs or answer.worth_processes(tasks), on_point=lambda: advance(1)
            )
        measured.extend(points)
        return points

    measured: list[Point] = []
    search = Search(settings, loads_up_to(max_users), range(seed, seed + seeds), measure)
    answers = [search.answer(anchor) for anchor in slas]
    if json_out:
        print_json({"schema": words.SCHEMA, "answers": [words.document(found) for found in answers]})
    else:
        results = Results(measured, about(asked[0].setup, asked))
        answer.print_caption(results)
        for found in answers:
            print(answer.wrapped(words.paragraph(found)) + "\n")
        answer.print_notes(results)
    if not any(found.ranking for found in answers):
        raise typer.Exit(1)


def _limit(word: str) -> int:
    return parse_int(word.strip(), "--capture-limit", 1)
