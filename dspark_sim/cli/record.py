"""``dspark-sim record``: from texts or prompts to a dense trace, or to a log of live rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_sim.cli.generate import DRAFTER, TARGET, load_on, parse_worker, sample_texts

if TYPE_CHECKING:
    from dspark_sim.model.recording import NamedDrafter
    from dspark_sim.model.target import Target


def record(
    out: Annotated[Path, typer.Option(help="Trace to write (with --live: log of rounds), .parquet.")],
    *,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompts (JSON Lines: id, domain, turns); answers are sampled first.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="Texts sampled before: a corpus folder, or its exported parquet.")
    ] = None,
    drafter: Annotated[
        list[str] | None, typer.Option(help="FOLDER, shipped name, or NAME=FOLDER; repeats.")
    ] = None,
    target: Annotated[str, typer.Option(help="Target model: a name or a folder.")] = TARGET,
    domain: Annotated[str, typer.Option(help="Record texts of this domain only.")] = "",
    requests: Annotated[int | None, typer.Option(min=1, help="Most requests (with --live: prompts).")] = None,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature (with --prompts).")] = 0.7,
    samples: Annotated[int, typer.Option(min=1, help="Answers a prompt (with --prompts).")] = 3,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Cap of an answer (with --prompts).")] = 160,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every draw.")] = 0,
    source: Annotated[str, typer.Option(help="Where the prompts come from, for the metadata.")] = "",
    parts: Annotated[
        Path | None, typer.Option(help="Folder of finished requests; default OUT.parts. Resumes.")
    ] = None,
    worker: Annotated[str, typer.Option(help="I/N: this process takes every N-th prompt.")] = "0/1",
    device: Annotated[str, typer.Option(help="cpu, or cuda (weights and products in bfloat16).")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads; two processes beat two threads.")] = 1,
    live: Annotated[bool, typer.Option("--live", help="Decode live and log ordinary rounds.")] = False,
    trace: Annotated[
        str, typer.Option(help="--live: trace that gives calibration, temperature and cap.")
    ] = "",
    policy: Annotated[str, typer.Option(help="--live: verification policy.")] = "full",
    concurrency: Annotated[int, typer.Option(min=1, help="--live: requests in a step.")] = 16,
    hw: Annotated[str, typer.Option(help="--live: profile that the policy plans with.")] = "h800.yaml",
    passes: Annotated[int, typer.Option(min=1, help="--live: times each prompt is answered.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that this did not write.")] = False,
) -> None:
    """Record what a drafter does from every output position of texts that the target wrote.

    A killed run goes on where it stopped. With --live, decode the prompts of a trace again, and log
    the rounds for replay-check.

    Example: dspark-sim record --prompts prompts.jsonl --out mine.parquet
    """
    from dspark_sim.cli.common import new_file
    from dspark_sim.errors import InputError
    from dspark_sim.model.prompts import read_prompts
    from dspark_sim.model.recording import load_named
    from dspark_sim.model.runtime import use_threads

    use_threads(threads)
    names = drafter or [DRAFTER]
    if live:
        if prompts is None or not trace:
            raise InputError("record --live needs --prompts FILE and --trace FILE (whose prompts they are)")
        ask = LiveAsk(prompts, trace, policy, concurrency, hw, passes, requests, seed)
        new_file(out, force)
        _live(load_on(target, device), names, ask, out)
        return
    if (prompts is None) == (texts is None):
        raise InputError("record needs --prompts FILE or --texts FILE, one of the two")
    part, folder = parse_worker(worker), parts or out.with_suffix(".parts")
    if not folder.is_dir():  # else this is what wrote ``out``, or goes on with it
        new_file(out, force)
    loaded = load_on(target, device)
    ready, only = None, None
    if prompts is not None:
        ready = load_named(names, loaded)  # before the long part
        texts = folder / "texts"
        only = {(prompt.prompt_id, n) for prompt in read_prompts(prompts) for n in range(samples)}
        sample_texts(
            loaded, [prompts], texts, samples=samples, temperature=temperature, max_new_tokens=max_new_tokens,
            seed=seed, part=part, domain=domain,
        )  # fmt: skip
    assert texts is not None
    origin = source or (prompts or texts).name
    _dense(loaded, DenseAsk(texts, only, names, ready, domain, requests, seed, part, origin), folder, out)


@dataclass(frozen=True, slots=True)
class DenseAsk:
    """What to record.

    Attributes:
        texts: a corpus folder or its exported parquet.
        only: (prompt, sample) of the texts to keep, where the folder may hold others; None: all.
        names, ready: the drafters as they were asked for, and loaded where that came first.
        domain, requests, part, source: which texts, as which part of the work, from where in words.
        seed: of every draw.
    """

    texts: Path
    only: set[tuple[str, int]] | None
    names: Sequence[str]
    ready: Sequence[NamedDrafter] | None
    domain: str
    requests: int | None
    seed: int
    part: tuple[int, int]
    source: str


@dataclass(frozen=True, slots=True)
class LiveAsk:
    """What to decode live."""

    prompts: Path
    trace: str
    policy: str
    concurrency: int
    hw: str
    passes: int
    requests: int | None
    seed: int


def _dense(target: Target, ask: DenseAsk, parts: Path, out: Path) -> None:
    from dspark_sim.cli.common import progress, warn
    from dspark_sim.model import recording as r
    from dspark_sim.model.record import Recorder
    from dspark_sim.model.record_store import RecordingFolder
    from dspark_sim.workload.trace_io import write_trace

    info, found = r.open_texts(ask.texts)
    found = [text for text in found if ask.only is None or text.key in ask.only]
    chosen = r.choose_texts(found, ask.domain, ask.requests)
    drafters = ask.ready or r.load_named(ask.names, target)
    recorder = Recorder(
        target, {d.name: d.drafter for d in drafters}, temperature=info.temperature, seed=ask.seed
    )
    settings = r.recording_settings(recorder, info, drafters)
    folder = RecordingFolder(parts, settings)
    started = time.monotonic()
    with progress(len(chosen), "recording") as advance:
        anchors = r.record_texts(
            recorder, folder, chosen, part=ask.part, on_progress=lambda state: advance(1)
        )
    seconds = time.monotonic() - started
    warn(f"recorded {anchors:,} anchors in {seconds:.0f} s ({anchors / max(seconds, 1e-9):.0f} anchors/s)")
    missing = sum(not folder.has(text) for text in chosen)
    if missing:
        warn(f"{missing} of {len(chosen)} requests are still missing; the worker that ends last writes {out}")
        return
    write_trace(out, r.assemble(out.stem, folder, chosen, settings=settings, info=info, source=ask.source))
    print(f"wrote {out}: {len(chosen)} requests, {sum(text.response_len for text in chosen):,} anchors")


def _live(target: Target, names: Sequence[str], ask: LiveAsk, out: Path) -> None:
    from dspark_sim.cli.common import progress, warn
    from dspark_sim.errors import InputError
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.model import recording as r
    from dspark_sim.model.live import LiveSettings
    from dspark_sim.model.prompts import ChatTokenizer, read_prompts
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.workload.rounds import merge, write_rounds
    from dspark_sim.workload.trace_io import read_trace

    source, drafters = read_trace(ask.trace), r.load_named(names, target)
    chosen, policy = drafters[0], parse_policy(ask.policy)
    recorded = source.drafter(chosen.name)
    if source.meta["drafters"][chosen.name].get("checkpoint") != chosen.checkpoint:
        raise InputError(f"trace '{source.name}' was recorded with another checkpoint of '{chosen.name}'")
    settings = LiveSettings(
        policy,
        load_profile(ask.hw, None),
        ask.concurrency,
        calibration=recorded.calibration,
        temperature=source.meta["temperature"],
        max_new_tokens=int(source.meta["notes"]["max_new_tokens"]),
        seed=ask.seed,
    )
    tokenizer = ChatTokenizer(target.config.name)
    prompts = r.prompts_of(source, tokenizer.prepare(read_prompts(ask.prompts)), ask.requests, ask.seed)
    meta = {
        "trace": ask.trace,
        "drafter": chosen.name,
        "checkpoint": chosen.checkpoint,
        "policy": policy.label,
        "concurrency": ask.concurrency,
        "hw": ask.hw,
        "seed": ask.seed,
    }
    started = time.monotonic()
    with progress(len(prompts) * ask.passes, "decoding") as advance:
        logs = r.live_rounds(
            target, chosen, prompts, settings, passes=ask.passes, meta=meta, on_progress=advance
        )
    rounds, seconds = merge(logs), time.monotonic() - started
    write_rounds(out, rounds)
    warn(f"{len(rounds):,} rounds in {seconds:.0f} s")
    print(f"wrote {out}: {len(rounds):,} rounds of {len(prompts)} prompts under {policy.label}")
