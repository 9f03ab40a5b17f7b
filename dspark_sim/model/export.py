"""Turn a training run into a drafter that ships: float16 weights, config, learning curve."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dspark_sim.errors import DataError
from dspark_sim.files import atomic_path
from dspark_sim.model.checkpoints import load_drafter, save_drafter
from dspark_sim.model.loading import read_json
from dspark_sim.model.trainer import checkpoints


def export_run(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    target: str,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Write the newest checkpoint of a training run to ``out``, without the target's own tensors.

    Args:
        run: run folder of ``train``.
        out: folder for config.json, model.safetensors (float16) and curve.csv.
        target: name or path of the target; it goes into config.json, for whoever loads it.
        notes: more for the key ``training`` of config.json (data, temperature, command).

    Raises:
        DataError: the run has no checkpoint yet.
    """
    run, out = Path(run), Path(out)
    found = checkpoints(run)
    if not found:
        raise DataError(run, "", "holds no checkpoint yet")
    state = read_json(found[-1] / "state.json")
    drafter = load_drafter(found[-1] / "drafter")
    training = {"anchors": state["anchors"], "step": state["step"], "config": state["config"]} | dict(
        notes or {}
    )
    save_drafter(
        drafter, out, with_target=False, dtype=torch.float16, notes={"target": target, "training": training}
    )
    if (run / "curve.csv").is_file():
        with atomic_path(out / "curve.csv") as temporary:
            shutil.copyfile(run / "curve.csv", temporary)
    return out
