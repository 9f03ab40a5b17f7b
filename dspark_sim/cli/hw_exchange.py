"""``dspark-sim hw import`` and ``hw export``: cost tables of engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OutOption = Annotated[Path, typer.Option("-o", "--out", help="File to write.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]


def import_table(
    *,
    file: Annotated[Path, typer.Argument(help="JSON file with a cost table of SGLang or TensorRT-LLM.")],
    out: OutOption,
    table: Annotated[str | None, typer.Option("--table", help="Which table, where it holds several.")] = None,
    device: Annotated[str, typer.Option("--device", help="What it was measured on.")] = "not stated",
    model: Annotated[str, typer.Option("--model", help="Target model.")] = "not stated",
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs behind it.")] = 1,
    context: Annotated[
        int | None, typer.Option("--context", min=1, help="KV context of the measurement [tokens].")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Turn an engine's cost table into a profile. The format is told by the keys of the table.

    Example: dspark-sim hw import sps_table.json -o mine.yaml --device "1 x H200" --model Qwen3-14B
    """
    from dspark_sim.cli.common import new_file, warn
    from dspark_sim.files import write_text
    from dspark_sim.hardware.exchange import Described, choose_table, import_document
    from dspark_sim.hardware.reading import parse_profile
    from dspark_sim.hardware.writing import profile_text

    chosen = choose_table(_read_json(file), table, str(file))
    source = f"{file.name}{f', table {table}' if table else ''}"
    stated = f"{source}: {chosen['source']}" if isinstance(chosen.get("source"), str) else source
    described = Described(out.stem, device, model, gpus, stated, context)
    document = import_document(chosen, described, str(file))
    parse_profile(document, str(file))
    write_text(new_file(out, force), profile_text(document))
    warn(f"wrote {out}" + ("" if context else "; the table does not say its KV context (--context)"))


def export(
    *,
    name: Annotated[str, typer.Argument(help="Profile: a path or a shipped name.")],
    form: Annotated[str, typer.Option("--format", help="sglang, sglang-additive or trtllm.")],
    out: OutOption,
    drafter: Annotated[
        str | None, typer.Option("--drafter", help="Kind whose cost is included, or none. Default: dspark.")
    ] = None,
    gamma: Annotated[int, typer.Option("--gamma", min=1, help="Draft tokens of a full block.")] = 7,
    context: Annotated[int, typer.Option("--context", min=1, help="KV context per request [tokens].")] = 1024,
    assignments: Annotated[
        list[str], typer.Option("--set", help="Override one field, e.g. capture.limit=512; repeats.")
    ] = [],  # noqa: B006 - typer copies it
    force: ForceOption = False,
) -> None:
    """Write a profile as the cost table that an engine reads.

    Example: dspark-sim hw export h200-qwen3-14b --format sglang -o sps_table.json
    """
    import json

    from dspark_sim.cli.common import new_file, parse_set, warn
    from dspark_sim.errors import InputError, did_you_mean
    from dspark_sim.files import write_text
    from dspark_sim.hardware.exchange import FORMATS, export_table
    from dspark_sim.hardware.profile import load_profile

    if form not in FORMATS:
        raise InputError(f"--format {form}: not one of {', '.join(FORMATS)}{did_you_mean(form, FORMATS)}")
    profile = load_profile(name, parse_set(assignments))
    kind = drafter or ("dspark" if profile.draft.dspark else "none")
    kinds = ("none", *profile.draft.kinds)
    if kind not in kinds:
        raise InputError(
            f"--drafter {kind}: {profile.name} has {', '.join(kinds)}{did_you_mean(kind, kinds)}"
        )
    table = export_table(profile, form, kind=kind, gamma=gamma, context_tokens=context)
    write_text(new_file(out, force), json.dumps(table, indent=1) + "\n")
    warn(f"wrote {out}")


def _read_json(file: Path) -> object:
    import json

    from dspark_sim.errors import DataError, InputError

    if not file.is_file():
        raise InputError(f"{file}: no such file")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(file, "", f"cannot be read as UTF-8 text: {error}") from None
    except json.JSONDecodeError as error:
        raise DataError(file, f"line {error.lineno}", f"not valid JSON: {error.msg}") from None
