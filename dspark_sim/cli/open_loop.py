"""What ``run`` does with arrivals: requests in time instead of users in a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.cli.common import output_folder, print_json, progress, warn
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.cli.plan import Plan
    from dspark_sim.schema import FloatArray, RunLog
    from dspark_sim.sweep import Task
    from dspark_sim.workload.mix import Demand, Mix

SERVE_SCHEMA = "dspark-sim/serve/1"


@dataclass(frozen=True)
class Traffic:
    """Which requests arrive when.

    Attributes:
        workload: request table with lengths, and arrivals unless ``arrivals`` gives them.
        arrivals: spec of :mod:`dspark_sim.workload.arrivals`.
        rate_scale: arrivals come so many times as fast.
        requests: only the first so many; needed where only ``arrivals`` says what comes.
        mix: ``FILE=weight`` words; empty: the texts of the trace alone.
    """

    workload: str | None
    arrivals: str | None
    rate_scale: float
    requests: int | None
    mix: tuple[str, ...]

    def checked(self) -> Traffic | None:
        """Return the traffic; None if nothing arrives in time: users in a loop.

        Raises:
            InputError: it says too little, or something that only arrivals have a use for.
        """
        if self.workload is None and self.arrivals is None:
            for option, given in (("--requests", self.requests is not None), ("--mix", bool(self.mix)),
                                  ("--rate-scale", self.rate_scale != 1)):  # fmt: skip
                if given:
                    raise InputError(f"{option}: is for arriving requests; give --workload or --arrivals")
            return None
        if self.workload is None and self.requests is None:
            raise InputError(
                f"--arrivals {self.arrivals}: say how many with --requests N, or give --workload"
            )
        _positive(self.rate_scale)
        return self

    def draw(self, trace: str, seed: int, max_output_tokens: int | None) -> tuple[Mix, Demand, FloatArray]:
        """Return the mix, the requests, and when each arrives [s].

        Raises:
            InputError: a file, spec or weight that does not hold, or a workload without arrivals.
        """
        from dspark_sim.workload.arrivals import parse_arrivals
        from dspark_sim.workload.mix import demand_of_mix, demand_of_workload

        mix = _mix(trace, self.mix)
        if self.workload is None:
            assert self.requests is not None
            assert self.arrivals is not None
            times = parse_arrivals(self.arrivals).times(self.requests, seed) / self.rate_scale
            return mix, demand_of_mix(mix, len(times), seed, max_output_tokens), times
        from dspark_sim.workload.workloads import read_workload

        workload = read_workload(self.workload)
        if self.requests is not None:
            workload = workload.head(self.requests)
        if self.arrivals is not None:
            times = parse_arrivals(self.arrivals).times(len(workload), seed)
            workload = replace(workload.head(len(times)), arrival_s_Q=times)
        workload = workload.scale_rate(self.rate_scale)
        demand = demand_of_workload(mix, workload, seed, max_output_tokens)
        for domain in demand.unknown_domains:
            warn(f"--workload {self.workload}: no trace has domain '{domain}'; its requests replay any text")
        return mix, demand, workload.arrivals


def _positive(rate_scale: float) -> None:
    if not 0 < rate_scale < float("inf"):
        raise InputError(f"--rate-scale {rate_scale}: must be a finite number above 0")


@lru_cache(maxsize=2)
def _mix(trace: str, words: tuple[str, ...]) -> Mix:
    from dspark_sim.workload.mix import make_mix, read_mix
    from dspark_sim.workload.trace_io import read_trace

    return read_mix(words) if words else make_mix([read_trace(trace)])


def log_of(task: Task, traffic: Traffic | None) -> RunLog:
    """Simulate one task: ``traffic`` in time, or its closed loop."""
    from dspark_sim.engine.simulator import serve, simulate
    from dspark_sim.policies.registry import parse_policy

    setup, policy = task.setup, parse_policy(task.policy)
    common: dict[str, Any] = {
        "seed": task.seed,
        "drafter": task.drafter,
        "believed": setup.load_believed(task.drafter),
        "serving": setup.serving,
    }
    if traffic is None:
        return simulate(
            task.load_trace(),
            setup.load_profile(),
            policy,
            concurrency=task.concurrency,
            output_tokens=setup.output_tokens,
            max_output_tokens=setup.max_output_tokens,
            **common,
        )
    mix, demand, arrival_s_Q = traffic.draw(setup.trace, task.seed, setup.max_output_tokens)
    return serve(mix.trace, demand, arrival_s_Q, setup.load_profile(), policy, **common)


def serve_all(
    plan: Plan, traffic: Traffic, *, out: Path | None, timeline: Path | None, as_json: bool
) -> None:
    """Serve ``traffic`` under every task of ``plan``; print the figures, and write records of requests.

    Raises:
        InputError: as :meth:`Traffic.draw`.
    """
    from dspark_sim.results.serving import serving_figures, write_requests

    folder = output_folder(out) if out is not None else None
    figures = []
    with progress(len(plan.tasks), "serving") as advance:
        for task in plan.tasks:
            run = log_of(task, traffic)
            figures.append(serving_figures(run))
            if folder is not None:
                write_requests(folder / f"requests-{_file_name(task)}.parquet", run)
            if timeline is not None:
                draw_timeline(timeline, run)
            advance(1)
    if as_json:
        print_json({"schema": SERVE_SCHEMA, "runs": figures, "about": _about(plan, traffic)})
    else:
        print_figures(plan, traffic, figures)


def check_timeline(tasks: Sequence[Task]) -> None:
    """Refuse a timeline of several runs.

    Raises:
        InputError: there is not one task.
    """
    if len(tasks) != 1:
        raise InputError(f"--timeline draws one run, not {len(tasks)}: give one --policy, load and seed")


def draw_timeline(path: Path, run: RunLog) -> None:
    """Write the timeline of ``run``, and say so on stderr."""
    from dspark_sim.results.timeline import write_timeline

    write_timeline(path, run)
    warn(f"wrote {path}")


def _file_name(task: Task) -> str:
    return "".join(c if c.isalnum() or c in "=,.-" else "-" for c in f"{task.policy}-seed{task.seed}")


def _about(plan: Plan, traffic: Traffic) -> dict[str, Any]:
    from dataclasses import asdict

    from dspark_sim.sweep import about

    return about(plan.setup, plan.tasks) | {"traffic": asdict(traffic)}


def print_figures(plan: Plan, traffic: Traffic, figures: Sequence[dict[str, Any]]) -> None:
    """Print caption, table and notes."""
    from dspark_sim.results.notes import caption, notes
    from dspark_sim.results.tables import footnotes, text_table
    from dspark_sim.sweep import about

    document = about(plan.setup, plan.tasks)
    what = " ".join(filter(None, [traffic.workload, traffic.arrivals, *traffic.mix]))
    print("\n".join([*caption(document), f"traffic  {what}, rate scale {traffic.rate_scale:g}"]) + "\n")
    columns = {"policy": "<", "req/s": ">", "tok/s\n/GPU": ">", "accepted\nlen": ">"}
    times = {"TTFT ms": "ttft_ms", "TPOT ms": "tpot_ms", "ITL ms": "itl_ms"}
    headers = {f"{name}\n{q}": (key, q) for name, key in times.items() for q in ("p50", "p99")}
    columns |= dict.fromkeys(headers, ">") | {"pre-\nempted": ">", "re-\nfused": ">", "span s": ">"}
    rows = []
    for run in figures:
        cells = {
            "policy": run["policy"],
            "req/s": f"{run['requests_per_s']:.2f}",
            "tok/s\n/GPU": f"{run['tok_per_s_per_gpu']:,.0f}",
            "accepted\nlen": "-" if run["accepted_len"] is None else f"{run['accepted_len']:.2f}",
            "pre-\nempted": f"{run['preemptions']:,}",
            "re-\nfused": f"{run['refused']:,}",
            "span s": f"{run['makespan_s']:,.0f}",
        }
        for header, (key, quantile) in headers.items():
            value = run[key][quantile]
            cells[header] = "-" if value is None else f"{value:,.1f}"
        rows.append(cells)
    print(text_table(columns, rows) + "\n")
    span = "span: from the first arrival to the last token; rates are over it."
    print(footnotes([span, *notes(document, [])]))
