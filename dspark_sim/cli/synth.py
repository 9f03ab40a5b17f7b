"""``dspark-sim synth``: a synthetic trace from published or given acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from dspark_sim.workload.synthetic import SynthDrafter, SynthSpec
    from dspark_sim.workload.traces import Trace

#: A name that begins like this is a drafter of that kind, unless the kind is said.
_KINDS = ("dspark", "dflash", "mtp", "eagle")


def synth(
    *,
    like: Annotated[str, typer.Option(help="Published acceptance, such as qwen3-4b-chat.")] = "",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME:KIND=c1,c2,...: conditional acceptance by position, once per drafter; "
            "KIND may be left out for a NAME such as eagle3."
        ),
    ] = None,
    target: Annotated[str, typer.Option(help="Target model, for the label.")] = "unnamed target",
    domain: Annotated[str, typer.Option(help="Domain, for the label.")] = "synthetic",
    requests: Annotated[int, typer.Option(help="Requests.")] = 400,
    output_tokens: Annotated[float, typer.Option(help="Mean output length in tokens (Weibull).")] = 300.0,
    prompt_tokens: Annotated[float, typer.Option(help="Mean prompt length in tokens (log-normal).")] = 110.0,
    spread_requests: Annotated[float, typer.Option(help="Spread between requests, in logits.")] = 0.7,
    spread_rounds: Annotated[float, typer.Option(help="Spread between rounds, in logits.")] = 1.2,
    spread_positions: Annotated[
        float, typer.Option(help="Spread between positions of a block, in logits.")
    ] = 0.9,
    noise: Annotated[float, typer.Option(help="Spread that confidences do not see, in logits.")] = 0.5,
    correlation: Annotated[float, typer.Option(help="Of rounds' difficulty, token to token.")] = 0.7,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Trace to write; default NAME.synth.parquet.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Make a synthetic trace: acceptance drawn from a model, for pairs that nobody here can run.

    Example: dspark-sim synth --like qwen3-4b-chat --out chat.synth.parquet
    """
    from dspark_sim.errors import InputError
    from dspark_sim.workload.published import SOURCE, published
    from dspark_sim.workload.synthetic import SynthSpec, synthesise
    from dspark_sim.workload.trace_io import write_trace

    if like and accept:
        raise InputError("--like and --accept: say one of them")
    if accept:
        drafters, made, name = tuple(map(parse_accept, accept)), "acceptance as given", "given"
    else:
        name = like or "qwen3-4b-chat"
        target, domain, drafters = published(name)
        made = f"acceptance after {SOURCE}"
    spec = SynthSpec(
        drafters=drafters,
        target=target,
        made=f"synthetic {made}",
        domain=domain,
        requests=requests,
        output_tokens=output_tokens,
        prompt_tokens=prompt_tokens,
        spread_requests=spread_requests,
        spread_rounds=spread_rounds,
        spread_positions=spread_positions,
        noise=noise,
        correlation=correlation,
        seed=seed,
    )
    path = out or Path(f"{name}.synth.parquet")
    trace = synthesise(spec, path.name.removesuffix(".parquet"))
    write_trace(path, trace)
    _print(trace, spec, path, json_out)


def parse_accept(word: str) -> SynthDrafter:
    """Return the drafter of ``NAME[:KIND]=c1,c2,...``.

    Raises:
        InputError: not of that form, or no kind said and none that the name begins with.
    """
    from dspark_sim.errors import InputError
    from dspark_sim.schema import DraftKind
    from dspark_sim.workload.synthetic import SynthDrafter

    label, _, numbers = word.partition("=")
    name, _, kind = label.partition(":")
    kind = kind or next((k for k in _KINDS if name.startswith(k)), "")
    if not name or kind not in _KINDS:
        raise InputError(
            f"--accept {word!r}: expected NAME:KIND=c1,c2,... with KIND one of {', '.join(_KINDS)}"
        )
    try:
        return SynthDrafter(name, cast(DraftKind, kind), tuple(float(c) for c in numbers.split(",")))
    except ValueError:
        raise InputError(f"--accept {word!r}: expected numbers after '=', as in dspark=0.8,0.75") from None


def _print(trace: Trace, spec: SynthSpec, path: Path, json_out: bool) -> None:
    from dspark_sim.cli.common import print_json
    from dspark_sim.results.tables import text_table
    from dspark_sim.workload.summary import summarise

    summary = summarise(trace, resamples=0)
    rows = [_row(d, spec) for d in summary["drafters"]]
    if json_out:
        print_json({"schema": "dspark-sim/synth/1", "out": str(path), "synthetic": True, "drafters": rows})
        return
    print(
        f"SYNTHETIC trace {path}: {summary['requests']} requests, {summary['output_tokens']:,} output tokens"
    )
    for row in rows:
        cells = [_cells(row, j) for j in range(len(row["requested"]))]
        print(f"\n{row['drafter']}: accepted length {row['accepted_len']:.2f}\n")
        print(text_table(dict.fromkeys(cells[0], ">"), cells))


def _row(drafter: dict[str, Any], spec: SynthSpec) -> dict[str, Any]:
    figures = drafter["domains"][0]
    wanted = next(d.conditional for d in spec.drafters if d.name == drafter["drafter"])
    return {
        "drafter": drafter["drafter"],
        "accepted_len": figures["accepted_len"],
        "requested": list(wanted),
        "conditional": figures["conditional"],
    }


def _cells(row: dict[str, Any], j: int) -> dict[str, str]:
    return {
        "position": str(j + 1),
        "conditional acceptance\nrequested": f"{row['requested'][j]:.3f}",
        "\nin the trace": f"{row['conditional'][j]:.3f}",
    }
