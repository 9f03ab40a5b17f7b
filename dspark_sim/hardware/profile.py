"""The door to hardware profiles: read one by name, and the records that it is made of.

The file is YAML (``format: dspark-sim/profile/1``; every key in docs/hardware.md); its records stand in
:mod:`dspark_sim.hardware.structure` and :mod:`dspark_sim.hardware.sections`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dspark_sim.files import find
from dspark_sim.hardware.fields import FORMAT, Beyond, Lookup
from dspark_sim.hardware.reading import parse_profile, read_yaml
from dspark_sim.hardware.sections import (
    Additive,
    Attention,
    Capture,
    Drafters,
    EagerTail,
    Experts,
    Host,
    KvMemory,
    ParallelDraft,
    Prefill,
    SerialDraft,
    Source,
    VerifyTable,
)
from dspark_sim.hardware.structure import HardwareProfile

#: Format of what ``dspark-sim fit`` writes: a profile, a workload and acceptance in one file.
FITTED_FORMAT = "dspark-sim/fitted/1"

__all__ = [
    "FITTED_FORMAT",
    "FORMAT",
    "Additive",
    "Attention",
    "Beyond",
    "Capture",
    "Drafters",
    "EagerTail",
    "Experts",
    "HardwareProfile",
    "Host",
    "KvMemory",
    "Lookup",
    "ParallelDraft",
    "Prefill",
    "SerialDraft",
    "Source",
    "VerifyTable",
    "load_profile",
]


def load_profile(name: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> HardwareProfile:
    """Read a profile by path or shipped bare name (``h800.yaml``), with ``--set`` overrides applied.

    Args:
        name: a path, or the bare name of a shipped profile; ``.yaml`` may be left off. Of a fitted system
            (``dspark-sim fit``), the profile in it is read.
        overrides: dotted path -> YAML text, e.g. ``{"capture.limit": "4096"}``; a list may be written
            with bare commas.

    Raises:
        InputError: no such file.
        ProfileError: the content, or an override, breaks the format; ``problems`` holds every fault.
    """
    path = Path(find(name, "hw_profiles", ".yaml"))
    document = read_yaml(path)
    if isinstance(document, dict) and document.get("format") == FITTED_FORMAT:
        document = document.get("profile")
    return parse_profile(document, str(name), overrides or {})
