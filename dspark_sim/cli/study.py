"""``dspark-sim study``: the paper's offline studies on drafters and traces at hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark_sim.cli.generate import TARGET

if TYPE_CHECKING:
    from dspark_sim.study.drafters import Pool
    from dspark_sim.study.result import Study
    from dspark_sim.study.subjects import Need
    from dspark_sim.workload.traces import Trace

#: The studies, in the order in which they run, and what each repeats.
STUDIES = {
    "acceptance": "figure 2: conditional acceptance by position",
    "gains": "table 1: accepted length and gains over the baselines",
    "length": "figure 4: accepted length and round latency by gamma",
    "depth": "figure 3: accepted length by depth",
    "threshold": "figure 5: acceptance rate under a threshold",
    "reliability": "figure 6: reliability before and after calibration",
    "confidence": "AUC of confidences beside its ceiling",
}
_TRACES = ("math.parquet", "code.parquet", "chat.parquet")
_OF_TRACES = ("threshold", "reliability", "confidence")
#: What ``train`` calls the head of each kind of drafter.
_HEADS = {"dspark": "vanilla", "dflash": "none", "mtp": "mtp"}


def study(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]...", help=f"Of: {', '.join(STUDIES)}; default: all."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="Folder for tables, pictures and study.json.")],
    trace: Annotated[
        list[str] | None, typer.Option(help="Recorded traces; default: the shipped math, code and chat.")
    ] = None,
    drafter: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER or FOLDER: evaluate these on --texts instead.")
    ] = None,
    texts: Annotated[
        list[Path] | None, typer.Option(help="Texts (generate --export) that drafters are evaluated on.")
    ] = None,
    per_domain: Annotated[int, typer.Option(min=2, help="Texts of each domain, one a prompt first.")] = 40,
    latency: Annotated[
        bool, typer.Option("--latency", help="Time rounds on this machine (figure 4).")
    ] = False,
    train: Annotated[
        Path | None, typer.Option(metavar="CORPUS", help="Train what a study lacks on this corpus; resumes.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of those runs and of their drafters.")] = Path(
        "study-runs"
    ),
    anchors: Annotated[
        int, typer.Option(min=1, help="Anchors that every drafter of length and depth is trained on.")
    ] = 150_000,
    draft_vocab: Annotated[
        int, typer.Option(min=0, help="Tokens that the drafters trained here can draft; 0: all.")
    ] = 8192,
    target: Annotated[str, typer.Option(help="Target model: a name or a folder.")] = TARGET,
    seed: Annotated[int, typer.Option(min=0, help="Seed of resampling and of the calibration's split.")] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Repeat the offline studies of the DSpark paper; the paper's numbers stand beside.

    Drafters are compared on traces that hold several, or, with --drafter and --texts, by the exact
    expectation of full-block replays. What a study lacks is said, and with --train trained, each drafter
    for itself. Exit 1 if all lack something and no study gives a table.

    Example: dspark-sim study threshold reliability confidence --out studies
    """
    from dataclasses import replace

    from dspark_sim.cli.common import output_folder, print_json, progress, working
    from dspark_sim.errors import InputError
    from dspark_sim.study.pool import evaluated_pool, trace_pool, with_latency

    chosen = _chosen(names)
    folder = output_folder(out)
    traces = _traces(trace)
    words = list(drafter or [])
    if train is not None:
        how = {"anchors": anchors, "draft_vocab": draft_vocab, "target": target}
        words += _train_missing(chosen, words, train, runs, how)
    done: list[Study] = []
    if any(name not in _OF_TRACES for name in chosen):
        if words and not texts:
            raise InputError("--drafter (and --train) need --texts: what the drafters are evaluated on")
        if words:
            files = [str(path) for path in texts or []]
            pool = evaluated_pool(
                words, files, target=target, per_domain=per_domain, cache=folder / "evaluations", bar=progress
            )
        else:
            pool = trace_pool(traces)
        pool = replace(with_latency(pool, target) if latency else pool, anchors=anchors)
        done += _drafter_studies(chosen, pool, seed)
    with working("studying traces"):
        done += _trace_studies(chosen, traces, seed)
    done.sort(key=lambda one: list(STUDIES).index(one.name))
    with working("drawing"):
        sources = {name: _of(traces) for name in _OF_TRACES}
        named = ", ".join(word.partition("=")[0].rpartition("/")[2] for word in words)
        others = f"drafters {named} ({target.rpartition('/')[2]})" if words else _of(traces)
        paths = [path for one in done for path in one.write(folder, sources.get(one.name, others))]
    document = {"schema": "dspark-sim/study/1", "studies": [one.document() for one in done]}
    _write_json(folder / "study.json", _with_former(document, folder / "study.json"))
    if json_out:
        print_json(document | {"files": [str(path) for path in paths]})
    else:
        _print(done)
        print(f"\nin {folder}: {', '.join([*(path.name for path in paths), 'study.json'])}")
    if not any(one.rows for one in done):
        raise typer.Exit(1)


def _chosen(names: Sequence[str] | None) -> list[str]:
    from dspark_sim.errors import InputError, did_you_mean

    for name in names or []:
        if name not in STUDIES:
            near = did_you_mean(name, STUDIES)
            raise InputError(f"no study '{name}'{near}; there are: {', '.join(STUDIES)}")
    return [name for name in STUDIES if name in (names or STUDIES)]


def _traces(words: Sequence[str] | None) -> list[Trace]:
    from dspark_sim.workload.trace_io import read_trace

    return [read_trace(word) for word in (words or _TRACES)]


def _of(traces: Sequence[Trace]) -> str:
    """Return whose texts and drafters traces are of, for the foot of a picture."""
    marks = "SYNTHETIC " if any(trace.synthetic for trace in traces) else ""
    targets = ", ".join(dict.fromkeys(str(trace.meta["target"]) for trace in traces))
    return f"{marks}traces {', '.join(trace.name for trace in traces)} ({targets})"


def _drafter_studies(chosen: Sequence[str], pool: Pool, seed: int) -> list[Study]:
    from dspark_sim.study.drafters import drafter_study

    return [drafter_study(name, pool, seed) for name in chosen if name not in _OF_TRACES]


def _trace_studies(chosen: Sequence[str], traces: Sequence[Trace], seed: int) -> list[Study]:
    from dspark_sim.study.traces import confidence_studies, threshold_study

    done = [threshold_study(traces)] if "threshold" in chosen else []
    if {"reliability", "confidence"} & set(chosen):
        done += [one for one in confidence_studies(traces, seed) if one.name in chosen]
    return done


def _train_missing(
    chosen: Sequence[str], words: Sequence[str], corpus: Path, runs: Path, how: dict[str, Any]
) -> list[str]:
    """Train every drafter that a chosen study needs and ``words`` lack; return their folders as words."""
    from dspark_sim.cli.common import warn
    from dspark_sim.cli.train import train as train_one
    from dspark_sim.model.export import export_run
    from dspark_sim.study.pool import subjects_of_words
    from dspark_sim.study.subjects import NEEDS, choose

    subjects = subjects_of_words(words)
    wanted = [name for name in chosen if name in NEEDS]
    lacking = dict.fromkeys(need for name in wanted for need in choose(name, subjects, how["anchors"])[1])
    fresh = []
    for need in lacking:
        run = runs / _name(need)
        warn(f"training {need.label} on {how['anchors']:,} anchors in {run}; stop and repeat to resume")
        head = _HEADS[need.kind]
        with redirect_stdout(sys.stderr):
            train_one(corpus, out=run, head=head, gamma=need.gamma, layers=need.layers, **how)
        export_run(run, run / "drafter", target=how["target"])
        fresh.append(f"{run.name}={run / 'drafter'}")
    return fresh


def _name(need: Need) -> str:
    return f"{need.kind}-g{need.gamma}" + (f"-l{need.layers}" if need.layers else "")


def _with_former(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """Add what ``path`` holds of studies that were not repeated: their tables stay in the folder too."""
    import json

    try:
        former = json.loads(path.read_text(encoding="utf-8"))["studies"]
        kept = {one["study"]: one for one in former}
    except (OSError, ValueError, KeyError, TypeError):
        return document
    both = kept | {one["study"]: one for one in document["studies"]}
    return document | {"studies": [both[name] for name in STUDIES if name in both]}


def _write_json(path: Path, document: object) -> None:
    import json

    from dspark_sim.cli.common import clean
    from dspark_sim.files import write_text

    write_text(path, json.dumps(clean(document), indent=1, ensure_ascii=False) + "\n")


def _print(done: Sequence[Study]) -> None:
    from dspark_sim.results.tables import footnotes, text_table
    from dspark_sim.study.result import cell

    for one in done:
        print(f"\n{one.name}: {one.title} ({one.figure})\n")
        if one.rows:
            columns = {key: "<" if isinstance(value, str) else ">" for key, value in one.rows[0].items()}
            print(text_table(columns, [{key: cell(value) for key, value in row.items()} for row in one.rows]))
        lacks = [f"missing: {'; '.join(one.missing)}"] if one.missing else []
        print(footnotes([*one.notes, *lacks]))
