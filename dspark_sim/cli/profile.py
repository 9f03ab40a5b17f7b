"""``dspark-sim profile``: time a real target and drafter on this machine into a hardware profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    import pandas as pd

    from dspark_sim.hardware.measure_plan import Plan
    from dspark_sim.hardware.profile import HardwareProfile
    from dspark_sim.model.drafter import Drafter
    from dspark_sim.model.target import Target
    from dspark_sim.schema import DraftKind

#: Every size where a CPU showed a step, then octaves in thirds.
TOKENS = "1,2,3,4,6,8,10,12,15,16,17,20,24,32,48,64,96,128"
#: Drafters of the default target.
SHIPPED = ("smollm2-dspark-g7", "smollm2-dflash-g7", "smollm2-mtp-g7")


def profile(
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="Profile to write, .yaml; samples lie beside it.")],
    target: Annotated[
        str, typer.Option("--target", help="Target: a name or a folder.")
    ] = "smollm2-135m-instruct",
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter",
            help="Drafter: a folder or a shipped name, one of a kind; '' times the target alone. "
            "Default: the three shipped ones.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="cpu, or cuda (graphs at capture sizes; not yet run on one).")
    ] = "cpu",
    tokens: Annotated[str, typer.Option("--tokens", help="Batch tokens of the target's pass.")] = TOKENS,
    requests: Annotated[
        str, typer.Option("--requests", help="Requests of draft passes and attention.")
    ] = "1,2,4,8,16",
    contexts: Annotated[
        str, typer.Option("--contexts", help="KV lengths of attention; drafting runs at the middle one.")
    ] = "64,192,512",
    capture_limit: Annotated[
        int, typer.Option("--capture-limit", min=0, help="Largest CUDA graph [tokens]; on cuda only.")
    ] = 256,
    rounds: Annotated[int, typer.Option("--rounds", min=3, help="Interleaved repeats of every size.")] = 9,
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads of a pass.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of tokens and of the order of a round.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget samples that are there.")] = False,
    against: Annotated[
        str | None, typer.Option("--against", help="Another profile: print the ratio of the verify tables.")
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure what a step costs here: the target by batch tokens, drafting, attention, sampling, prompts.

    Each round times every size once in a new order; a killed measurement goes on where it stopped. Writes
    the profile, the raw samples (.samples.parquet) and a picture (.png). One thread is timed in its own CPU
    time; close other work all the same, because it shares the caches.

    Example: dspark-sim profile --out cpu.yaml
    """
    from dspark_sim.cli.common import print_json, warn
    from dspark_sim.errors import InputError

    if out.suffix != ".yaml":
        raise InputError(f"--out {out}: a profile ends in .yaml")
    samples_path = out.with_suffix(".samples.parquet")
    if fresh:
        samples_path.unlink(missing_ok=True)
    from dspark_sim.hardware.profile import load_profile

    other = load_profile(against) if against else None
    names = tuple(name for name in (SHIPPED if drafter is None else drafter) if name)
    ask = _Ask(target, names, device, tokens, requests, contexts, capture_limit, threads, seed)
    plan, samples = _measure(ask, samples_path, rounds)
    made = _write(plan, samples, out)
    warn(f"wrote {out}, {samples_path.name}, {out.with_suffix('.png').name}")
    report = _report(plan, samples, made, other)
    if json_out:
        print_json({"schema": "dspark-sim/profile-run/1", **report})
    else:
        _print(report)


@dataclass(frozen=True)
class _Ask:
    """What the command was given."""

    target: str
    drafters: tuple[str, ...]
    device: str
    tokens: str
    requests: str
    contexts: str
    capture_limit: int
    threads: int
    seed: int

    @property
    def graphs_to(self) -> int:
        """Largest CUDA graph [tokens]; 0: none."""
        return self.capture_limit if self.device.startswith("cuda") else 0


def _measure(ask: _Ask, path: Path, rounds: int) -> tuple[Plan, pd.DataFrame]:
    from dspark_sim.cli.common import progress, warn
    from dspark_sim.cli.generate import load_on
    from dspark_sim.model.checkpoints import load_drafter
    from dspark_sim.model.profile_work import refuse_what_does_not_fit
    from dspark_sim.model.profiler import Profiler
    from dspark_sim.model.runtime import use_threads

    use_threads(ask.threads)
    target = load_on(ask.target, ask.device)
    drafters = [load_drafter(name, target) for name in ask.drafters]
    plan = _plan(ask, target, drafters)
    refuse_what_does_not_fit(plan.points(), target, plan.gamma)
    further = {drafter.config.kind: drafter for drafter in drafters[1:]}
    work = Profiler(target, drafters[0] if drafters else None, plan, path, further)
    if work.done:
        warn(f"{min(work.done, rounds)} of {rounds} rounds were there already")
    left = max(rounds - work.done, 0)
    with progress((left + 1) * len(plan.points()) if left else 1, "timing") as advance:
        return plan, work.run(rounds, advance)


def _plan(ask: _Ask, target: Target, drafters: Sequence[Drafter]) -> Plan:
    """Return the plan; the first drafter is its own.

    Raises:
        InputError: two drafters of a kind, of which a profile holds one.
    """
    from dspark_sim.cli.common import parse_sizes
    from dspark_sim.errors import InputError
    from dspark_sim.hardware.measure_plan import Further, Plan, capture_sizes_of
    from dspark_sim.model.profiler import clock_of, versions

    blocks = [
        Further(name, cast("DraftKind", drafter.config.kind), drafter.config.gamma)
        for name, drafter in zip(ask.drafters, drafters, strict=True)
    ]
    for index, one in enumerate(blocks):
        if first := next((other for other in blocks[:index] if other.kind == one.kind), None):
            raise InputError(
                f"--drafter {one.drafter}: of kind {one.kind} like {first.drafter}; a profile has one of each"
            )
    own = blocks[0] if blocks else Further("", "none", 7)
    tokens, limit = parse_sizes(ask.tokens, "--tokens"), ask.graphs_to
    requests, contexts = parse_sizes(ask.requests, "--requests"), parse_sizes(ask.contexts, "--contexts")
    for option, sizes in (("--requests", requests), ("--contexts", contexts)):
        if len(sizes) < 2:
            raise InputError(
                f"{option} {sizes[0]}: must be two sizes or more: attention beyond them follows the last two"
            )
    return Plan(
        target=ask.target,
        drafter=own.drafter,
        kind=own.kind,
        gamma=own.gamma,
        device=ask.device,
        dtype=str(target.dtype).removeprefix("torch."),
        clock=clock_of(ask.device, ask.threads)[0],
        threads=ask.threads,
        verify_tokens=capture_sizes_of(tokens, limit) if limit else tokens,
        draft_requests=requests,
        contexts=contexts,
        capture_limit=limit,
        seed=ask.seed,
        versions=versions(),
        further=tuple(blocks[1:]),
    )


def _write(plan: Plan, samples: pd.DataFrame, out: Path) -> HardwareProfile:
    from dspark_sim.files import write_text
    from dspark_sim.hardware.measured import profile_document, verify_samples
    from dspark_sim.hardware.reading import parse_profile
    from dspark_sim.hardware.writing import profile_text
    from dspark_sim.model.profiler import device_words
    from dspark_sim.results.plots_hw import draw_profile

    words = device_words(plan.device, plan.threads)
    named = " ".join(f"--drafter '{name}'" for name in (plan.drafter, *(f.drafter for f in plan.further)))
    command = f"dspark-sim profile --target {plan.target} {named} --device {plan.device}"
    document = profile_document(plan, samples, name=out.stem, device=words, command=command)
    made = parse_profile(document, str(out))
    write_text(out, profile_text(document))
    draw_profile(made, out.with_suffix(".png"), verify_samples(samples))
    return made


def _report(
    plan: Plan, samples: pd.DataFrame, made: HardwareProfile, other: HardwareProfile | None
) -> dict[str, Any]:
    from statistics import median

    from dspark_sim.hardware.measured import Medians, check_errors, ratios

    medians = Medians(samples)
    checks = [
        {"requests": r, "tokens": t, "composed_over_timed": 1.0 + error}
        for (r, t), error in check_errors(made, plan, medians).items()
    ]
    report = {
        "plan": plan.document(),
        "device": made.device,
        "points": medians.table.to_dict("records"),
        "samples": len(samples),
        "outliers": int(medians.table.outliers.sum()),
        "checks": checks,
    }
    if other is not None:
        by_tokens = ratios(made, other)
        report["against"] = {
            "profile": other.name,
            "median_ratio": median(by_tokens.values()),
            "median_distance": median(abs(ratio - 1.0) for ratio in by_tokens.values()),
            "lowest": min(by_tokens.values()),
            "highest": max(by_tokens.values()),
        }
    return report


def _print(report: dict[str, Any]) -> None:
    from dspark_sim.results.tables import footnotes, text_table

    print(f"{report['plan']['target']} ({report['plan']['dtype']}) on {report['device']}\n")
    columns = {
        "part": "<",
        "drafter": "<",
        "requests": ">",
        "tokens": ">",
        "context": ">",
        "ms": ">",
        "spread": ">",
    }
    rows = [
        {name: str(point[name]) for name in ("part", "drafter", "requests", "tokens", "context")}
        | {
            "ms": f"{point['median']:.2f}",
            "spread": f"{(point['high'] - point['low']) / point['median']:.1%}",
        }
        for point in report["points"]
    ]
    print(text_table(columns, rows) + "\n")
    worst = max(point["worst"] for point in report["points"])
    errors = [check["composed_over_timed"] - 1.0 for check in report["checks"]]
    lines = [
        f"{report['plan']['clock']}; median and interquartile range of each size",
        f"{report['outliers']} of {report['samples']} samples are outliers (kept; medians do not feel them); "
        f"the worst took {worst:.2f} times its median",
        f"whole steps timed at once: composed cost {min(errors):+.1%} to {max(errors):+.1%}",
    ]
    if against := report.get("against"):
        lines.append(
            f"verify over {against['profile']}: median ratio {against['median_ratio']:.3f}, median distance "
            f"from 1 {against['median_distance']:.1%}, {against['lowest']:.2f} to {against['highest']:.2f}"
        )
    print(footnotes(lines))
