"""What ``run`` does with arrivals: requests in time instead of users in a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.cli.common import print_json, progress, warn, working
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.cli.plan import Plan
    from dspark_sim.open_loop import Arm, Traffic
    from dspark_sim.results.slo import Slo
    from dspark_sim.schema import RunLog
    from dspark_sim.sweeps.running import Task

SERVE_SCHEMA = "dspark-sim/serve/1"
#: Options that only one kind of load has a use for.
OF_A_LOOP = {"concurrency": "--concurrency", "output_tokens": "--output-tokens", "sla": "--sla",
             "baseline": "--baseline"}  # fmt: skip
OF_ARRIVALS = {"requests": "--requests", "mix": "--mix", "rate_scale": "--rate-scale", "slo": "--slo",
               "warmup": "--warmup", "stream": "--stream"}  # fmt: skip
#: Requests of all runs together above which worker processes repay their start (about a second).
_WORTH_PROCESSES = 30_000


@dataclass(frozen=True)
class Asked:
    """An open loop in words.

    Attributes:
        traffic: what arrives.
        rate_scales: how many times as fast, ascending.
        slos: objectives.
        warmup: share of the requests that only warm the service up.
    """

    traffic: Traffic
    rate_scales: tuple[float, ...]
    slos: tuple[Slo, ...]
    warmup: float


def check_words(given: Sequence[str], *, arrivals: bool) -> None:
    """Refuse options that the other kind of load alone has a use for.

    Args:
        given: names of the parameters that the user gave.
        arrivals: whether requests arrive in time.

    Raises:
        InputError: one was given.
    """
    for name in given:
        if arrivals and name in OF_A_LOOP:
            instead = {"sla": "; bound latencies with --slo", "output_tokens": "; say --requests"}.get(
                name, ""
            )
            raise InputError(f"{OF_A_LOOP[name]}: is for users in a loop, and requests arrive here{instead}")
        if not arrivals and name in OF_ARRIVALS:
            raise InputError(f"{OF_ARRIVALS[name]}: is for arriving requests; give --workload or --arrivals")


def asked_traffic(
    workload: str | None, arrivals: str | None, requests: int | None, mix: Sequence[str] | None
) -> Traffic:
    """Return the traffic.

    Raises:
        InputError: it says too little.
    """
    from dspark_sim.open_loop import Traffic

    if workload is None and requests is None:
        raise InputError(f"--arrivals {arrivals}: say how many with --requests N, or give --workload")
    return Traffic(workload, arrivals, requests, tuple(mix or ()))


def ask(traffic: Traffic, *, rate_scale: str, slo: Sequence[str] | None, warmup: float | None) -> Asked:
    """Return the open loop that was asked for.

    Raises:
        InputError: a rate scale, objective or warm-up that does not hold.
    """
    from dspark_sim.results.serving import WARMUP
    from dspark_sim.results.slo import parse_slos

    scales = tuple(sorted({_scale(word.strip()) for word in rate_scale.split(",")}))
    if warmup is None:
        warmup = WARMUP if traffic.goes_on else 0.0
    if not 0 <= warmup < 1:
        raise InputError(f"--warmup {warmup:g}: must be a share of the requests, 0 or more and below 1")
    return Asked(traffic, scales, parse_slos(slo or ()), warmup)


def _scale(word: str) -> float:
    try:
        scale = float(word)
    except ValueError:
        raise InputError(
            f"--rate-scale {word!r}: not a number; expected one or a list, as in 0.5,1,2"
        ) from None
    if not 0 < scale < float("inf"):
        raise InputError(f"--rate-scale {word}: must be a finite number above 0")
    return scale


def slug(text: str) -> str:
    """Return ``text`` as the part of a file name."""
    return "".join(c if c.isalnum() or c in "=,.-" else "-" for c in text)


def default_folder(plan: Plan, traffic: Traffic) -> Path:
    """Return where the files of a run go that says nothing of it: ``runs/TRACE-HW-TRAFFIC``."""
    what = [Path(traffic.workload).stem] if traffic.workload else []
    return Path("runs") / slug(
        "-".join([plan.name, *what, *([traffic.arrivals] if traffic.arrivals else [])])
    )


def arms_of(plan: Plan, asked: Asked, folder: Path | None, stream: bool = False) -> list[Arm]:
    """Return the runs to serve: by rate, then as in the plan."""
    from dspark_sim.open_loop import Arm

    arms = []
    for scale in asked.rate_scales:
        for task in plan.tasks:
            name = f"{_run_name(plan, asked, task, scale)}.parquet"
            records = None if folder is None else folder / f"requests-{name}"
            steps = folder / f"steps-{name}" if folder is not None and stream else None
            arms.append(Arm(task, asked.traffic, scale, asked.warmup, asked.slos, records, steps))
    return arms


def _run_name(plan: Plan, asked: Asked, task: Task, scale: float) -> str:
    """Return what tells a run from the others of the command."""
    drafter = f"{task.drafter}-" if len({t.drafter for t in plan.tasks}) > 1 else ""
    rate = f"-x{scale:g}" if len(asked.rate_scales) > 1 else ""
    return slug(f"{drafter}{task.policy}{rate}-seed{task.seed}")


def serve_all(
    plan: Plan,
    asked: Asked,
    *,
    jobs: int,
    out: Path | None,
    timeline: Path | None,
    stream: bool,
    as_json: bool,
    force: bool,
) -> None:
    """Serve what was asked under every policy; print the figures, write points, records and pictures.

    Raises:
        InputError: as :meth:`dspark_sim.open_loop.Traffic.draw`; or to stream, with nowhere to or a timeline.
    """
    from dspark_sim.cli.folders import results_folder
    from dspark_sim.results.serving import COOLDOWN
    from dspark_sim.results.serving_store import bare
    from dspark_sim.results.serving_tables import serving_notes

    if stream and timeline is not None:
        raise InputError("--timeline: draws all steps of a run, and --stream keeps none; give one of them")
    if stream and as_json and out is None:
        raise InputError("--stream: writes files, and --json alone has no folder for them; give --out")
    if timeline is not None:
        check_timeline(timeline, len(plan.tasks) * len(asked.rate_scales))
    about, folder = about_served(plan, asked), None
    if out is not None or not as_json:
        folder = results_folder(out, default_folder(plan, asked.traffic), about, force=force)
    runs = _figures(arms_of(plan, asked, folder, stream), jobs, timeline)
    if folder is not None:
        _write(folder, runs, about)
    words = serving_notes(runs, asked.warmup, COOLDOWN, asked.traffic.arrivals)
    if as_json:
        print_json({"schema": SERVE_SCHEMA, "runs": bare(runs), "notes": words, "about": about})
    else:
        _print(runs, about, words, objectives=bool(asked.slos))


def _figures(arms: Sequence[Arm], jobs: int, timeline: Path | None) -> list[dict[str, Any]]:
    from dspark_sim.cli.answer import cores
    from dspark_sim.open_loop import figures_of, measure_all, serve_arm

    drawn = arms[0].traffic.draw(arms[0].task)
    for domain in drawn.demand.unknown_domains:
        warn(f"--workload {arms[0].traffic.workload}: no trace has domain '{domain}'; "
             "its requests replay any text")  # fmt: skip
    if timeline is not None:
        run = serve_arm(arms[0])
        draw_timeline(timeline, run)
        return [figures_of(arms[0], run)]
    if not jobs:
        jobs = cores() if len(arms) * len(drawn.demand) > _WORTH_PROCESSES else 1
    with progress(len(arms), "serving") as advance:
        return measure_all(arms, jobs=jobs, on_run=lambda: advance(1))


def check_timeline(path: Path, runs: int) -> None:
    """Refuse a timeline of several runs, or under a name that is none, before anything is computed.

    Raises:
        InputError: there is not one run, or ``path`` does not end in .json.gz.
    """
    from dspark_sim.results.timeline import check_name

    check_name(path)
    if runs != 1:
        raise InputError(f"--timeline draws one run, not {runs}: give one --policy, load and seed")


def draw_timeline(path: Path, run: RunLog) -> None:
    """Write the timeline of ``run``, and say so on stderr."""
    from dspark_sim.results.timeline import write_timeline

    write_timeline(path, run)
    warn(f"wrote {path}")


def about_served(plan: Plan, asked: Asked) -> dict[str, Any]:
    """Return the document of an open loop: what was asked of what, by content, without clock or path."""
    from dspark_sim.sweeps.running import about

    document = about(plan.setup, plan.tasks)
    document["settings"] = {"max_output_tokens": plan.setup.max_output_tokens, "warmup": asked.warmup}
    del document["grid"]["concurrency"]
    document["grid"]["rate_scale"] = list(asked.rate_scales)
    document["slos"] = [slo.label for slo in asked.slos]
    return document | {"traffic": about_traffic(plan, asked.traffic)}


def about_traffic(plan: Plan, traffic: Traffic) -> dict[str, Any]:
    """Return what arrived: names, not paths, and the hash of the workload's columns."""
    from dspark_sim.workload.workloads import read_workload

    drawn = traffic.draw(plan.tasks[0])
    return {
        "workload": Path(traffic.workload).name if traffic.workload else None,
        "sha256": read_workload(traffic.workload).content_hash if traffic.workload else None,
        "arrivals": traffic.arrivals,
        "requests": len(drawn.demand),
        "mix": [Path(word).name for word in traffic.mix],
    }


def _write(folder: Path, runs: Sequence[Mapping[str, Any]], about: dict[str, Any]) -> None:
    from dspark_sim.results.canvas import save
    from dspark_sim.results.plots_serving import attainment_figure, latency_figure
    from dspark_sim.results.serving_store import write_served

    paths = write_served(folder, runs, about)
    figures: dict[str, Any] = {}
    with working("drawing"):
        if all(run["measured"] for run in runs):
            figures["latency"] = latency_figure(runs, about)
            if about["slos"]:
                figures["attainment"] = attainment_figure(runs, about)
        paths += [path for name, figure in figures.items() for path in save(figure, folder, name)]
    kept = [kind for kind in ("requests-*.parquet", "steps-*.parquet") if any(folder.glob(kind))]
    warn(f"wrote {folder}/: {', '.join([*(path.name for path in paths), *kept])}")


def traffic_line(about: Mapping[str, Any]) -> str:
    """Return the line of the caption that says what arrived."""
    traffic = about["traffic"]
    what = filter(None, [traffic["workload"], traffic["arrivals"], *traffic["mix"]])
    serving = about["serving"]
    replicas = f"; {serving['replicas']} replicas, {serving['router']}" if serving["replicas"] > 1 else ""
    return (
        f"traffic  {' '.join(what)}: {traffic['requests']:,} requests; prefill {serving['prefill']}{replicas}"
    )


def _print(
    runs: Sequence[dict[str, Any]], about: dict[str, Any], words: Sequence[str], *, objectives: bool
) -> None:
    """Print caption, tables and notes."""
    from dspark_sim.results.notes import caption, notes
    from dspark_sim.results.serving_tables import serving_table, slo_table
    from dspark_sim.results.tables import footnotes

    print("\n".join([*caption(about), traffic_line(about)]) + "\n")
    print(serving_table(runs) + "\n")
    if objectives:
        print(f"Objectives {', '.join(about['slos'])}\n")
        print(slo_table(runs) + "\n")
    print(footnotes([*words, *notes(about, [run | {"concurrency": 0} for run in runs])]))
