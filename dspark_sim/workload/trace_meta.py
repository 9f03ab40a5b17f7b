"""The metadata document of a trace file: JSON under the parquet metadata key ``dspark_sim``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from dspark_sim.errors import DataError, did_you_mean
from dspark_sim.schema import TRACE_FORMAT

if TYPE_CHECKING:
    from pydantic import TypeAdapter

META_KEY = "dspark_sim"
_STRICT = {"extra": "forbid", "strict": True, "allow_inf_nan": False}


@dataclass(frozen=True)
class CalibrationMeta:
    """Calibration of one drafter; :class:`dspark_sim.workload.calibration.Calibration` as JSON."""

    __pydantic_config__ = _STRICT
    temperatures: list[Annotated[float, Gt(0)]]
    biases: list[float]
    method: Literal["identity", "sts", "bias"]
    fitted_on: str = ""
    ece_before: list[float | None] = field(default_factory=list)
    ece_after: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class DrafterMeta:
    """One drafter. ``sampling``: how draft tokens are drawn; ``head``: its sequential head, if any."""

    __pydantic_config__ = _STRICT
    kind: Literal["dspark", "dflash", "mtp", "eagle"]
    gamma: Annotated[int, Ge(1), Le(64)]
    sampling: Literal["sample", "argmax"] = "sample"
    layers: Annotated[int, Ge(0)] | None = None
    head: str | None = None
    checkpoint: str | None = None
    calibration: CalibrationMeta | None = None


@dataclass(frozen=True)
class TraceMeta:
    """The whole document.

    ``made`` says in one line how the trace came about; ``temperature`` is the target's; ``recorder``
    is the version of the writer; ``notes`` is free-form and read by nobody but people.
    """

    __pydantic_config__ = _STRICT
    format: int
    target: Annotated[str, MinLen(1)]
    synthetic: bool
    made: Annotated[str, MinLen(1)]
    temperature: Annotated[float, Ge(0)]
    seed: int
    drafters: Annotated[dict[str, DrafterMeta], MinLen(1)]
    dtype: str | None = None
    device: str | None = None
    prompt_source: str | None = None
    recorder: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@cache
def _adapter() -> TypeAdapter[TraceMeta]:
    from pydantic import TypeAdapter

    return TypeAdapter(TraceMeta)


def check_meta(document: object, path: object) -> dict[str, Any]:
    """Return ``document`` if it is a valid metadata document.

    Raises:
        DataError: it is not; one line names every offending key.
    """
    from pydantic import ValidationError

    place = f"metadata '{META_KEY}'"
    if not isinstance(document, dict):
        raise DataError(path, place, "must be a JSON object")
    version = document.get("format")
    if version != TRACE_FORMAT:
        raise DataError(path, place, f"format version {version!r}: this reader reads version {TRACE_FORMAT}")
    try:
        meta = _adapter().validate_json(json.dumps(document))
    except ValidationError as error:
        raise DataError(path, place, "; ".join(map(_line, error.errors()))) from None
    _check_drafters(meta, path)
    return document


def parse_meta(text: bytes, path: object) -> dict[str, Any]:
    """Return the validated document of the JSON ``text``.

    Raises:
        DataError: not JSON, or not a valid document.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DataError(path, f"metadata '{META_KEY}'", f"must be JSON ({error})") from None
    return check_meta(document, path)


def _line(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    if error["type"] != "unexpected_keyword_argument":
        return f"{place}: {error['msg']}"
    known = [f.name for model in (TraceMeta, DrafterMeta, CalibrationMeta) for f in fields(model)]
    return f"{place}: unknown key{did_you_mean(str(error['loc'][-1]), known)}"


def _check_drafters(meta: TraceMeta, path: object) -> None:
    for name, drafter in meta.drafters.items():
        place = f"metadata '{META_KEY}', drafters.{name}"
        if not name or "." in name:
            raise DataError(path, place, "a drafter's name must be non-empty and hold no dot")
        fitted = drafter.calibration
        if fitted and not len(fitted.temperatures) == len(fitted.biases) == drafter.gamma:
            rule = f"needs {drafter.gamma} temperatures and biases (gamma), has"
            raise DataError(
                path, f"{place}.calibration", f"{rule} {len(fitted.temperatures)} and {len(fitted.biases)}"
            )
