"""``dspark-sim capacity``: the highest rate of requests that each policy sustains within objectives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark_sim.cli import open_loop, plan
from dspark_sim.cli import options as o
from dspark_sim.cli.common import clean, print_json, progress, warn, working
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.open_loop import Traffic

#: The shape of the arrivals where nothing says otherwise; its rate is what is searched.
POISSON = "poisson:rate=1"
#: Fewest requests of a run, requests per slot of the service, and slots where the profile sets no limit.
_LEAST_REQUESTS, _PER_SLOT, _SLOTS = 4096, 8, 512


def capacity(
    *,
    trace: o.TraceOption,
    hw: o.HwOption,
    slo: o.SloOption = None,
    policy: o.PolicyOption = None,
    workload: o.WorkloadOption = None,
    arrivals: Annotated[
        str | None,
        typer.Option("--arrivals", help="Shape of the arrivals; its rate is scaled. Default: Poisson."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            min=20,
            help="Requests of a run. Default: the workload's, or 8 a slot, at least 4096.",
        ),
    ] = None,
    mix: o.MixOption = None,
    max_rate: Annotated[
        float | None,
        typer.Option("--max-rate", help="Highest rate tried [requests/s]. Default: the load knee."),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", help="Between the rate that is found and one too high, as a share."),
    ] = 0.005,
    prefill: o.PrefillOption = "mixed",
    replicas: o.ReplicasOption = 1,
    router: o.RouterOption = "round-robin",
    lockstep: o.LockstepOption = False,
    believed: o.BelievedOption = None,
    seed: o.SeedOption = 0,
    seeds: o.SeedsOption = 4,
    replicate: o.ReplicateOption = "seeds",
    drafter: o.DrafterOption = None,
    lag: o.LagOption = None,
    assignments: o.SetOption = None,
    baseline: o.BaselineOption = None,
    jobs: o.JobsOption = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the answers. Default: runs/TRACE-HW-...-capacity."),
    ] = None,
    force: o.ForceOption = False,
    json_out: o.JsonOption = False,
) -> None:
    """Find the highest rate of requests that each policy sustains within objectives, by bisection.

    Sustained: the service keeps up, and every --slo holds over the requests of all replications together.

    Example: dspark-sim capacity --trace chat --hw h800 --slo tpot_p99=25ms --slo ttft_p99=2s
    """
    from dspark_sim.capacity.document import document
    from dspark_sim.capacity.search import search_all
    from dspark_sim.capacity.terms import Question, Terms
    from dspark_sim.cli.answer import cores
    from dspark_sim.engine.serving import Serving
    from dspark_sim.results.slo import parse_slos

    _check(max_rate, tolerance)
    slos = parse_slos(slo or ())
    made = plan.make_plan(
        trace, hw, policies=policy, loads=[plan.ANY_LOAD], seeds=range(seed, seed + seeds), output_tokens=1,
        drafters=drafter, lag=lag, assignments=assignments, baseline=baseline, believed=believed,
        replicate=replicate, serving=Serving(prefill, replicas, router, lockstep),
    )  # fmt: skip
    traffic = _traffic(made, workload, arrivals, requests, tuple(mix or ()))
    terms = Terms(traffic, slos, tolerance, max_rate)
    asked = open_loop.Asked(traffic, (1.0,), slos, 0.0)
    about = _about(made, asked)
    folder = _folder(made, traffic, about, out=out, force=force, quiet=json_out)
    arms = list(dict.fromkeys((task.drafter, task.policy) for task in made.tasks))
    questions = [
        Question(tuple(t for t in made.tasks if (t.drafter, t.policy) == arm), terms) for arm in arms
    ]
    with progress(len(questions), "searching") as advance:
        found = search_all(questions, jobs=jobs or min(cores(), len(arms)), on_found=lambda: advance(1))
    answers: dict[str, Any] = clean(document(found, terms, made.baseline, about))
    if folder is not None:
        _write(folder, answers)
    if json_out:
        print_json(answers)
    else:
        _print(answers)


def _check(max_rate: float | None, tolerance: float) -> None:
    if max_rate is not None and not 0 < max_rate < float("inf"):
        raise InputError(f"--max-rate {max_rate}: must be a finite number of requests/s above 0")
    if not 0 < tolerance < 1:
        raise InputError(f"--tolerance {tolerance}: must be a share above 0 and below 1, as in 0.005")


def _traffic(
    made: plan.Plan, workload: str | None, arrivals: str | None, requests: int | None, mix: tuple[str, ...]
) -> Traffic:
    """Return whose rate is searched.

    Raises:
        InputError: arrivals without a rate to scale.
    """
    from dspark_sim.open_loop import Traffic
    from dspark_sim.workload.workloads import read_workload

    own = workload is not None and read_workload(workload).arrival_s_Q is not None
    if arrivals is None and not own:
        arrivals = POISSON
    if workload is None and requests is None:
        profile, serving = made.setup.load_profile(), made.setup.serving
        requests = max(_LEAST_REQUESTS, _PER_SLOT * serving.replicas * (profile.max_num_seqs or _SLOTS))
    traffic = Traffic(workload, arrivals, requests, mix)
    if traffic.draw(made.tasks[0]).rate_per_s == float("inf"):
        raise InputError(f"--arrivals {arrivals or workload}: all at one instant; there is no rate to scale")
    return traffic


def _about(made: plan.Plan, asked: open_loop.Asked) -> dict[str, Any]:
    document = open_loop.about_served(made, asked)
    del document["grid"]["rate_scale"], document["settings"]["warmup"]
    return document


def _folder(
    made: plan.Plan, traffic: Traffic, about: dict[str, Any], *, out: Path | None, force: bool, quiet: bool
) -> Path | None:
    from dataclasses import replace

    from dspark_sim.cli.folders import results_folder

    if out is None and quiet:
        return None
    usual = open_loop.default_folder(made, replace(traffic, arrivals=_shape(traffic.arrivals)))
    return results_folder(out, usual.with_name(f"{usual.name}-capacity"), about, force=force)


def _shape(arrivals: str | None) -> str | None:
    """Return a spec of arrivals without its rate: that is what is searched."""
    if arrivals is None:
        return None
    name, _, options = arrivals.partition(":")
    kept = ",".join(word for word in options.split(",") if word and not word.startswith("rate="))
    return f"{name}:{kept}" if kept else name


def _searched(about: dict[str, Any]) -> dict[str, Any]:
    """Return the document for a caption that says that rates are searched."""
    shape = _shape(about["traffic"]["arrivals"])
    return about | {
        "traffic": about["traffic"] | {"arrivals": f"{shape}, rates searched" if shape else "rates searched"}
    }


def _write(folder: Path, answers: dict[str, Any]) -> None:
    """Write answers, a row a policy, what was asked, and the picture."""
    from dspark_sim.files import write_text
    from dspark_sim.results.canvas import save
    from dspark_sim.results.capacity_tables import write_rows
    from dspark_sim.results.plots_capacity import capacity_figure
    from dspark_sim.results.store import ABOUT, POINTS, SERVED_SCHEMA

    document = {"schema": SERVED_SCHEMA} | answers["about"]
    write_text(folder / ABOUT, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    write_text(folder / "capacity.json", json.dumps(answers, indent=2, ensure_ascii=False) + "\n")
    write_rows(folder / POINTS, answers)
    with working("drawing"):
        paths = save(capacity_figure(answers), folder, "capacity")
    names = [ABOUT, "capacity.json", POINTS, *(path.name for path in paths)]
    warn(f"wrote {folder}/: {', '.join(names)}")


def _print(answers: dict[str, Any]) -> None:
    from dspark_sim.capacity.document import sentences
    from dspark_sim.results.capacity_tables import capacity_table
    from dspark_sim.results.notes import caption, notes
    from dspark_sim.results.tables import footnotes

    about = answers["about"]
    print("\n".join([*caption(about), open_loop.traffic_line(_searched(about))]) + "\n")
    asked = f"within {', '.join(answers['slos'])}" if answers["slos"] else "without objectives"
    print(f"Highest rate that is sustained {asked}\n")
    print(capacity_table(answers) + "\n")
    count = answers["answers"][0]["replications"]
    meaning = (
        f"(..): 95% interval from {count} replications of the same requests under every policy; a rate "
        f"{100 * answers['tolerance']:g}% higher fails. Load knee: what is done of a backlog that never ends."
    )
    rows = [entry | {"concurrency": 0} for entry in answers["answers"]]
    print(footnotes([*sentences(answers), meaning, *notes(about, rows)]))
