"""``dspark-sim fit``: unknowns of a system from a measured sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_sim.cli import options as o

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark_sim.fit import Unknown
    from dspark_sim.fitting.arms import Arm
    from dspark_sim.fitting.fitted_file import Fitted
    from dspark_sim.fitting.predict import Predicted
    from dspark_sim.fitting.sweep_fit import Frame
    from dspark_sim.measured import Measured

SweepFile = Annotated[
    str,
    typer.Option(
        "--sweep",
        help="CSV with arm, concurrency, output_tok_per_s, tok_per_s_per_user; or a folder of results of "
        "vllm bench serve or sglang.bench_serving named ARM-cN.json, or ARM.jsonl; or a shipped sweep.",
    ),
]
ArmOption = Annotated[
    list[str] | None,
    typer.Option("--arm", help="What an arm runs, NAME=POLICY, where its name does not say it; repeats."),
]
CutOption = Annotated[
    float | None,
    typer.Option(
        "--user-cut",
        min=0,
        help="tok/s/user up to this value were clamped by an axis and count as not measured; 0: none. "
        "Default: a smallest value that two rows share.",
    ),
]


def fit(
    sweep: SweepFile,
    arms: Annotated[str, typer.Option("--arms", help="Arms whose rows may be used, a comma list.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="YAML file to write; a picture lands beside it.")],
    hw: Annotated[
        str | None,
        typer.Option(
            "--hw",
            help="Profile with the system's own curves. Default: b300-tp4-dsv4-flash, borrowed.",
        ),
    ] = None,
    borrowed: Annotated[
        bool, typer.Option("--borrowed", help="The curves of --hw are another system's: scale them.")
    ] = False,
    experts: Annotated[
        str | None, typer.Option("--experts", help="ACTIVE/TOTAL experts of a mixture, where --hw lacks it.")
    ] = None,
    draft_share: Annotated[
        float,
        typer.Option("--draft-share", min=0.0, help="Scale of the drafter's cost over the verify table's."),
    ] = 1.0,
    arm: ArmOption = None,
    unknown: Annotated[
        list[str] | None,
        typer.Option("--unknown", help="Prior NAME=MODE:SPREAD (of the logarithm; 0 holds it); repeats."),
    ] = None,
    user_cut: CutOption = None,
    assignments: o.SetOption = None,
    seed: o.SeedOption = 0,
    json_out: o.JsonOption = False,
) -> None:
    """Fit host time, interference of prompts, lengths and acceptance to the arms that may be used.

    Writes a file that `dspark-sim predict` alone can run. --set changes the profile or the benchmark's
    workload first: workload.requests, requests_at_one, max_output_tokens, prefill, ...

    Example: dspark-sim fit --sweep vllm_pro_sweep --arms nospec,k7 --out fitted.yaml
    """
    from dspark_sim.cli.common import parse_set, warn, working
    from dspark_sim.fitting.arms import parse_arms
    from dspark_sim.fitting.fitted_file import write_fitted
    from dspark_sim.fitting.result import fitted_of, fitted_rows
    from dspark_sim.fitting.start import applicable, with_priors
    from dspark_sim.fitting.sweep_fit import fit_sweep
    from dspark_sim.fitting.sweeps import read_sweep, used_rows

    source = sweep_path(sweep)
    rows, notes = read_sweep(source, user_cut)
    known = parse_arms([row.arm for row in rows], given_arms(arm))
    used = used_rows(rows, [word.strip() for word in arms.split(",")])
    mine = {row.arm: known[row.arm] for row in used}
    overrides = parse_set(assignments or ()) | {"workload.seed": str(seed)}
    borrows = borrowed or hw is None
    frame = _frame(hw, known, overrides, borrows=borrows, share=(experts, draft_share))
    unknowns = _priors(frame, borrows, used, known)
    asked = applicable(with_priors(unknowns, unknown or ()), frame, mine)
    with working("fitting"):
        found = fit_sweep(frame, asked, known, used)
    fitted, predicted = fitted_of(found, known, source), fitted_rows(found)
    write_fitted(out, fitted)
    picture = out.with_suffix(".png")
    draw(f"Fitted to {', '.join(fitted.provenance.arms)} of {source.name}", predicted, known, picture)
    for note in notes:
        warn(note)
    warn(f"wrote {out} and {picture.name} beside it")
    _say(fitted, predicted, out, json_out)


def _say(fitted: Fitted, predicted: Sequence[Predicted], out: Path, json_out: bool) -> None:
    from dspark_sim.cli.common import print_json
    from dspark_sim.fitting import result, words
    from dspark_sim.fitting.fitted_file import plain

    source = fitted.provenance
    if json_out:
        rows = result.json_rows(predicted, source.rows)
        unknowns = plain(source.unknowns)
        print_json({"schema": "dspark-sim/fit/1", "out": str(out), "unknowns": unknowns, "rows": rows})
        return
    print(words.unknowns_text(source), words.rows_text(predicted, set(source.rows)), sep="\n\n")


def sweep_path(name: str) -> Path:
    """Return the file or folder of a sweep: a path, or a shipped one by its bare name."""
    from dspark_sim.validation.tables import path_of

    path = Path(name)
    return path_of(name) if not path.exists() and path.name == name and path_of(name).is_file() else path


def given_arms(words: Sequence[str] | None) -> dict[str, str]:
    """Return name -> policy of ``--arm NAME=POLICY`` words.

    Raises:
        InputError: a word without a policy.
    """
    from dspark_sim.errors import InputError

    given = {}
    for word in words or ():
        name, equals, spec = word.partition("=")
        if not equals or not name.strip() or not spec.strip():
            raise InputError(f"--arm {word!r}: expected NAME=POLICY, as in --arm mine=static:k=3")
        given[name.strip()] = spec.strip()
    return given


def draw(title: str, predicted: Sequence[Predicted], arms: Mapping[str, Arm], path: Path) -> None:
    """Draw both sides of every row, and the errors."""
    from dspark_sim.results.plots_validation import draw_case
    from dspark_sim.validation.vllm import panels

    draw_case(title, panels(predicted, arms), path)


def _frame(
    hw: str | None,
    arms: Mapping[str, Arm],
    overrides: dict[str, str],
    *,
    borrows: bool,
    share: tuple[str | None, float],
) -> Frame:
    """Return what the fit starts from; ``share``: --experts and --draft-share."""
    from dspark_sim.fitting.arms import BLOCK
    from dspark_sim.fitting.sweep_fit import Frame
    from dspark_sim.fitting.system import Workload, workload_with
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.validation.vllm import BASE, STAIRS

    ours = {k.removeprefix("workload."): v for k, v in overrides.items() if k.startswith("workload.")}
    others = {k: v for k, v in overrides.items() if not k.startswith("workload.")}
    if borrows:
        others = {"model": "not stated by the sweep", "device": "not stated by the sweep"} | others
    base = load_profile(hw or BASE, others)
    if base.eager is not None and base.eager.tokens is not None:
        base = load_profile(hw or BASE, STAIRS | others)
    experts, draft_share = share
    active = _experts(experts) if experts else (6, 256) if hw is None else None
    gamma = max((arm.block for arm in arms.values()), default=0) or BLOCK
    return Frame(base, workload_with(Workload(), ours), gamma, active, draft_share)


def _experts(word: str) -> tuple[int, int]:
    from dspark_sim.errors import InputError

    active, slash, total = word.partition("/")
    if not (slash and active.isdecimal() and total.isdecimal() and 0 < int(active) <= int(total)):
        raise InputError(f"--experts {word!r}: expected ACTIVE/TOTAL, as in --experts 6/256")
    return int(active), int(total)


def _priors(
    frame: Frame, borrowed: bool, used: Sequence[Measured], arms: Mapping[str, Arm]
) -> Sequence[Unknown]:
    from dspark_sim.fitting.start import scaled_to
    from dspark_sim.validation.priors_vllm import UNKNOWNS

    return scaled_to(UNKNOWNS["V4-Pro"], frame.base, used, arms) if borrowed else UNKNOWNS["V4-Flash"]
