"""A hardware profile: what one engine step costs on one machine with one model, as measured tables.

The file is YAML (``format: dspark-sim/profile/1``; every key in docs/hardware.md). Keys carry their
unit, so numbers stay here as the file has them (ms, tokens, requests); :mod:`dspark_sim.hardware.cost`
converts to seconds once. Nothing is smoothed and no table need be monotone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator

from dspark_sim.hardware.fields import Count, Section, Text, optional_table, table
from dspark_sim.hardware.sections import (
    Attention,
    Capture,
    Drafters,
    EagerTail,
    Experts,
    Host,
    KvMemory,
    Prefill,
    Source,
    VerifyTable,
    attention_shape,
    few_of_all,
    one_eager_form,
    one_kv_form,
)


@dataclass(frozen=True, slots=True)
class HardwareProfile(Section):
    """One machine with one model. Times in ms, sizes in tokens or requests, as in the file.

    max_num_seqs: most running requests the engine admits; None is unlimited.
    sources: how every number was got, by dotted path of the section or key.
    versions: of the libraries that a measurement ran on, by name.
    """

    format: Literal["dspark-sim/profile/1"]
    name: Text
    description: Text
    device: Text
    model: Text
    num_gpus: Count
    sources: dict[str, Source]
    verify: Annotated[VerifyTable, table("tokens", "ms")]
    host: Host
    max_num_seqs: Count | None = None
    capture: Capture | None = None
    eager: Annotated[EagerTail, AfterValidator(one_eager_form)] | None = None
    attention: Annotated[Attention, AfterValidator(attention_shape)] | None = None
    draft: Drafters = field(default_factory=Drafters)
    experts: Annotated[Experts, AfterValidator(few_of_all)] | None = None
    prefill: Annotated[Prefill, optional_table("tokens", "ms")] | None = None
    kv: Annotated[KvMemory, AfterValidator(one_kv_form)] | None = None
    versions: dict[str, Text] = field(default_factory=dict)

    @property
    def capture_limit(self) -> int | None:
        """Largest size that may be captured [tokens]; None if the profile knows no graphs."""
        return None if self.capture is None else self.capture.limit
