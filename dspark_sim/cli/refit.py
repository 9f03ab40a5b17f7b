"""``dspark-sim refit``: a confidence head fitted anew on texts that its backbone never saw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark_sim.cli.generate import TARGET

if TYPE_CHECKING:
    from dspark_sim.model.refit import Telling


def refit(
    drafter: Annotated[str, typer.Argument(help="Drafter: a folder, or the name of a shipped one.")],
    corpus: Annotated[Path, typer.Argument(help="Corpus folder with features.")],
    *,
    save: Annotated[Path, typer.Option(help="Folder for the drafter with its new head.")],
    target: Annotated[str, typer.Option(help="Target model: a name or a folder.")] = TARGET,
    held_out: Annotated[
        int | None,
        typer.Option(min=1, max=99, help="Percent of prompts that training kept apart."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All texts: the drafter was trained on none of this corpus.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option(help="Let the head read how peaked the draft distribution is; an extension.")
    ] = True,
    anchors: Annotated[int, typer.Option(min=100, help="Anchors to fit on, at most.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of anchors and of the split that scores.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads.")] = 1,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Fit only the confidence head, on prompts that training kept apart; the rest stays as it is.

    Scores old and new head on a third of those prompts, then fits on all of them and writes the drafter.

    Example: dspark-sim refit runs/mine/drafter corpus --save drafters/mine
    """
    from dspark_sim.cli.common import print_json, progress, working
    from dspark_sim.model.refit import collect, fit_head, split_by_prompt, telling
    from dspark_sim.model.refit_files import open_drafter, save_refitted, unseen_texts
    from dspark_sim.model.runtime import use_threads

    use_threads(threads)
    with working("loading"):
        opened = open_drafter(drafter, target, held_out)
    texts, temperature = unseen_texts(corpus, None if every else opened.held_out)
    with progress(anchors, "anchors") as advance:
        examples = collect(
            opened.drafter, texts, temperature, most_anchors=anchors, seed=seed, on_progress=advance
        )
    fits, scores = split_by_prompt(examples, 2 / 3, seed)
    before = telling(opened.drafter, scores)
    after = telling(fit_head(opened.drafter, fits, statistics=statistics), scores)
    row = {
        "prompts": len(set(examples.prompts)),
        "scored_on": len(set(scores.prompts)),
        "positions": len(examples.rate_N),
        "statistics": statistics,
        "seed": seed,
    }
    final = fit_head(opened.drafter, examples, statistics=statistics)
    save_refitted(final, opened, save, row)
    if json_out:
        both = {"before": _figures(before), "after": _figures(after)}
        print_json({"schema": "dspark-sim/refit/1", "drafter": drafter, "saved": str(save), **row, **both})
    else:
        _print(before, after, row, save)


def _figures(told: Telling) -> dict[str, Any]:
    names = ("events", "rate", "confidence", "auc", "ceiling", "share")
    return {name: getattr(told, f"{name}_G").tolist() for name in names}


def _print(before: Telling, after: Telling, row: dict[str, Any], save: Path) -> None:
    from dspark_sim.results.tables import text_table

    columns = ("position", "events", "rate", "confidence", "AUC", "ceiling", "share", "share before")
    rows = [
        {
            "position": str(j + 1),
            "events": f"{after.events_G[j]:,.0f}",
            "rate": f"{after.rate_G[j]:.3f}",
            "confidence": f"{before.confidence_G[j]:.3f} -> {after.confidence_G[j]:.3f}",
            "AUC": f"{before.auc_G[j]:.3f} -> {after.auc_G[j]:.3f}",
            "ceiling": f"{after.ceiling_G[j]:.3f}",
            "share": f"{after.share_G[j]:.2f}",
            "share before": f"{before.share_G[j]:.2f}",
        }
        for j in range(len(after.events_G))
    ]
    print(text_table(dict.fromkeys(columns, ">"), rows))
    print(
        f"\nfitted on two thirds of {row['prompts']} unseen prompts, scored on {row['scored_on']} others; "
        f"the head in {save} is fitted on all of them"
    )
