"""Words of the profile format: units, look-up conventions, and what every table must obey."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, Strict

FORMAT = "dspark-sim/profile/1"

#: How a table is read between its sizes. ceil_to_capture: round up to a captured CUDA-graph size, then
#: read there (vLLM); floor: the largest measured size not above (SGLang's table); linear: interpolate
#: (TensorRT-LLM, ATOM, SGLang's additive table).
Lookup = Literal["ceil_to_capture", "floor", "linear"]
#: How a table goes on past its last size. last_octave: a line with the mean slope between the last
#: size and the largest size not above half of it; last_two: the slope of the last two points (vLLM's
#: planner); hold: the last value (SGLang's table).
Beyond = Literal["last_octave", "last_two", "hold"]
#: Where a number comes from.
How = Literal["measured", "composed", "derived", "fitted", "assumed"]


def ascending(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse sizes that do not rise strictly."""
    for before, after in pairwise(sizes):
        if after <= before:
            raise ValueError(f"sizes must rise strictly, but {after} follows {before}; sort them, each once")
    return sizes


def same_length(section: Any, sizes: str, values: str) -> Any:
    """Refuse a table whose two columns differ in length, or one point that is to be extended by a slope."""
    wanted, given = len(getattr(section, sizes)), len(getattr(section, values))
    if wanted != given:
        raise ValueError(
            f"{sizes} has {wanted} entries but {values} has {given}; give one {values} entry for each"
        )
    if wanted == 1 and section.beyond != "hold":
        raise ValueError(f"beyond '{section.beyond}' needs two points, the table has one; use beyond: hold")
    return section


def table(sizes: str, values: str) -> AfterValidator:
    """Return the check that two columns of a section form a table."""
    return AfterValidator(lambda section: same_length(section, sizes, values))


def optional_table(sizes: str, values: str) -> AfterValidator:
    """Return the check of a table that may be left out, but only as a whole."""
    columns = (sizes, values, "beyond")

    def check(section: Any) -> Any:
        given = [column for column in columns if getattr(section, column) is not None]
        if given and len(given) < len(columns):
            raise ValueError(f"a table needs {', '.join(columns)}; only {', '.join(given)} given")
        return same_length(section, sizes, values) if given else section

    return AfterValidator(check)


Ms = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Amount = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Strict(), Field(ge=1)]
Sizes = Annotated[tuple[Count, ...], Field(min_length=1), AfterValidator(ascending)]
Text = Annotated[str, Strict(), Field(min_length=1)]


class Section:
    """A mapping of the file: unknown keys are errors."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")
