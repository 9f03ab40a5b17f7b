"""Calibrated confidences: c = sigmoid(logit / temperature + bias), one pair per draft position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dspark_sim.schema import FloatArray


@dataclass(frozen=True, slots=True)
class Calibration:
    """How raw logits become conditional confidences, and where that was fitted.

    Attributes:
        temperatures: one per draft position [G], positive.
        biases: one per draft position [G], added after the division.
        method: ``identity``, ``sts`` (temperatures only) or ``bias`` (both).
        fitted_on: what it was fitted on, in words.
        ece_before, ece_after: expected calibration error of the survival by position [G], on prompts
            that the fit did not see; empty where nothing was fitted.
    """

    temperatures: tuple[float, ...]
    biases: tuple[float, ...]
    method: str = "identity"
    fitted_on: str = ""
    ece_before: tuple[float, ...] = ()
    ece_after: tuple[float, ...] = ()

    @classmethod
    def identity(cls, gamma: int) -> Calibration:
        """Return the calibration that leaves probabilities as they are."""
        return cls((1.0,) * gamma, (0.0,) * gamma)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Calibration:
        """Build from the ``calibration`` object of a trace's metadata (already validated)."""
        options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}
        return cls(**options)

    def to_json(self) -> dict[str, Any]:
        """Return the object that a trace's metadata holds."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    def apply(self, logit_NG: ArrayLike) -> FloatArray:
        """Return conditional confidences [N, G] for raw logits [N, G]."""
        scaled = np.asarray(logit_NG, dtype=np.float64) / np.array(self.temperatures) + np.array(self.biases)
        return sigmoid(scaled)


def sigmoid(x: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    result: FloatArray = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result
