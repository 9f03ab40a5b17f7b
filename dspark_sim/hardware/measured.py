"""From timed samples to a profile: what is measured, medians and spread, the sections of the file.

Only numbers here: the timing itself needs torch and stands in :mod:`dspark_sim.model.profiler`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.fields import FORMAT
from dspark_sim.hardware.measure_plan import Part, Plan
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.schema import DraftKind

if TYPE_CHECKING:
    import pandas as pd

#: A sample this many robust standard deviations from its median is an outlier: reported, and kept.
OUTLIER = 5.0
_MAD_TO_SIGMA = 1.4826


def summary(samples: pd.DataFrame) -> pd.DataFrame:
    """Return one row a point: median, interquartile range, samples, outliers, worst over median.

    Args:
        samples: columns part, requests, tokens, context, ms, and the kind of a further drafter.
    """
    if "drafter" not in samples:  # files from before further drafters were timed
        samples = samples.assign(drafter="")
    groups = samples.groupby(["part", "drafter", "requests", "tokens", "context"], sort=True).ms
    table = groups.agg(
        median="median",
        low=lambda ms: ms.quantile(0.25),
        high=lambda ms: ms.quantile(0.75),
        samples="count",
        outliers=lambda ms: int(is_outlier(ms.to_numpy()).sum()),
        worst="max",
    )
    table["worst"] /= table["median"]
    return table.reset_index()


def is_outlier(ms: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which samples of one point lie far from their median, in robust standard deviations."""
    away = np.abs(ms - np.median(ms))
    sigma = _MAD_TO_SIGMA * float(np.median(away))
    return away > OUTLIER * sigma if sigma > 0 else np.zeros(len(ms), dtype=bool)


class Medians:
    """Medians [ms] of a measurement by part.

    Raises:
        InputError: a part that a profile needs has no samples.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        self.table = summary(samples)
        if not (self.table.part == "verify").any():
            raise InputError("samples: none of part 'verify'; a profile needs the target's pass by tokens")

    def of(self, part: Part, drafter: str = "") -> pd.DataFrame:
        """Return the rows of one part; ``drafter``: the kind of a further drafter."""
        return self.table[(self.table.part == part) & (self.table.drafter == drafter)]

    def shapes(self, part: Part) -> list[tuple[int, int, float]]:
        """Return (requests, tokens a request, median) of each point of a part."""
        rows = self.of(part)
        columns = (rows.requests.tolist(), rows.tokens.tolist(), rows["median"].tolist())
        return list(zip(*columns, strict=True))

    def by(self, part: Part, column: str, drafter: str = "") -> dict[int, float]:
        """Return size -> median, ascending."""
        rows = self.of(part, drafter).sort_values(column)
        return {int(size): round(float(ms), 4) for size, ms in zip(rows[column], rows["median"], strict=True)}


def verify_table(medians: Medians) -> dict[int, float]:
    """Return batch tokens -> the target's pass less the attention of its own tokens [ms].

    Attention has a table of its own, by requests; a pass that is timed without context still pays for
    the rows that it has.
    """
    own = {(r, t): ms for r, t, ms in medians.shapes("own")}
    bare = {r * t: max(ms - own[r, t], 0.0) for r, t, ms in medians.shapes("verify")}
    return {tokens: round(bare[tokens], 4) for tokens in sorted(bare)}


def verify_samples(samples: pd.DataFrame) -> list[tuple[int, float]]:
    """Return (batch tokens, ms) of every timed pass, less the median attention of its own tokens."""
    own = {(r, t): ms for r, t, ms in Medians(samples).shapes("own")}
    passes = samples[samples.part == "verify"]
    columns = (passes.requests.tolist(), passes.tokens.tolist(), passes.ms.tolist())
    return [(r * t, ms - own[r, t]) for r, t, ms in zip(*columns, strict=True)]


def profile_document(
    plan: Plan, samples: pd.DataFrame, *, name: str, device: str, command: str
) -> dict[str, Any]:
    """Return the profile of a measurement, as nested mappings.

    Args:
        plan: of the measurement.
        samples: columns part, requests, tokens, context, ms.
        name: of the profile.
        device: the machine in words.
        command: that made it, for the sources.
    """
    medians = Medians(samples)
    rounds = int(medians.of("verify").samples.max())
    taken = f"{command}; medians of {rounds} interleaved rounds, {plan.clock}, raw samples beside the profile"
    constant_ms, row_ms = sampling_line(medians)
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "description": f"{plan.target} in {plan.dtype} measured on {device}",
        "device": device,
        "model": plan.target,
        "num_gpus": 1,
        "sources": _sources(plan, taken),
        "versions": dict(plan.versions),
        "verify": _verify(plan, medians),
        "attention": _attention(medians) | {"beyond": "last_octave"},
        "prefill": _columns(medians.by("prefill", "tokens"), "tokens", "ms") | {"beyond": "last_octave"},
        "host": {"constant_ms": constant_ms, "bubble_ms": 0.0, "per_logit_row_ms": row_ms},
    }
    if plan.capture_limit:
        document |= _graphs(plan, medians)
    if plan.drafter:
        own = {plan.kind: _draft(plan.kind, plan.gamma, medians.by("draft", "requests"))}
        further = {
            f.kind: _draft(f.kind, f.gamma, medians.by("draft", "requests", f.kind)) for f in plan.further
        }
        document["draft"] = own | further
    return document


def sampling_line(medians: Medians) -> tuple[float, float]:
    """Return what follows the target's pass as (ms a step, ms a logit row), least squares, not negative."""
    rows = medians.of("sample")
    if rows.empty:
        return 0.0, 0.0
    count, ms = (rows.requests * rows.tokens).to_numpy(float), rows["median"].to_numpy(float)
    # Relative residuals: a line that misses one row by half is wrong however small one row is.
    from scipy.optimize import nnls

    constant, slope = nnls(np.stack([1.0 / ms, count / ms], axis=1), np.ones_like(ms))[0]
    return round(float(constant), 4), round(float(slope), 6)


def _draft(kind: DraftKind, gamma: int, block_ms: Mapping[int, float]) -> dict[str, Any]:
    """Return the section of one drafter from requests -> ms of a block; a serial one is charged by passes."""
    serial = kind in ("mtp", "eagle")
    share = gamma if serial else 1
    passes = {r: round(ms / share, 4) for r, ms in block_ms.items()}
    block: dict[str, Any] = {} if serial else {"gamma": gamma}
    columns = _columns(passes, "requests", "pass_ms")
    return block | {"lookup": "linear"} | columns | {"beyond": _beyond(passes)}


def _beyond(table: Mapping[int, float]) -> str:
    return "last_octave" if len(table) > 1 else "hold"


def _verify(plan: Plan, medians: Medians) -> dict[str, Any]:
    cost = verify_table(medians)
    inside = {t: ms for t, ms in cost.items() if not plan.capture_limit or t <= plan.capture_limit}
    lookup = "ceil_to_capture" if plan.capture_limit else "linear"
    return {"lookup": lookup} | _columns(inside, "tokens", "ms") | {"beyond": _beyond(inside)}


def _graphs(plan: Plan, medians: Medians) -> dict[str, Any]:
    cost = verify_table(medians)
    eager = {t: ms for t, ms in cost.items() if t > plan.capture_limit}
    tail = _columns(eager, "tokens", "ms") | {"beyond": _beyond(eager)}
    capture = {"limit": plan.capture_limit, "sizes": "table"}
    return {"capture": capture, "eager": tail if eager else {"overhead_ms": 0.0}}


def _attention(medians: Medians) -> dict[str, Any]:
    grid = medians.of("attention").pivot_table(index="requests", columns="context", values="median")
    return {
        "requests": [int(r) for r in grid.index],
        "context_tokens": [int(c) for c in grid.columns],
        "ms": [[round(float(ms), 4) for ms in row] for row in grid.to_numpy()],
    }


def _columns(table: Mapping[int, float], sizes: str, values: str) -> dict[str, Any]:
    return {sizes: list(table), values: list(table.values())}


def _sources(plan: Plan, taken: str) -> dict[str, Any]:
    words = {
        "verify": "the target's pass over B tokens without context, LM head on each, less their attention",
        "attention": f"attention of all layers alone, {plan.queries} queries a request, by requests and KV",
        "prefill": "one prompt, drafter's context included",
        "host.constant_ms": "sampling, rejection and the drafter's context: constant of a line by rows",
        "host.per_logit_row_ms": "slope of the same line",
    }
    if plan.drafter:
        where = f"at {plan.context} tokens of context"
        named = {plan.kind: plan.drafter} | {f.kind: f.drafter for f in plan.further}
        for kind, name in named.items():
            words[f"draft.{kind}"] = f"{name}: passes, draws, confidences of a block {where}"
    if plan.capture_limit:
        words |= {"capture": "graphs captured by the profiler", "eager": "the same pass without a graph"}
    sources = {path: {"how": "measured", "source": f"{text}; {taken}"} for path, text in words.items()}
    alone = "nothing runs beside the host, so that waiting hides no work"
    nothing = alone if plan.device == "cpu" else "not measured"
    return sources | {"host.bubble_ms": {"how": "assumed", "source": nothing}}


def check_errors(profile: HardwareProfile, plan: Plan, medians: Medians) -> dict[tuple[int, int], float]:
    """Return (requests, tokens a request) -> composed step over the same step timed whole, minus one."""
    rows = medians.of("check")
    cost = StepCost(profile, int(rows.requests.max()), int((rows.requests * rows.tokens).max()))
    kind: DraftKind = plan.kind if plan.drafter else "none"

    def composed_ms(requests: int, tokens: int) -> float:
        draft_s = cost.draft_s(kind, requests, plan.gamma)
        kv_tokens = requests * plan.context
        return 1e3 * cost.step_s(requests * tokens, requests, kv_tokens, draft_s, False)

    return {
        (int(r), int(t)): composed_ms(int(r), int(t)) / float(ms) - 1.0
        for r, t, ms in zip(rows.requests, rows.tokens, rows["median"], strict=True)
    }


def ratios(one: HardwareProfile, other: HardwareProfile) -> dict[int, float]:
    """Return batch tokens -> verify cost of ``one`` over that of ``other``, at sizes that both measured.

    Raises:
        InputError: they share no size.
    """
    first, second = (dict(zip(p.verify.tokens, p.verify.ms, strict=True)) for p in (one, other))
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise InputError(f"{one.name} and {other.name} share no size of the verify table")
    return {tokens: first[tokens] / second[tokens] for tokens in shared}
