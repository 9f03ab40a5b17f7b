"""Where the samples lie, and how the importer tests write and read files."""

import json
from pathlib import Path

import pytest

from dspark_sim.workload.importers.registry import import_file

SAMPLES = Path(__file__).parent / "data" / "importers"
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "workloads"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the real traces are not beside this checkout")


def sample(spec, name):
    return import_file(spec, SAMPLES / name)


def written(folder: Path, name: str, *documents: object) -> Path:
    """Write documents as JSON Lines and return the path."""
    path = folder / name
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path
