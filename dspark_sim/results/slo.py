"""Objectives of a service: bounds on quantiles of latency, who meets them, and goodput.

``tpot_p99=25ms`` says that 99% of the requests have a TPOT of at most 25 ms. Metrics, per request:
``ttft`` (arrival to first token), ``tpot`` (time per token after the first), ``e2e`` (arrival to last
token), ``queue`` (arrival to admission). Shape legend: Q completed requests, in the order of the log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.schema import FloatArray, RequestLog

METRICS = ("ttft", "tpot", "e2e", "queue")
_UNITS_S = {"ms": 1e-3, "s": 1.0}
_SPEC = re.compile(r"(?P<metric>\w+)_p(?P<percent>\d{1,2}(\.\d+)?)=(?P<limit>[^a-z]+)(?P<unit>ms|s)?")
_EXAMPLE = "as in --slo tpot_p99=25ms --slo ttft_p99=2s"


@dataclass(frozen=True, slots=True)
class Slo:
    """A bound on one quantile.

    Attributes:
        metric: of :data:`METRICS`.
        percent: of the requests that must keep the bound.
        limit_s: the bound [s].
    """

    metric: str
    percent: float
    limit_s: float

    @property
    def name(self) -> str:
        """Return metric and quantile, as in ``tpot_p99``."""
        return f"{self.metric}_p{self.percent:g}"

    @property
    def label(self) -> str:
        """Return the normalised spec."""
        milliseconds = self.limit_s < 1
        return f"{self.name}={self.limit_s * (1e3 if milliseconds else 1):g}{'ms' if milliseconds else 's'}"

    def value_s(self, latency_Q: FloatArray) -> float:
        """Return the quantile that is bounded [s]: the least time that ``percent`` of the requests keep.

        Requests without the metric (NaN) do not count; without any the quantile is 0.
        """
        known = latency_Q[~np.isnan(latency_Q)]
        if not known.size:
            return 0.0
        place = math.ceil(self.percent / 100 * known.size - 1e-9) - 1
        return float(np.partition(known, place)[place])

    def kept(self, latency_Q: FloatArray) -> NDArray[np.bool_]:
        """Return which requests keep the bound; those without the metric do."""
        return np.isnan(latency_Q) | (latency_Q <= self.limit_s)


def parse_slos(words: Iterable[str]) -> tuple[Slo, ...]:
    """Return the objectives of ``--slo`` words, in their order.

    Raises:
        InputError: a word that is no objective, or two for one quantile.
    """
    found: dict[str, Slo] = {}
    for word in words:
        slo = _parse(word.strip())
        if slo.name in found:
            raise InputError(f"--slo {word}: {slo.name} is given twice; say it once")
        found[slo.name] = slo
    return tuple(found.values())


def _parse(word: str) -> Slo:
    match = _SPEC.fullmatch(word)
    if match is None:
        raise InputError(f"--slo {word!r}: expected METRIC_pQUANTILE=TIME, {_EXAMPLE}")
    metric, percent = match["metric"], float(match["percent"])
    if metric == "itl":
        raise InputError(f"--slo {word}: gaps are shared by requests, not theirs; bound tpot instead")
    if metric not in METRICS:
        hint = did_you_mean(metric, METRICS)
        raise InputError(f"--slo {word}: unknown metric '{metric}'{hint}; known: {', '.join(METRICS)}")
    if not percent:
        raise InputError(f"--slo {word}: quantile p0 bounds nothing")
    if match["unit"] is None:
        raise InputError(f"--slo {word}: the time has no unit; write ms or s, {_EXAMPLE}")
    return Slo(metric, percent, _seconds(word, match["limit"]) * _UNITS_S[match["unit"]])


def _seconds(word: str, text: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        raise InputError(f"--slo {word}: '{text}' is not a number") from None
    if not 0 < limit < math.inf:
        raise InputError(f"--slo {word}: the time must be finite and above 0")
    return limit


def latencies(log: RequestLog) -> dict[str, FloatArray]:
    """Return metric -> time of each request [s]; the TPOT of a one-token output is NaN."""
    after_first = log.output_tokens - 1
    served_s = log.end_s - log.start_s
    tpot_s = np.full(len(served_s), np.nan)
    np.divide(served_s, after_first, out=tpot_s, where=after_first > 0)
    return {
        "ttft": log.start_s - log.arrival_s,
        "tpot": tpot_s,
        "e2e": log.end_s - log.arrival_s,
        "queue": log.admission_s - log.arrival_s,
    }


def keeps_all(slos: Sequence[Slo], latency: Mapping[str, FloatArray]) -> NDArray[np.bool_]:
    """Return which requests keep every bound; shape [Q]."""
    kept = np.ones(len(latency["ttft"]), dtype=bool)
    for slo in slos:
        kept &= slo.kept(latency[slo.metric])
    return kept
