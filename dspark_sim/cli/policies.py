"""``dspark-sim policies``: the rules by name, with options, lag and verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dspark_sim.policies.base import PolicyInfo


def policies(
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table of docs/policies.md.")] = False,
) -> None:
    """List the verification policies: options with defaults, lag, lossless verdict, source.

    Example: dspark-sim policies
    """
    from dspark_sim.cli.common import print_json
    from dspark_sim.policies.registry import policies as registered
    from dspark_sim.results.tables import LEAST_LAST, fold_name, text_table

    rows = [_row(info) for info in registered()]
    if json_out:
        print_json({"schema": "dspark-sim/policies/1", "policies": rows})
        return
    if markdown:
        print(markdown_table(registered()))
        return
    cells = [_cells(row) for row in rows]
    # Sources hold identifiers longer than the column: they break at their own joints.
    cells = [cell | {"source": fold_name(cell["source"], LEAST_LAST, ",:/=_ ")} for cell in cells]
    print(text_table(dict.fromkeys(cells[0], "<"), cells))
    print("Verdicts hold at the default lag; at temperature 0 every rule is lossless.")


def markdown_table(infos: list[PolicyInfo]) -> str:
    """Return rules, options, verdicts and what they were checked against as a Markdown table."""
    columns = ("policy", "options", "reads", "lag", "at T > 0", "checked against", "source")
    rows = []
    for info in infos:
        row = _row(info)
        cells = _cells(row)
        options = ", ".join(f"`{word}`" for word in cells["options"].split(", ")) if row["options"] else ""
        checked = {"paper": "the paper", "engine": "the engine's description", "page": "the project's page",
                   "abstract": "an abstract only", "own": "-"}[info.basis]  # fmt: skip
        rows.append(
            [f"`{info.name}`", options, info.reads, cells["lag"], row["lossless"], checked, info.source]
        )
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _row(info: PolicyInfo) -> dict[str, Any]:
    """Return what ``--json`` says of one rule; an option that must be given has the default null."""
    import inspect

    def shown(default: object) -> object:
        return None if default is inspect.Parameter.empty else default

    return {
        "name": info.name,
        "options": {name: shown(default) for name, default in info.options.items()},
        "default_lag": info.default_lag,
        "lossless": info.verdict(info.default_lag),
        "needs_confidence": info.needs_confidence,
        "reads": info.reads,
        "source": info.source,
        "checked_against": info.basis,
    }


def _cells(row: dict[str, Any]) -> dict[str, str]:
    options = [f"{name}={'...' if value is None else value}" for name, value in row["options"].items()]
    return {
        "policy": row["name"],
        "options": ", ".join(options) or "-",
        "lag": str(row["default_lag"]),
        "lossless\nat T > 0": row["lossless"],
        "checked\nagainst": row["checked_against"],
        "source": row["source"],
    }
