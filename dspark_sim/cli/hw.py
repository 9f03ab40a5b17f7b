"""``dspark-sim hw``: list, show and check hardware profiles; engines' tables in and out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark_sim.cli.hw_exchange import export, import_table

if TYPE_CHECKING:
    from dspark_sim.hardware.profile import HardwareProfile

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Look into hardware profiles (step-cost tables), and check them.",
)
app.command("import")(import_table)
app.command("export")(export)

JsonOut = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.command("list")
def list_profiles(json_out: JsonOut = False) -> None:
    """List the shipped profiles: device, model, GPUs.

    Example: dspark-sim hw list
    """
    from dspark_sim.cli.common import print_json
    from dspark_sim.files import data_folder
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.results.tables import text_table

    profiles = [load_profile(path) for path in sorted(data_folder("hw_profiles").glob("*.yaml"))]
    fields = ("name", "device", "model", "num_gpus", "description")
    rows = [{field: getattr(profile, field) for field in fields} for profile in profiles]
    if json_out:
        print_json({"schema": "dspark-sim/hw-list/1", "profiles": rows})
        return
    columns = {"name": "<", "device": "<", "model": "<", "num_gpus": ">"}
    print(text_table(columns, [{column: str(row[column]) for column in columns} for row in rows]))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A path, or the bare name of a shipped profile (h800.yaml).")],
    json_out: JsonOut = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also draw the staircase: a .png or .svg file.")
    ] = None,
    assignments: Annotated[
        list[str], typer.Option("--set", help="Override one field, e.g. capture.limit=512; repeats.")
    ] = [],  # noqa: B006 - typer copies it
) -> None:
    """Print what a step costs on a profile: staircase, falls, cliff, draft, attention, sources.

    The picture has the look-up over the table, and over the single timings where NAME.samples.parquet
    lies beside NAME.yaml.

    Example: dspark-sim hw show h800.yaml
    """
    from dspark_sim.cli.common import parse_set, print_json, warn
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.hardware.summary import summarise

    profile = load_profile(name, parse_set(assignments))
    summary = summarise(profile)
    if out is not None:
        _draw(profile, out, _samples(name))
        warn(f"wrote {out}")
    if json_out:
        print_json({"schema": "dspark-sim/hw/1", **summary})
    else:
        _print(summary)


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(help="Profiles: paths or bare names.")],
    json_out: JsonOut = False,
) -> None:
    """Validate profiles: one line a file, or one per fault; exit 1 if one breaks a rule, 2 if one is missing.

    Example: dspark-sim hw check hw_profiles/*.yaml
    """
    from dspark_sim.cli.common import print_json

    verdicts = [_verdict(file) for file in files]
    if json_out:
        print_json({"schema": "dspark-sim/hw-check/1", "files": verdicts})
    else:
        for verdict in verdicts:
            print("\n".join(verdict["problems"]) or f"{verdict['file']}: ok")
    if not all(verdict["ok"] for verdict in verdicts):
        raise typer.Exit(2 if any(verdict["missing"] for verdict in verdicts) else 1)


def _verdict(file: str) -> dict[str, Any]:
    """Return every fault of ``file``; one that is not there has that fault."""
    from dspark_sim.cli.common import warn
    from dspark_sim.errors import DataError, InputError
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.hardware.reading import ProfileError
    from dspark_sim.hardware.units import odd_units

    try:
        odd = odd_units(load_profile(file))
    except ProfileError as error:
        return {"file": file, "ok": False, "missing": False, "problems": list(error.problems)}
    except InputError as error:
        missing = not isinstance(error, DataError)
        return {"file": file, "ok": False, "missing": missing, "problems": [str(error)]}
    if odd:
        warn(f"{file}: {odd}")
    return {"file": file, "ok": True, "missing": False, "problems": []}


def _samples(name: str) -> list[tuple[int, float]]:
    """Return the single timings that lie beside a measured profile: (batch tokens, ms); none if none do."""
    from dspark_sim.errors import DataError
    from dspark_sim.files import find

    path = find(name, "hw_profiles", ".yaml").with_suffix(".samples.parquet")
    if not path.is_file():
        return []
    import pandas as pd

    from dspark_sim.hardware.measured import verify_samples

    try:
        return verify_samples(pd.read_parquet(path))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DataError(path, "", f"not the samples of a measurement: {error}") from None


def _draw(profile: HardwareProfile, path: Path, samples: list[tuple[int, float]]) -> None:
    from dspark_sim.errors import InputError
    from dspark_sim.results.plots_hw import draw_profile

    if path.suffix not in (".png", ".svg"):
        raise InputError(f"--out {path}: a picture ends in .png or .svg")
    draw_profile(profile, path, samples)


def _print(summary: dict[str, Any]) -> None:
    from dspark_sim.results.tables import footnotes, text_table

    print("\n".join(_header(summary)))
    print("\nVerify: one forward pass of the target, by batch tokens\n")
    columns = {"tokens": ">", "runs": ">", "ms": ">", "steps/s": ">"}
    print(text_table(columns, [_verify_cells(row) for row in summary["verify"]]))
    print("\n" + footnotes(_remarks(summary)))
    if by_requests := _by_requests(summary):
        print("\nBy running requests [ms]\n")
        print(text_table(dict.fromkeys(by_requests, ">"), _request_rows(by_requests)))
    print("\nSources\n")
    print(footnotes([f"{path} ({s['how']}): {s['source']}" for path, s in summary["sources"].items()]))


def _header(summary: dict[str, Any]) -> list[str]:
    import textwrap

    gpus = f"{summary['num_gpus']} GPU" + ("s" if summary["num_gpus"] > 1 else "")
    title = f"{summary['name']}: {summary['model']} on {summary['device']} ({gpus})"
    return [title, *textwrap.wrap(summary["description"], 100)]


def _verify_cells(row: dict[str, Any]) -> dict[str, str]:
    rate = 1e3 / row["ms"] if row["ms"] else 0.0
    return {
        "tokens": f"{row['tokens']:,}",
        "runs": f"{row['runs']:,}",
        "ms": f"{row['ms']:.2f}",
        "steps/s": f"{rate:.1f}",
    }


def _remarks(summary: dict[str, Any]) -> list[str]:
    host, context = summary["host"], summary["context_tokens"]
    lines = [f"read by {summary['lookup']}; {summary['captured_sizes']} captured sizes"]
    if cliff := summary["cliff"]:
        lines.append(
            f"capture limit {cliff['limit_tokens']:,} tokens: {cliff['at_limit_ms']:.2f} ms there, "
            f"{cliff['past_limit_ms']:.2f} ms one token past it"
        )
    if falls := summary["falls"]:
        deepest = min(falls, key=lambda fall: fall["to_ms"] / fall["from_ms"])
        lines.append(
            f"{len(falls)} sizes cost less than the size before them, e.g. {deepest['from_tokens']:,} tokens "
            f"{deepest['from_ms']:.2f} ms, {deepest['to_tokens']:,} tokens {deepest['to_ms']:.2f} ms"
        )
    lines.append(
        "attention comes on top"
        if not context
        else "attention is in it, at a context that is not stated"
        if context == 1
        else f"attention at {context:,} tokens of context is in it"
    )
    lines.append(
        f"host: {host['constant_ms']:g} ms a step, {host['per_request_ms']:g} ms a request; "
        f"{host['bubble_ms']:g} ms more if the scheduler is synchronous"
    )
    return [*lines, *_serving_remarks(summary)]


def _serving_remarks(summary: dict[str, Any]) -> list[str]:
    lines = []
    if experts := summary["experts"]:
        lines.append(
            f"experts that real tokens touch: up to {experts['all_ms']:g} ms more "
            f"({experts['active']} of {experts['total']} a token)"
        )
    if prefill := summary["prefill"]:
        table = "a table of its own" if prefill["tokens"] else "the verify table"
        lines.append(
            f"prompts read {table}; {prefill['ms_per_million_pairs']:g} ms per million pairs of tokens, "
            f"{prefill['mixed_ms']:g} ms more where they ride along"
        )
    if kv := summary["kv"]:
        lines.append(
            f"KV: {kv['blocks'] * kv['block_tokens']:,} tokens in {kv['blocks']:,} blocks, "
            f"{kv['blocks_drafting']:,} with a drafter's; captured graphs take {kv['graph_gib']:.2f} GiB"
        )
    return lines


def _by_requests(summary: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """Return header -> points of every table that goes by requests."""
    columns = {
        f"{kind}\nk={draft['k']}, {draft['pass']}": draft["ms"]
        for kind, draft in summary["draft"].items()
        if any(point["ms"] for point in draft["ms"])
    }
    if additive := summary["additive"]:
        columns["verify\nadded"] = additive
    if attention := summary["attention"]:
        columns[f"attention\ncontext {attention['context_tokens']:,}"] = attention["ms"]
    return {"requests": next(iter(columns.values())), **columns} if columns else {}


def _request_rows(columns: dict[str, list[dict[str, float]]]) -> list[dict[str, str]]:
    def cell(header: str, point: dict[str, float]) -> str:
        return f"{point['requests']:,}" if header == "requests" else f"{point['ms']:.2f}"

    rows = zip(*columns.values(), strict=True)
    return [{h: cell(h, point) for h, point in zip(columns, row, strict=True)} for row in rows]
