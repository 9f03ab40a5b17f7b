"""``dspark-sim predict``: every row of a sweep on a fitted system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_sim.cli import options as o
from dspark_sim.cli.fit import ArmOption, CutOption, SweepFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dspark_sim.fitting.arms import Arm
    from dspark_sim.fitting.fitted_file import Fitted
    from dspark_sim.fitting.predict import Predicted
    from dspark_sim.fitting.result import Bounds


def predict(
    hw: Annotated[str, typer.Option("--hw", help="What dspark-sim fit wrote.")],
    sweep: SweepFile,
    *,
    arm: ArmOption = None,
    assignments: o.SetOption = None,
    draws: Annotated[
        int,
        typer.Option(
            "--draws", min=0, help="Simulate each row so many times more, for intervals; 16 are enough."
        ),
    ] = 0,
    user_cut: CutOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draws.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Picture (.png, .svg) of both sides.")] = None,
    json_out: o.JsonOption = False,
) -> None:
    """Simulate every row of a sweep; score those that were not fitted.

    --set changes one thing of the fitted system first, and the sweep is then another system's:
    capture.limit=4096, workload.max_output_tokens=2048, ...

    Example: dspark-sim predict --hw fitted.yaml --sweep vllm_flash_sweep --set capture.limit=4096
    """
    from dspark_sim.cli.common import parse_set, print_json, progress, warn
    from dspark_sim.cli.fit import draw, given_arms, sweep_path
    from dspark_sim.fitting import result, words
    from dspark_sim.fitting.arms import parse_arms
    from dspark_sim.fitting.fitted_file import read_fitted
    from dspark_sim.fitting.predict import predict as simulate
    from dspark_sim.fitting.sweeps import read_sweep

    fitted = read_fitted(hw, parse_set(assignments or ()))
    source = sweep_path(sweep)
    rows, notes = read_sweep(source, user_cut)
    names = dict.fromkeys(row.arm for row in rows)
    given = {name: spec for name, spec in fitted.arms.items() if name in names} | given_arms(arm)
    gamma = len(fitted.system.acceptance.base_logits)
    arms = parse_arms(names, given, longest=gamma)
    with progress(len(rows) * (1 + draws), "simulating") as advance:
        predicted = simulate(fitted.system, arms, rows, advance)
        bounds = _bounds(fitted, predicted, arms, (draws, seed), advance) if draws else None
    used = _used(fitted, source, bool(assignments))
    for note in notes:
        warn(note)
    if out is not None:
        draw(f"{fitted.label} on {source.name}", predicted, arms, out)
    if json_out:
        print_json(
            {
                "schema": "dspark-sim/predict/1",
                "hw": hw,
                "set": parse_set(assignments or ()),
                "draws": draws,
                "rows": result.json_rows(predicted, used, bounds),
            }
        )
        return
    print(words.rows_text(predicted, set(used), bounds))


def _used(fitted: Fitted, source: Path, changed: bool) -> list[tuple[str, int]]:
    """Return the rows of this sweep that were fitted: none if it is another one, or the system changed."""
    from dspark_sim.fitting.fitted_file import sha256_of

    same = not changed and fitted.provenance.sha256 == sha256_of(source)
    return list(fitted.provenance.rows) if same else []


def _bounds(
    fitted: Fitted,
    predicted: Sequence[Predicted],
    arms: Mapping[str, Arm],
    draws: tuple[int, int],
    advance: Callable[[int], None],
) -> Bounds:
    """Return the intervals of tok/s from ``draws``: (how many, seed)."""
    import numpy as np

    from dspark_sim.fitting.intervals import draws as redrawn
    from dspark_sim.fitting.intervals import interval, left_over
    from dspark_sim.fitting.predict import predict as simulate

    rows = [p.measured for p in predicted]
    drawn = [
        [p.tok_per_s for p in simulate(system, arms, rows, advance)] for system in redrawn(fitted, *draws)
    ]
    best = np.array([p.tok_per_s for p in predicted])
    return interval(best, np.array(drawn), left_over(fitted))
