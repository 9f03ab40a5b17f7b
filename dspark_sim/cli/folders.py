"""Where results go, so that no former run is lost unasked.

The rule: a folder that holds another run, or files and no run, is never written to unless ``--force`` says
so. With ``--out`` that is an error; without, the next free name of ``runs/TRACE-HW``, ``-2``, ``-3``, ... is
taken. The same question again gives the same bytes, and goes where it went. A sweep also goes on in a folder
of the same set-up with another grid, whose finished points it keeps.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dspark_sim.cli.common import output_folder
from dspark_sim.errors import InputError

#: Folder of finished points inside the result folder of a sweep; an interrupted one holds nothing else.
KEPT = "points"


def results_folder(
    out: Path | None, default: Path, about: Mapping[str, Any], *, resume: bool = False, force: bool = False
) -> Path:
    """Return the folder for results, made and writable before anything is computed.

    Args:
        out: what the user asked for; None: ``default``, or the first free name after it.
        default: where results go unless something else is asked.
        about: document of the run to be written.
        resume: whether a folder of the same set-up and another grid may be gone on with.
        force: whether a former run may be replaced.

    Raises:
        InputError: ``out`` holds another run, or files and no run, or cannot be written to.
    """
    if out is not None:
        if is_foreign(out) and not force:
            raise InputError(f"--out {out}: holds files that are no run: name another folder, or --force")
        differs = other_run(out, about, resume)
        if differs and not force:
            raise InputError(
                f"--out {out}: holds another run (differs in {', '.join(differs)}): name another folder, or "
                "--force to replace it"
            )
        return output_folder(out)
    names = itertools.chain([default], (default.with_name(f"{default.name}-{n}") for n in itertools.count(2)))
    free = next(name for name in names if force or not (is_foreign(name) or other_run(name, about, resume)))
    return output_folder(free)


def is_foreign(folder: Path) -> bool:
    """Return whether ``folder`` holds files and no run, finished or not; hidden files do not count."""
    from dspark_sim.results.store import ABOUT, POINTS

    if not folder.is_dir():
        return False
    held = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    return bool(held) and not held & {ABOUT, POINTS, KEPT}


def other_run(folder: Path, about: Mapping[str, Any], resume: bool) -> list[str]:
    """Return in what a run in ``folder`` differs from ``about``; empty if there is none or the same."""
    from dspark_sim.results.store import ABOUT

    path = folder / ABOUT
    if not path.is_file():
        return []
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [f"an unreadable {ABOUT}"]
    ours = json.loads(json.dumps(about))
    if resume and (folder / KEPT).is_dir():  # what `run` left has no points to keep
        kept, ours = _goes_on(kept), _goes_on(ours)
    differs = [name for name in ours if kept.get(name) != ours[name]]
    return [_words(name, kept.get(name), ours[name]) for name in differs]


def _goes_on(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``about`` that a sweep must share to go on: not the grid.

    Of a share of the prompts each, the seeds too: what a seed replays depends on how many there are.
    """
    seeds = about.get("grid", {}).get("seed") if about.get("replications") != "all prompts" else None
    return {name: value for name, value in about.items() if name != "grid"} | {"grid": {"seed": seeds}}


def _words(name: str, kept: Any, ours: Any) -> str:
    """Return the name of a part of the document, and which of its entries differ."""
    if isinstance(kept, dict) and isinstance(ours, dict):
        inner = [key for key in ours if kept.get(key) != ours[key]]
        return f"{name}: {' and '.join(inner)}"
    return name
