"""``dspark-sim policies``: the rules by name, with options, lag and verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dspark_sim.policies.base import PolicyInfo


def policies(
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the verification policies: options with defaults, lag, lossless verdict, source.

    Example: dspark-sim policies
    """
    from dspark_sim.cli.common import print_json
    from dspark_sim.policies.registry import policies as registered
    from dspark_sim.results.tables import text_table

    rows = [_row(info) for info in registered()]
    if json_out:
        print_json({"schema": "dspark-sim/policies/1", "policies": rows})
        return
    headers = dict.fromkeys(["policy", "options", "lag", "lossless at T > 0", "source"], "<")
    print(text_table(headers, [_cells(row) for row in rows]))
    print("Verdicts hold at the default lag; at temperature 0 every rule is lossless.")


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
    }


def _cells(row: dict[str, Any]) -> dict[str, str]:
    options = [f"{name}={'...' if value is None else value}" for name, value in row["options"].items()]
    return {
        "policy": row["name"],
        "options": ", ".join(options) or "-",
        "lag": str(row["default_lag"]),
        "lossless at T > 0": row["lossless"],
        "source": row["source"],
    }
