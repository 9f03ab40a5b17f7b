"""``dspark-sim calibrate``: fit a drafter's confidences to what was accepted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dspark_sim.workload.fitting import Fitted, FittedRecords
    from dspark_sim.workload.traces import Trace

#: Fewer visited anchors than this fit a calibration badly.
_FEW = 300


def calibrate(
    trace: Annotated[
        str,
        typer.Argument(help="A trace: path, or bare name of a shipped one; or confidence records, .jsonl."),
    ],
    *,
    method: Annotated[
        str, typer.Option(help="sts: a temperature a position (the paper's); bias: temperature and bias.")
    ] = "sts",
    drafter: Annotated[str, typer.Option(help="Drafter; default: each one with a confidence head.")] = "",
    temperatures: Annotated[
        Path | None, typer.Option(help="Take the calibration from this JSON (sts_temperatures) instead.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split of the prompts.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; default NAME.calibrated.parquet (records: NAME.sts.json)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Fit the calibration on half of the prompts, print its errors on the others, write it.

    Writes the trace with the calibration in its metadata (logits stay raw), and beside it, per drafter,
    a JSON with the key sts_temperatures that serving engines read. Of records (confidence_records.jsonl
    of DeepSpec's evaluator) only that JSON is written.

    Example: dspark-sim calibrate chat.parquet --out chat.calibrated.parquet
    """
    from dspark_sim.cli.common import new_file, print_json, working
    from dspark_sim.workload.fitting import write_temperatures
    from dspark_sim.workload.trace_io import read_trace, write_trace

    if trace.endswith(".jsonl"):
        records = Path(trace)
        path = new_file(out or Path(f"{records.name.partition('.')[0]}.sts.json"), force)
        _of_records(records, method, seed, path, json_out)
        return
    source = read_trace(trace)
    path = new_file(out or Path(f"{source.name}.calibrated.parquet"), force)
    with working("fitting"):
        fits = _fits(source, drafter, method, temperatures, seed)
    sidecars = {fit.drafter: new_file(path.with_suffix(f".{fit.drafter}.sts.json"), force) for fit in fits}
    write_trace(path, fits[-1].trace)
    for fit in fits:
        write_temperatures(sidecars[fit.drafter], fit.calibration)
    rows = [_row(fit, str(sidecars[fit.drafter])) for fit in fits]
    if json_out:
        print_json({"schema": "dspark-sim/calibrate/1", "out": str(path), "drafters": rows})
    else:
        _print(rows, path)


def _of_records(file: Path, method: str, seed: int, path: Path, json_out: bool) -> None:
    from dspark_sim.cli.common import print_json
    from dspark_sim.workload.fitting import calibrate_records, write_temperatures
    from dspark_sim.workload.importers.confidence import read_confidence_records

    found = calibrate_records(read_confidence_records(file), file.name, method, seed)
    write_temperatures(path, found.calibration)
    row = {"drafter": file.name, "json": str(path), **found.calibration.to_json()} | _scores(found)
    if json_out:
        print_json({"schema": "dspark-sim/calibrate/1", "out": str(path), "drafters": [row]})
    else:
        _print([row], path)


def _fits(trace: Trace, name: str, method: str, given: Path | None, seed: int) -> list[Fitted]:
    from dspark_sim.cli.common import warn
    from dspark_sim.errors import InputError
    from dspark_sim.workload.fitting import adopt, calibrate, read_temperatures

    chosen = [trace.drafter(name)] if name else [d for d in trace.drafters.values() if d.has_confidence]
    if not chosen:
        raise InputError(
            f"trace '{trace.name}': no drafter has a confidence head, so nothing can be calibrated"
        )
    fits = []
    for drafter in chosen:
        if given is None:
            fits.append(calibrate(trace, drafter.name, method, seed))
        else:
            fits.append(adopt(trace, drafter.name, read_temperatures(given, drafter.gamma), seed))
        trace, anchors = fits[-1].trace, fits[-1].anchors
        if anchors is not None and anchors < _FEW:
            warn(
                f"{drafter.name}: fitted on {anchors} visited anchors, which is little: below {_FEW:,} a "
                "calibration follows chance; record more answers"
            )
    return fits


def _row(fit: Fitted, sidecar: str) -> dict[str, Any]:
    return {"drafter": fit.drafter, "json": sidecar, **fit.calibration.to_json()} | _scores(fit)


def _scores(fit: Fitted | FittedRecords) -> dict[str, Any]:
    return {
        f"{name}_{when}": getattr(scores, f"{name}_G").tolist()
        for name in ("auc", "brier")
        for when, scores in (("before", fit.before), ("after", fit.after))
    }


def _print(rows: list[dict[str, Any]], path: Path) -> None:
    from dspark_sim.results.tables import text_table

    for row in rows:
        print(
            f"{row['drafter']}: {row['method']}, {row['fitted_on']}; scores on the prompts it did not see\n"
        )
        print(text_table(dict.fromkeys(_cells(row, 0), ">"), [_cells(row, j) for j in _positions(row)]))
        ece = (f"{_mean(row[key]):.3f}" for key in ("ece_before", "ece_after"))
        print(f"\nmean ECE of the survival over positions: before {next(ece)}, after {next(ece)}")
        print(f"wrote {path}" if row["json"] == str(path) else f"wrote {path} and {row['json']}")


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / max(len(known), 1)


def _positions(row: dict[str, Any]) -> range:
    return range(len(row["temperatures"]))


def _cells(row: dict[str, Any], j: int) -> dict[str, str]:
    numbers = {
        "temperature": row["temperatures"],
        "bias": row["biases"],
        "ECE before": row["ece_before"],
        "ECE after": row["ece_after"],
        "AUC before": row["auc_before"],
        "AUC after": row["auc_after"],
        "Brier before": row["brier_before"],
        "Brier after": row["brier_after"],
    }
    return {"position": str(j + 1)} | {name: _number(values[j]) for name, values in numbers.items()}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
