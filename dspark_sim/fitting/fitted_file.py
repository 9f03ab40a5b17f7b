"""The file of a fitted system: profile, workload, acceptance, arms, and how they were got.

YAML, strict, self-contained: ``predict`` needs nothing else, and a command that takes a profile
(``--hw``) reads the profile in it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dspark_sim.errors import DataError, InputError, did_you_mean
from dspark_sim.files import find, write_text
from dspark_sim.fitting.system import KNOWN, Acceptance, System, Workload, checked, workload_with
from dspark_sim.hardware.fields import Section
from dspark_sim.hardware.profile import FITTED_FORMAT, HardwareProfile
from dspark_sim.hardware.reading import parse_profile, read_yaml
from dspark_sim.hardware.writing import profile_text
from dspark_sim.measured import result_files
from dspark_sim.schema import FloatArray

_WORKLOAD = "workload."


@dataclass(frozen=True, slots=True)
class Estimated(Section):
    """One unknown: fitted value, 95% interval, prior, and the width of the one over the other."""

    name: str
    value: float
    low: float
    high: float
    prior_mode: float
    prior_spread: float
    width: float
    identified: bool
    why: str


@dataclass(frozen=True, slots=True)
class Provenance(Section):
    """Where a fit comes from.

    Attributes:
        sweep, sha256: name and content of the sweep.
        arms: which of its arms were used; rows: (arm, concurrency) of them.
        unknowns: what was fitted.
        covariance: of the logarithms of the unknowns.
        residual_pct: of each row used: error of tok/s and of tok/s/user; None: not measured.
    """

    sweep: str
    sha256: str
    arms: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    unknowns: tuple[Estimated, ...]
    covariance: tuple[tuple[float, ...], ...]
    residual_pct: tuple[tuple[float | None, float | None], ...]


@dataclass(frozen=True, slots=True)
class Document(Section):
    """The file's content; ``arms``: policy spec of every arm of the sweep."""

    format: Literal["dspark-sim/fitted/1"]
    profile: dict[str, Any]
    workload: Workload
    acceptance: Acceptance
    arms: dict[str, str]
    fit: Provenance


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted system as read: ``label`` is the name of its file.

    ``seen_tokens``: ``max_output_tokens`` of the benchmark that was fitted, whatever was set since.
    """

    system: System
    arms: Mapping[str, str]
    provenance: Provenance
    label: str
    seen_tokens: int

    @property
    def values(self) -> dict[str, float]:
        """Fitted values by name."""
        return {unknown.name: unknown.value for unknown in self.provenance.unknowns}

    @property
    def covariance(self) -> FloatArray:
        """Of the logarithms of the unknowns, [U, U]."""
        return np.array(self.provenance.covariance)


def write_fitted(path: str | os.PathLike[str], fitted: Fitted) -> None:
    """Write a fitted system, atomically."""
    system = fitted.system
    document = {
        "format": FITTED_FORMAT,
        "fit": plain(fitted.provenance),
        "arms": dict(fitted.arms),
        "workload": plain(system.workload),
        "acceptance": plain(system.acceptance),
        "profile": profile_document(system.profile),
    }
    write_text(path, profile_text(document))


def read_fitted(path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> Fitted:
    """Read a fitted system, with ``--set`` values applied: ``workload.*``, the rest of the profile.

    Raises:
        InputError: no such file, or an override that does not hold.
        DataError: the content breaks the format.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(_no_such(path))
    content = read_yaml(source)
    if not isinstance(content, dict) or content.get("format") != FITTED_FORMAT:
        raise DataError(path, "format", f"must be {FITTED_FORMAT}: what dspark-sim fit wrote")
    document = _validated(content, path)
    ours = {k.removeprefix(_WORKLOAD): v for k, v in (overrides or {}).items() if k.startswith(_WORKLOAD)}
    others = {k: v for k, v in (overrides or {}).items() if not k.startswith(_WORKLOAD)}
    profile = parse_profile(document.profile, str(path), others)
    workload = workload_with(checked(document.workload), ours)
    system = System(profile, workload, document.acceptance)
    seen = document.workload.max_output_tokens
    return Fitted(system, document.arms, document.fit, source.name, seen)


def _no_such(path: str | os.PathLike[str]) -> str:
    """Return why ``path`` is not a file of a fitted system."""
    if Path(path).is_dir():
        return f"{path}: is a folder; name a file"
    try:
        find(os.fspath(path), "hw_profiles", ".yaml")
    except InputError:
        return f"{path}: no such file; dspark-sim fit writes one"
    return f"{path}: is a hardware profile, not a fitted system; dspark-sim fit writes one"


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 (hex) of a sweep: of the file, or of the results of a folder in order."""
    source = Path(path)
    files = result_files(source) if source.is_dir() else [source]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def profile_document(profile: HardwareProfile) -> dict[str, Any]:
    """Return a profile as the nested mappings of its file."""
    document: dict[str, Any] = plain(profile)
    return document


def plain(value: Any) -> Any:
    """Return dataclasses as mappings, without what is absent; tuples as lists, numbers to 9 digits."""
    if is_dataclass(value):
        named = {f.name: getattr(value, f.name) for f in fields(value)}
        return {name: plain(item) for name, item in named.items() if item is not None and item != {}}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Document)


def _validated(content: dict[str, Any], path: str | os.PathLike[str]) -> Document:
    from pydantic import ValidationError

    try:
        document: Document = _adapter().validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(path, where, f"{first['msg'].lower()}; let dspark-sim fit write the file") from None
    for name in (unknown.name for unknown in document.fit.unknowns):
        if name not in KNOWN:
            rule = f"no unknown '{name}'{did_you_mean(name, KNOWN)}; known: {', '.join(KNOWN)}"
            raise DataError(path, "fit.unknowns", rule)
    sizes = {len(document.fit.unknowns), len(document.fit.covariance), *map(len, document.fit.covariance)}
    if len(sizes) != 1:
        raise DataError(path, "fit.covariance", "must have one row and one column for each unknown")
    if len(document.fit.rows) != len(document.fit.residual_pct):
        raise DataError(path, "fit.residual_pct", "must have one pair for each of fit.rows")
    return document
