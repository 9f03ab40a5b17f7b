"""From YAML to a profile: everything wrong is found at once, each fault one line with its cure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from dspark_sim.errors import DataError, did_you_mean
from dspark_sim.hardware.faults import faults_of, show
from dspark_sim.hardware.fields import FORMAT
from dspark_sim.hardware.form import is_known, known_paths
from dspark_sim.hardware.structure import HardwareProfile

#: Sections that need a source where they are present.
OPTIONAL = ("capture", "eager", "attention", "experts", "prefill", "kv")


class ProfileError(DataError):
    """A profile breaks its format.

    Attributes:
        problems: one line per fault, each naming file, key path, value, rule and cure.
    """

    def __init__(self, path: object, faults: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(str(DataError(path, where, rule)) for where, rule in faults)
        more = len(faults) - 1
        rest = f" (and {more} more: dspark-sim hw check {path})" if more else ""
        super().__init__(path, faults[0][0], faults[0][1] + rest)


class _StrictLoader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader, which silently keeps the last of two equal keys, minus that."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping; refuse a key that stands twice."""
        seen: set[str] = set()
        scalars = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key_node in scalars:
            if key_node.value in seen:
                problem = f"key '{key_node.value}' stands twice; keep one"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key_node.value)
        result: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return result


def read_yaml(path: Path) -> Any:
    """Return the document in ``path``.

    Raises:
        ProfileError: not readable as UTF-8 YAML, with the line.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - derives from the safe loader
    except IsADirectoryError:
        raise ProfileError(path, [("", "is a folder; name a file")]) from None
    except UnicodeDecodeError as error:
        if path.read_bytes()[:4] == b"PAR1":
            raise ProfileError(path, [("", "is a parquet file, not a YAML profile")]) from None
        raise ProfileError(
            path, [("", f"is not a YAML profile: cannot be read as UTF-8 text: {error}")]
        ) from None
    except OSError as error:
        raise ProfileError(path, [("", f"cannot be read as UTF-8 text: {error}")]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        rule = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ProfileError(path, [(where, f"not valid YAML: {rule}")]) from None


def parse_profile(document: Any, label: str, overrides: Mapping[str, str] | None = None) -> HardwareProfile:
    """Validate a profile document (what YAML gives) and return it.

    Args:
        document: nested mappings and lists.
        label: how messages name the file.
        overrides: dotted path -> YAML text; see :func:`dspark_sim.hardware.profile.load_profile`.

    Raises:
        ProfileError: any rule of the format is broken; all faults are in ``problems``.
    """
    if not isinstance(document, dict):
        raise ProfileError(
            label, [("", f"must be a mapping that starts with 'format: {FORMAT}', got {show(document)}")]
        )
    if overrides:
        document = _with_overrides(document, overrides, label)
    try:
        profile = _adapter().validate_python(document)
    except ValidationError as error:
        raise ProfileError(label, [_mark_set(fault, overrides or {}) for fault in faults_of(error)]) from None
    if faults := list(_unsourced(profile, overrides or {})) + list(_inconsistent(profile)):
        raise ProfileError(label, faults)
    return profile


def _mark_set(fault: tuple[str, str], overrides: Mapping[str, str]) -> tuple[str, str]:
    """Name ``--set`` where an override brought the fault in."""
    where, rule = fault
    for path in overrides:
        if where.startswith(path):
            return f"--set {where}", rule
        if path.startswith(f"{where}."):
            return f"--set {path}", rule
    return where, rule


@cache
def _adapter() -> TypeAdapter[HardwareProfile]:
    return TypeAdapter(HardwareProfile)


def _with_overrides(document: dict[str, Any], overrides: Mapping[str, str], label: str) -> dict[str, Any]:
    """Return a copy of ``document`` with each dotted path replaced; every path must exist in the format."""
    for path, text in overrides.items():
        if not is_known(path):
            hint = did_you_mean(path, known_paths())
            raise ProfileError(label, [(f"--set {path}", f"the profile has no such field{hint}")])
        *parents, last = path.split(".")
        document = node = dict(document)
        for key in parents:
            node[key] = dict(node[key]) if isinstance(node.get(key), dict) else {}
            node = node[key]
        node[last] = _override_value(text, path, label)
    return document


def _override_value(text: str, path: str, label: str) -> Any:
    try:
        value = yaml.safe_load(text)
        return yaml.safe_load(f"[{text}]") if isinstance(value, str) and "," in text else value
    except yaml.YAMLError:
        raise ProfileError(label, [(f"--set {path}", f"{text!r} is not a YAML value")]) from None


def _unsourced(profile: HardwareProfile, overrides: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what has no source; what ``--set`` brought in has one, the command."""
    wanted = ["verify", "host.constant_ms", "host.bubble_ms"]
    wanted += [name for name in OPTIONAL if getattr(profile, name) is not None]
    wanted += [f"draft.{kind}" for kind in profile.draft.kinds]
    for path in wanted:
        if path not in profile.sources and not any(given.startswith(f"{path}.") for given in overrides):
            yield f"sources.{path}", "missing; say how the number was got: {how: measured, source: ...}"
    for path in profile.sources:
        if not is_known(path):
            yield f"sources.{path}", f"the profile has no field '{path}'{did_you_mean(path, known_paths())}"


def _inconsistent(profile: HardwareProfile) -> Iterator[tuple[str, str]]:
    if (profile.capture is None) != (profile.eager is None):
        missing = "eager" if profile.eager is None else "capture"
        yield missing, "missing; capture and eager belong together: what a step costs past the capture limit"
    if profile.attention is None and profile.verify.context_tokens is None:
        yield "attention", "missing; add it, or say with verify.context_tokens that the table contains it"
    if profile.attention is not None and profile.verify.context_tokens is not None:
        yield "attention", "counted twice: verify.context_tokens says that the verify table contains it"
    if profile.verify.lookup == "ceil_to_capture" and profile.capture is None:
        yield "verify.lookup", "ceil_to_capture needs a capture section; use linear or floor without graphs"
