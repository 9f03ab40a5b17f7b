"""``dspark-sim import``: other people's files as request tables or acceptance records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dspark_sim.workload.acceptance import AcceptanceRecords
    from dspark_sim.workload.importers.registry import ImporterInfo
    from dspark_sim.workload.workloads import Workload


def import_(
    fmt: Annotated[
        str, typer.Argument(metavar="FORMAT", help="Format, with options: mooncake:spread_s=3.")
    ] = "",
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="File to read.")] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Parquet file to write.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    list_out: Annotated[bool, typer.Option("--list", help="List the formats and their options.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Import request logs (arrivals and lengths) or engines' acceptance records.

    Example: dspark-sim import azure2023 AzureLLMInferenceTrace_conv.csv -o conv.parquet
    """
    from dspark_sim.cli.common import new_file, working
    from dspark_sim.errors import InputError
    from dspark_sim.workload.importers.registry import import_file, importers

    if list_out:
        _list(importers(), json_out)
        return
    if not fmt or file is None or out is None:
        raise InputError(
            "import needs FORMAT, FILE and -o OUT.parquet; dspark-sim import --list shows the formats"
        )
    new_file(out, force)
    with working("reading"):
        imported = import_file(fmt, file)
    document = _write(out, imported)
    _print(document, imported.source["notes"], json_out)


def _write(out: Path, imported: Workload | AcceptanceRecords) -> dict[str, Any]:
    """Write what was imported, and return what to say of it."""
    from dspark_sim.workload.acceptance import AcceptanceRecords, write_acceptance
    from dspark_sim.workload.workloads import describe, write_workload

    document: dict[str, Any] = {"schema": "dspark-sim/import/1", "out": str(out), "source": imported.source}
    if isinstance(imported, AcceptanceRecords):
        write_acceptance(out, imported)
        return document | {"gives": "acceptance", "acceptance": _summary(imported)}
    write_workload(out, imported)
    return document | {"gives": "workload", "workload": describe(imported)}


def _summary(records: AcceptanceRecords) -> dict[str, Any]:
    from dataclasses import asdict

    requests = None if records.requests is None else len(records.requests.request_id)
    return {"requests": requests, **asdict(records.summary), "survival": records.summary.survival}


def _print(document: dict[str, Any], notes: list[str], json_out: bool) -> None:
    from dspark_sim.cli.common import print_json
    from dspark_sim.results.tables import footnotes

    if json_out:
        print_json(document)
        return
    figures = document[document["gives"]]
    lines = _acceptance_lines(figures) if document["gives"] == "acceptance" else _workload_lines(figures)
    print("\n".join([f"{document['out']}: {document['gives']}", *lines]))
    if said := [*notes, *figures.get("caveats", ())]:
        print(footnotes(said))


def _workload_lines(figures: dict[str, Any]) -> list[str]:
    from dspark_sim.results.tables import number

    lines = [f"requests  {figures['requests']:,}"]
    if "span_s" in figures:
        lines.append(
            f"arrivals  {number(figures['span_s'])} s, {number(figures['rate_per_s'], 3)} requests/s, "
            f"CV of gaps {number(figures['cv_gaps'], 2)}"
        )
    for name in ("prompt_tokens", "output_tokens"):
        found = figures[name]
        quantiles = "/".join(number(found[p]) for p in ("p10", "p50", "p90", "p99"))
        lines.append(f"{name}  mean {number(found['mean'])}, p10/p50/p90/p99 {quantiles}")
    return lines


def _acceptance_lines(figures: dict[str, Any]) -> list[str]:
    from dspark_sim.results.tables import number

    def row(name: str) -> str:
        return f"{name:<12}" + " ".join(f"{number(value, 3):>6}" for value in figures[name])

    size = f"{number(figures['requests'])} requests, {number(figures['rounds'])} rounds"
    return [
        f"{size}, gamma {figures['gamma']}",
        f"accepted length {figures['accepted_len']:.4f} tokens/round, bonus included",
        row("conditional"),
        row("survival"),
        f"from {figures['basis']}",
    ]


def _list(infos: list[ImporterInfo], json_out: bool) -> None:
    from dspark_sim.cli.common import print_json
    from dspark_sim.results.tables import text_table

    rows = [_row(info) for info in infos]
    if json_out:
        print_json({"schema": "dspark-sim/importers/1", "formats": rows})
        return
    headers = dict.fromkeys(["format", "gives", "file", "options"], "<")
    print(text_table(headers, [row | {"options": _options(row["options"])} for row in rows]))


def _row(info: ImporterInfo) -> dict[str, Any]:
    from inspect import Parameter

    from dspark_sim.specs import options

    found = {k: None if v is Parameter.empty else v for k, v in options(info.function).items()}
    return {"format": info.name, "gives": info.gives, "file": info.file, "options": found}


def _options(found: dict[str, Any]) -> str:
    def shown(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    words = [f"{name}={'...' if value is None else shown(value)}" for name, value in found.items()]
    return ", ".join(words) or "-"
