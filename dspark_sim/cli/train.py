"""``dspark-sim train``: a drafter, on answers that ``generate --features`` stored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_sim.cli.generate import TARGET, load_on

if TYPE_CHECKING:
    from dspark_sim.model.drafter_config import DrafterConfig
    from dspark_sim.model.target import Target
    from dspark_sim.model.train import TrainProgress

#: ``<jupyter_script>`` of SmolLM2, which has no mask token: what the learned mask vector starts from.
MASK_TOKEN = 15


def train(
    corpus: Annotated[Path, typer.Argument(help="Corpus folder with features; may still be growing.")],
    *,
    out: Annotated[
        Path,
        typer.Option(
            help="Run folder: checkpoints, one every two minutes, and curve.csv; a run there goes on."
        ),
    ],
    target: Annotated[str, typer.Option(help="Target model: a name or a folder.")] = TARGET,
    head: Annotated[
        str,
        typer.Option(help="vanilla, gated or rnn (DSpark); none (DFlash); mtp: one layer, serial passes."),
    ] = "vanilla",
    gamma: Annotated[int, typer.Option(min=1, help="Draft tokens in a block.")] = 7,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers; default 2, with mtp 1.")] = None,
    rank: Annotated[int, typer.Option(min=1, help="Markov rank.")] = 128,
    draft_vocab: Annotated[
        int, typer.Option(min=0, help="Tokens that can be drafted; 0: all. Lossless either way.")
    ] = 8192,
    anchors: Annotated[int, typer.Option(min=1, help="Anchors to train on.")] = 350_000,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 7e-4,
    stop_after_s: Annotated[
        float | None, typer.Option(min=0, help="Write a checkpoint and stop after so many seconds.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Also write the drafter here, in float16.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of start and order.")] = 0,
    device: Annotated[
        str, typer.Option(help="cpu, or cuda (the frozen target and products in bfloat16).")
    ] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads.")] = 1,
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Compile the backbone's pass; default: on cuda only."),
    ] = None,
) -> None:
    """Train a drafter against the frozen target's stored features; kill and repeat to resume.

    Example: dspark-sim train corpus --out runs/dspark --save drafters/dspark
    """
    from dspark_sim.model.checkpoints import save_drafter
    from dspark_sim.model.runtime import SHIPPED_DTYPE, use_threads
    from dspark_sim.model.train import train as run_training
    from dspark_sim.model.trainer import TrainConfig, checkpoints, init_from_target

    use_threads(threads)
    loaded = load_on(target, device)
    ids = _draft_ids(corpus, out, draft_vocab, loaded)
    config = drafter_config(loaded, head=head, gamma=gamma, layers=layers, rank=rank, ids=ids)
    drafter = init_from_target(config, loaded, seed)
    settings = TrainConfig(total_anchors=anchors, lr=lr, seed=seed, compiled=compiled)
    with _progress(anchors) as report:
        run_training(drafter, corpus, out, settings, on_progress=report, stop_after_s=stop_after_s)
    _draw_curve(out, config.kind, loaded.config.name)
    curve = (
        "curve.csv and its picture" if (out / "curve.csv").is_file() else "no learning curve (none held out)"
    )
    print(f"checkpoints, {curve}: {out}")
    reached = int(checkpoints(out)[-1].name.removeprefix("ckpt-"))
    if reached < anchors:
        print(f"stopped at {reached:,} of {anchors:,} anchors; the same command goes on")
    if save is not None:
        save_drafter(drafter, save, with_target=False, dtype=SHIPPED_DTYPE, notes={"target": target})
        print(f"wrote {save}")


def _draw_curve(folder: Path, kind: str, target: str) -> None:
    """Draw ``curve.png`` where the run has been validated at least once."""
    from dspark_sim.results.plots_training import draw_curves, read_curve

    table = folder / "curve.csv"
    if table.is_file():
        draw_curves({kind: read_curve(table)}, folder / "curve.png", f"{kind} for {target}")


def drafter_config(
    target: Target, *, head: str, gamma: int, layers: int | None, rank: int, ids: tuple[int, ...] | None
) -> DrafterConfig:
    """Return the config of a drafter for ``target``: the reference's taps, layers of the target's sizes.

    ``head`` mtp stands for the autoregressive baseline, which has one layer and no head.

    Raises:
        InputError: mtp with more layers.
    """
    from dspark_sim.errors import InputError
    from dspark_sim.model.drafter_config import DrafterConfig, target_tap_layers

    serial = head == "mtp"
    layers = layers or (1 if serial else 2)
    if serial and layers != 1:
        raise InputError(f"--head mtp has one layer, not --layers {layers}")
    head = "none" if serial else head
    return DrafterConfig(
        gamma=gamma,
        target_layer_ids=target_tap_layers(target.config.num_layers),
        num_layers=layers,
        block=target.config.block,
        vocab_size=target.config.vocab_size,
        draft_vocab_ids=ids,
        head=head,
        markov_rank=0 if head == "none" else rank,
        confidence_with_markov=head != "none",
        normalize_taps=True,
        mask_token_id=min(MASK_TOKEN, target.config.vocab_size - 1),
        learned_mask=True,
        num_target_layers=target.config.num_layers,
        serial=serial,
    )


def _draft_ids(corpus: Path, out: Path, size: int, target: Target) -> tuple[int, ...] | None:
    """Return the draft vocabulary: of the run that is there, else chosen from the corpus as it is now."""
    from dspark_sim.model.checkpoints import load_drafter
    from dspark_sim.model.trainer import checkpoints
    from dspark_sim.model.trainset import TrainSet, choose_draft_vocab

    TrainSet(corpus)  # refuses what cannot be trained on, before anything else is looked at
    found = checkpoints(out)
    if found:
        return load_drafter(found[-1] / "drafter").config.draft_vocab_ids
    return choose_draft_vocab(corpus, size, always=target.config.eos_token_ids) if size else None


@contextmanager
def _progress(total: int) -> Iterator[Callable[[TrainProgress], None] | None]:
    """Yield a reporter that shows anchors/s, losses and expected tau on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=total)
        yield lambda state: bar.update(task, completed=state.anchors, description=_line(state))


def _line(state: TrainProgress) -> str:
    tau = "-" if state.accepted_len is None else f"{state.accepted_len:.3f}"
    return (
        f"{state.anchors:,} anchors, {state.anchors_per_s:.0f}/s | loss {state.loss:.3f} (ce {state.ce:.2f}, "
        f"l1 {state.l1:.3f}, confidence {state.confidence:.3f}) | tau {tau}"
    )
