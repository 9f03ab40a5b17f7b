"""Which version of the simulator this is, by the content of the sources that decide a point."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_CODE = (
    "engine",
    "hardware",
    "policies",
    "results/details.py",
    "results/metrics.py",
    "workload",
    "rng.py",
    "schema.py",
)


@cache
def code_hash() -> str:
    """Return the SHA-256 (hex) of the sources that decide a point."""
    package = Path(__file__).parents[1]
    files = [p for name in _CODE for p in (package / name, *sorted((package / name).rglob("*.py")))]
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in files if p.is_file())).hexdigest()
