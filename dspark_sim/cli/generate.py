"""``dspark-sim generate``: answers of the target to prompts, for training or for recording."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dspark_sim.model.target import Target

TARGET = "smollm2-135m-instruct"
DRAFTER = "smollm2-dspark-g7"


def generate(
    prompts: Annotated[list[Path], typer.Argument(help="Prompts (JSON Lines: id, domain, turns).")],
    *,
    out: Annotated[Path, typer.Option(help="Corpus folder; what is there is kept, so a run resumes.")],
    target: Annotated[str, typer.Option(help="Target model: a name or a folder.")] = TARGET,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature.")] = 0.7,
    samples: Annotated[int, typer.Option(min=1, help="Answers a prompt.")] = 1,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Cap of an answer [tokens].")] = 192,
    max_prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Leave longer prompts out.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Stop taking prompts after so many output tokens.")
    ] = None,
    features: Annotated[
        bool, typer.Option("--features/--ids-only", help="Store what training needs: 7 kB a token.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling.")] = 0,
    worker: Annotated[str, typer.Option(help="I/N: this process takes every N-th answer.")] = "0/1",
    device: Annotated[str, typer.Option(help="cpu, or cuda (weights and products in bfloat16).")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads; two processes beat two threads.")] = 1,
    export: Annotated[
        Path | None, typer.Option(help="Also write all texts of the folder as one parquet (ids).")
    ] = None,
) -> None:
    """Sample answers from the target: with --features to train on, without to record.

    Example: dspark-sim generate prompts.jsonl --out corpus --features
    """
    from dspark_sim.model.corpus import export_texts
    from dspark_sim.model.drafter_config import target_tap_layers
    from dspark_sim.model.runtime import use_threads

    use_threads(threads)
    part, loaded = parse_worker(worker), load_on(target, device)
    sample_texts(
        loaded, prompts, out, samples=samples, temperature=temperature, max_new_tokens=max_new_tokens,
        seed=seed, part=part, max_prompt_tokens=max_prompt_tokens, max_response_tokens=max_tokens,
        taps=target_tap_layers(loaded.config.num_layers) if features else None,
    )  # fmt: skip
    if export is not None:
        print(f"wrote {export}: {export_texts(out, export)} texts")


def sample_texts(
    target: Target,
    prompts: Sequence[Path],
    folder: Path,
    *,
    samples: int,
    temperature: float,
    max_new_tokens: int,
    seed: int,
    part: tuple[int, int],
    domain: str = "",
    max_prompt_tokens: int | None = None,
    taps: Sequence[int] | None = None,
    max_response_tokens: int | None = None,
) -> int:
    """Sample answers into a corpus folder (what is there is kept); return the output tokens of this call.

    Raises:
        InputError: no prompt is left after ``domain`` and ``max_prompt_tokens``.
    """
    from dspark_sim.cli.common import progress, warn
    from dspark_sim.errors import InputError
    from dspark_sim.model.generate import generate_responses
    from dspark_sim.model.prompts import ChatTokenizer, interleave, read_prompts

    tokenizer = ChatTokenizer(target.config.name)
    groups = [tokenizer.prepare(read_prompts(path), max_prompt_tokens) for path in prompts]
    ready = [prompt for prompt in interleave(groups) if domain in ("", prompt.domain)]
    if not ready:
        raise InputError(f"no prompt of domain '{domain}' within {max_prompt_tokens} tokens")
    started = time.monotonic()
    with progress(len(ready) * samples // part[1], "sampling") as advance:
        tokens = generate_responses(
            target, ready, folder, temperature=temperature, max_new_tokens=max_new_tokens, samples=samples,
            taps=taps, seed=seed, worker=part[0], workers=part[1], max_response_tokens=max_response_tokens,
            on_progress=lambda state: advance(1),
        )  # fmt: skip
    seconds = time.monotonic() - started
    warn(f"sampled {tokens:,} tokens in {seconds:.0f} s ({tokens / max(seconds, 1e-9):.0f} tokens/s)")
    return tokens


def load_on(target: str, device: str) -> Target:
    """Return the target on ``device``.

    Raises:
        InputError: no such target, or no such device on this machine.
    """
    from dspark_sim.cli.common import working

    with working("loading the target"):
        from dspark_sim.model.loading import load_target
        from dspark_sim.model.runtime import check_device

        check_device(device)
        return load_target(target, device=device)


def parse_worker(text: str) -> tuple[int, int]:
    """Return (I, N) of ``I/N``.

    Raises:
        InputError: not of that form, or I not below N.
    """
    from dspark_sim.cli.common import parse_int
    from dspark_sim.errors import InputError

    own, _, all_ = text.partition("/")
    part = parse_int(own, "--worker", 0), parse_int(all_, "--worker", 1)
    if part[0] >= part[1]:
        raise InputError(f"--worker {text}: workers count from 0, so I/N needs I below N")
    return part
