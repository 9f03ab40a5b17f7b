"""``dspark-sim synth``: a synthetic trace from published or given acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

if TYPE_CHECKING:
    from dspark_sim.schema import DraftKind
    from dspark_sim.workload.synth_spec import Mode, SynthDrafter, SynthSpec
    from dspark_sim.workload.traces import Trace

#: A name that begins like this is a drafter of that kind, unless the kind is said.
_KINDS = ("dspark", "dflash", "mtp", "eagle")

#: Published acceptance where nothing is said.
DEFAULT = "qwen3-4b-chat"


def synth(
    *,
    like: Annotated[
        str,
        typer.Option(help=f"Published acceptance. Default, where none of the next three is said: {DEFAULT}."),
    ] = "",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME:KIND=c1,c2,...: conditional acceptance by position, once per drafter; "
            "KIND may be left out for a NAME such as eagle3."
        ),
    ] = None,
    records: Annotated[
        Path | None, typer.Option("--from", help="Acceptance records, as `dspark-sim import` writes them.")
    ] = None,
    accepted_len: Annotated[
        float | None, typer.Option(help="Mean accepted length, bonus included; all positions alike.")
    ] = None,
    gamma: Annotated[int, typer.Option(min=1, help="Draft tokens of a block, with --accepted-len.")] = 7,
    kind: Annotated[
        str, typer.Option(help="Kind of the drafter, with --from or --accepted-len; also its name.")
    ] = "dspark",
    mode: Annotated[
        str,
        typer.Option(
            help="empirical; geometric (every draft alike); minimum-variance (every round alike, as "
            "serving benchmarks simulate acceptance); drift (changes along a text)."
        ),
    ] = "empirical",
    drift: Annotated[float, typer.Option(help="Mode drift: logits per 1,000 tokens of context.")] = 0.0,
    switch: Annotated[
        float, typer.Option(help="Mode drift: logits between easy and hard stretches of a text.")
    ] = 0.0,
    dwell: Annotated[float, typer.Option(help="Mode drift: mean length of a stretch in tokens.")] = 100.0,
    target: Annotated[str, typer.Option(help="Target model, for the label.")] = "unnamed target",
    domain: Annotated[str, typer.Option(help="Domain, for the label.")] = "synthetic",
    requests: Annotated[int, typer.Option(help="Requests.")] = 400,
    output_tokens: Annotated[float, typer.Option(help="Mean output length in tokens (Weibull).")] = 300.0,
    prompt_tokens: Annotated[float, typer.Option(help="Mean prompt length in tokens (log-normal).")] = 110.0,
    spread_requests: Annotated[
        float | None, typer.Option(help="Spread between requests, in logits [default: 0.7].")
    ] = None,
    spread_rounds: Annotated[
        float | None, typer.Option(help="Spread between rounds, in logits [default: 1.2].")
    ] = None,
    spread_positions: Annotated[
        float | None, typer.Option(help="Spread between positions of a block, in logits [default: 0.9].")
    ] = None,
    noise: Annotated[
        float | None, typer.Option(help="Spread that confidences do not see, in logits [default: 0.5].")
    ] = None,
    auc: Annotated[
        float | None,
        typer.Option(min=0.5, max=1, help="Scale the spreads until the survival's mean AUC is this."),
    ] = None,
    ece: Annotated[
        str, typer.Option(help="Calibration error of the survival, too sure: one number, or one a position.")
    ] = "",
    correlation: Annotated[float, typer.Option(help="Of rounds' difficulty, token to token.")] = 0.7,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Trace to write; default NAME.synth.parquet.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Make a synthetic trace: acceptance drawn from a model, for pairs that nobody here can run.

    Example: dspark-sim synth --like qwen3-4b-chat --out chat.synth.parquet
    """
    from dspark_sim.cli.common import new_file, working
    from dspark_sim.workload.synth_confidence import match_auc, overconfident
    from dspark_sim.workload.synth_spec import ALIKE, SynthSpec
    from dspark_sim.workload.synthetic import synthesise_blocks
    from dspark_sim.workload.trace_io import read_trace, write_parts

    base = _base(_Said(like, accept, records, accepted_len), gamma, kind)
    path = new_file(out or Path(f"{base.name}.synth.parquet"), force)
    errors = _numbers(ece, "--ece") if ece else ()
    spreads = {
        "spread_requests": spread_requests,
        "spread_rounds": spread_rounds,
        "spread_positions": spread_positions,
        "noise": noise,
    }
    unsaid = dict.fromkeys(spreads, 0.0) if mode in ALIKE else {}
    spec = SynthSpec(
        drafters=base.drafters,
        target=base.target or target,
        made=f"synthetic {base.made}" + ("" if mode == "empirical" else f", mode {mode}"),
        domain=base.domain or domain,
        requests=requests,
        output_tokens=output_tokens,
        prompt_tokens=prompt_tokens,
        correlation=correlation,
        seed=seed,
        mode=cast("Mode", mode),
        drift=drift,
        switch=switch,
        dwell=dwell,
        **unsaid | {name: value for name, value in spreads.items() if value is not None},
    )
    name = path.name.removesuffix(".parquet")
    with working("drawing"):
        blocks = synthesise_blocks(spec if auc is None else match_auc(spec, auc), name)
        write_parts(path, (overconfident(block, errors) if errors else block for block in blocks))
        trace = read_trace(path)
    _print(trace, spec, path, json_out)


class _Base(NamedTuple):
    """Where acceptance comes from; target and domain are empty if the source does not say."""

    name: str
    made: str
    drafters: tuple[SynthDrafter, ...]
    target: str = ""
    domain: str = ""


class _Said(NamedTuple):
    """The four ways to say acceptance, of which one may be used."""

    like: str
    accept: list[str] | None
    records: Path | None
    accepted_len: float | None


def _base(said: _Said, gamma: int, kind: str) -> _Base:
    from dspark_sim.errors import InputError
    from dspark_sim.workload.published import published, source_of

    options = zip(("--like", "--accept", "--from", "--accepted-len"), said, strict=True)
    given = [option for option, value in options if value]
    if len(given) > 1:
        raise InputError(f"{', '.join(given)}: say one of them")
    if said.accept:
        return _Base("given", "acceptance as given", tuple(map(parse_accept, said.accept)))
    if said.records is not None:
        return _of_records(said.records, kind)
    if said.accepted_len is not None:
        return _of_length(said.accepted_len, gamma, kind)
    name = said.like or DEFAULT
    target, domain, drafters = published(name)
    return _Base(name, f"acceptance after {source_of(name)}", drafters, target, domain)


def _of_records(path: Path, kind: str) -> _Base:
    from dspark_sim.cli.common import warn
    from dspark_sim.workload.acceptance import read_acceptance

    found = read_acceptance(path)
    for caveat in found.summary.caveats:
        warn(caveat)
    made = f"acceptance after the records {found.name}, basis {found.summary.basis}"
    return _Base(path.stem, made, (_drafter(kind, found.summary.filled()),))


def _of_length(length: float, gamma: int, kind: str) -> _Base:
    from dspark_sim.workload.acceptance import geometric

    drafter = _drafter(kind, (geometric(gamma, length),) * gamma)
    return _Base("given", f"accepted length {length:g} as given", (drafter,))


def _drafter(kind: str, conditional: tuple[float, ...]) -> SynthDrafter:
    from dspark_sim.errors import InputError, did_you_mean
    from dspark_sim.workload.synth_spec import SynthDrafter

    if kind not in _KINDS:
        raise InputError(f"--kind {kind}: not one of {', '.join(_KINDS)}{did_you_mean(kind, _KINDS)}")
    return SynthDrafter(kind, cast("DraftKind", kind), conditional)


def parse_accept(word: str) -> SynthDrafter:
    """Return the drafter of ``NAME[:KIND]=c1,c2,...``.

    Raises:
        InputError: not of that form, or no kind said and none that the name begins with.
    """
    from dspark_sim.errors import InputError
    from dspark_sim.workload.synth_spec import SynthDrafter

    label, _, numbers = word.partition("=")
    name, _, kind = label.partition(":")
    kind = kind or next((k for k in _KINDS if name.startswith(k)), "")
    if not name or kind not in _KINDS:
        raise InputError(
            f"--accept {word!r}: expected NAME:KIND=c1,c2,... with KIND one of {', '.join(_KINDS)}"
        )
    return SynthDrafter(name, cast("DraftKind", kind), _numbers(numbers, f"--accept {word!r}"))


def _numbers(words: str, what: str) -> tuple[float, ...]:
    from dspark_sim.errors import InputError

    try:
        return tuple(float(word) for word in words.split(","))
    except ValueError:
        raise InputError(f"{what}: expected numbers with commas between them, as in 0.8,0.75") from None


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
        asked, got = row["requested_accepted_len"], row["accepted_len_uncut"]
        print(f"\n{row['drafter']}: accepted length {got:.2f}, requested {asked:.2f}\n")
        print(text_table(dict.fromkeys(cells[0], ">"), cells))


def _row(drafter: dict[str, Any], spec: SynthSpec) -> dict[str, Any]:
    from dspark_sim.workload.synth_modes import accepted_len_of, law

    figures = drafter["domains"][0]
    wanted = next(d for d in spec.drafters if d.name == drafter["drafter"])
    return {
        "drafter": drafter["drafter"],
        "mode": spec.mode,
        "accepted_len": figures["accepted_len"],
        "accepted_len_uncut": figures["accepted_len_uncut"],
        "requested_accepted_len": accepted_len_of(wanted),
        "requested": law(spec.mode, wanted).tolist(),
        "conditional": figures["conditional"],
        "auc": figures.get("auc_raw"),
        "ece": figures.get("ece_raw"),
    }


def _cells(row: dict[str, Any], j: int) -> dict[str, str]:
    from dspark_sim.results.tables import number

    scores = {"survival\nAUC": row["auc"], "\nECE": row["ece"]}
    cells = {
        "position": str(j + 1),
        "conditional acceptance\nrequested": f"{row['requested'][j]:.3f}",
        "\nin the trace": number(row["conditional"][j], 3),
    }
    return cells | {name: number(values[j], 3) for name, values in scores.items() if values}
