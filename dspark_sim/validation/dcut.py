"""Case ``dcut``: D-Cut on Qwen3-8B with a DFlash drafter of blocks of 16, H20.

Allocation (batch 32): the conditional acceptance is fitted to the uniform column, one number, the
sharpness of the confidences, to top-K at the smallest budget; top-K at the others is predicted.

Serving: the published cost is of the target's graphs, and it is what the rule divides by; the draft
pass comes on top. The accepted length of whole blocks is what the whole-block arm's throughput says
on the sum; shape and sharpness come from the allocation table; D-Cut's throughput and keep ratio are
predicted by running its rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import FORMAT, HardwareProfile
from dspark_sim.policies.dcut import KEEP_RATIOS, budgets
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.schema import FloatArray
from dspark_sim.validation.cases import CaseResult, Check, Line, Panel, Role, Row
from dspark_sim.validation.tables import read_rows, source_of
from dspark_sim.validation.yields import best_accepted, law_trace, shifted_to
from dspark_sim.workload.calibration import sigmoid
from dspark_sim.workload.synthetic import SynthDrafter
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import visited

_BLOCK, _ALLOCATION_BATCH = 16, 32
_SPREADS = np.array([1.0, 2.0, 3.0])
_ANCHORS, _STEPS, _LEAST_TOKENS = 60_000, 1_000, 40_000
#: The draft pass over the target's pass on whole blocks, by parameters: 5 of 36 layers of 193 M, feature
#: projections of 84 M and the LM head of 622 M, over 36 layers and the head.
_DRAFT_SHARE = (5 * 193 + 84 + 622) / (36 * 193 + 622)
_ACCEPTED_LIMIT, _KEEP_LIMIT, _THROUGHPUT_LIMIT = 5.0, 0.12, 12.0


def dcut(seed: int = 0) -> CaseResult:
    """Predict D-Cut's accepted tokens, keep ratios and throughput."""
    allocation = _allocation_rows()
    serving = [row for published in read_rows("dcut_throughput") for row in _serve(published, seed)]
    rows = [*allocation, *serving]
    predicted = [row for row in rows if row.role == "predicted"]
    accepted, keep, throughput = (
        max(abs(row.error or 0.0) for row in predicted if row.unit == unit)
        for unit in ("tokens/step", "ratio", "tok/s")
    )
    return CaseResult(
        name="dcut",
        title="D-Cut on Qwen3-8B, H20: accepted tokens, keep ratios, throughput",
        sources=[source_of(f"dcut_{name}") for name in ("allocation", "cost", "throughput")],
        rows=rows,
        checks=[
            Check("accepted tokens of top-K, worst error [%]", accepted, _ACCEPTED_LIMIT),
            Check("keep ratio, worst error", keep, _KEEP_LIMIT),
            Check("throughput of D-Cut, worst error [%]", throughput, _THROUGHPUT_LIMIT),
        ],
        panels=[_allocation_panel(), _throughput_panel(serving)],
        notes=[
            "fitted: the uniform column, top-K at 128, and the accepted length of the whole-block arm",
            f"confidences {_sharpness():.2f} times as spread as figure 6's; with figure 6's, top-K at 128 "
            f"would accept {_ALLOCATION_BATCH * _top_k(1.0)[0]:.0f}",
        ],
    )


def _columns(name: str) -> dict[str, FloatArray]:
    rows = read_rows(name)
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


@cache
def _conditional() -> tuple[float, ...]:
    """Fit conditional acceptance, an exponential approach in the logit, to the uniform column."""
    from scipy.optimize import least_squares

    table = _columns("dcut_allocation")
    depth = table["verified"].astype(int) // _ALLOCATION_BATCH - 1
    wanted = table["uniform"] / _ALLOCATION_BATCH

    def conditional(x: FloatArray) -> FloatArray:
        return np.asarray(sigmoid(x[0] + x[1] * np.exp(-np.arange(_BLOCK) / np.exp(x[2]))))

    def residual(x: FloatArray) -> FloatArray:
        return np.asarray(np.cumsum(np.cumprod(conditional(x)))[depth] / wanted - 1)

    best = least_squares(residual, [1.5, 1.0, 0.5], bounds=([0, -2, -1], [3, 2, 2]))
    return tuple(conditional(best.x).tolist())


@cache
def _top_k(spread: float) -> tuple[float, ...]:
    """Return the accepted drafts a round of top-K at each budget of the allocation table."""
    trace = law_trace([SynthDrafter("dflash", "dspark", _conditional())], "Qwen3-8B", spread)
    drafter = trace.drafter("dflash")
    anchors = visited(trace, drafter)
    whole = anchors[trace.remaining_N[anchors] >= _BLOCK]
    per_round = _columns("dcut_allocation")["verified"] / _ALLOCATION_BATCH
    return tuple(best_accepted(drafter.survival_NG()[whole], per_round).tolist())


@cache
def _sharpness() -> float:
    """Fit the spread of the confidences to top-K at the smallest budget."""
    found = [_top_k(spread)[0] for spread in _SPREADS.tolist()]
    return float(np.interp(_columns("dcut_allocation")["top_k"][0] / _ALLOCATION_BATCH, found, _SPREADS))


def _allocation_rows() -> list[Row]:
    table = _columns("dcut_allocation")
    uniform = np.cumsum(np.cumprod(_conditional()))[table["verified"].astype(int) // _ALLOCATION_BATCH - 1]
    top_k = _top_k(_sharpness())
    rows = []
    for i, budget in enumerate(table["verified"]):
        what = f"accepted of {budget:.0f} drafts, "
        measured, simulated = float(table["uniform"][i]), float(_ALLOCATION_BATCH * uniform[i])
        rows.append(Row(what + "uniform", measured, simulated, "tokens/step", "fitted"))
        measured, simulated = float(table["top_k"][i]), _ALLOCATION_BATCH * top_k[i]
        rows.append(Row(what + "top-K", measured, simulated, "tokens/step", "predicted" if i else "fitted"))
    return rows


@cache
def _trace() -> Trace:
    """Return the serving workload: blocks of 15 drafts with the whole-block arm's accepted length."""
    cost, served = _columns("dcut_cost"), _columns("dcut_throughput")
    step_ms = cost["1"] * (1 + _DRAFT_SHARE)
    accepted_len = np.mean(served["full_tok_per_s"] * step_ms * 1e-3 / cost["batch"])
    conditional = shifted_to(_conditional()[: _BLOCK - 1], float(accepted_len))
    drafter = SynthDrafter("dflash", "dspark", conditional)
    return law_trace([drafter], "Qwen3-8B", _sharpness(), anchors=_ANCHORS)


def _serve(published: Mapping[str, str], seed: int) -> list[Row]:
    batch = int(published["batch"])
    rows = []
    for arm in ("full", "dcut"):
        role: Role = "fitted" if arm == "full" else "predicted"
        run = simulate(
            _trace(),
            _profile(batch, _DRAFT_SHARE),
            parse_policy(arm),
            believed=_profile(batch, 0.0),
            concurrency=batch,
            output_tokens=max(3 * batch * _STEPS, _LEAST_TOKENS),
            seed=seed,
        )
        measured = float(published[f"{arm}_tok_per_s"])
        rows.append(Row(f"{arm}, batch {batch}", measured, tok_per_s(run), "tok/s", role))
        if arm == "dcut":
            kept = float(run.position_verified.sum() / (run.rounds * (_BLOCK - 1)))
            ratio = float(published["keep_ratio"])
            rows.append(Row(f"keep ratio, batch {batch}", ratio, kept, "ratio", role, points=True))
    return rows


def _profile(batch: int, draft_share: float) -> HardwareProfile:
    """Return the step cost of one batch size: four captured graphs, and the draft pass on top."""
    from dspark_sim.hardware.reading import parse_profile

    row = next(row for row in read_rows("dcut_cost") if int(row["batch"]) == batch)
    sizes = (batch + budgets(batch, _BLOCK - 1)).tolist()
    sources = ("verify", "capture", "eager", "host.constant_ms", "host.bubble_ms")
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": f"dcut-h20-batch-{batch}",
        "description": "published milliseconds a step at four keep ratios, and a draft pass",
        "device": "H20",
        "model": "Qwen3-8B",
        "num_gpus": 1,
        "sources": {path: {"how": "measured", "source": source_of("dcut_cost")} for path in sources}
        | {"draft.dspark": {"how": "derived", "source": "parameters of the drafter over the target's"}},
        "verify": {
            "lookup": "ceil_to_capture",
            "tokens": sizes,
            "ms": [float(row[f"{ratio:g}"]) for ratio in KEEP_RATIOS],
            "beyond": "hold",
            "context_tokens": 1,
        },
        "capture": {"limit": sizes[-1], "sizes": "table"},
        "eager": {"overhead_ms": 0.0},
        "draft": {
            "dspark": {
                "gamma": _BLOCK - 1,
                "lookup": "linear",
                "requests": [batch],
                "pass_ms": [draft_share * float(row["1"])],
                "beyond": "hold",
            }
        },
        "host": {"constant_ms": 0.0, "bubble_ms": 0.0},
    }
    return parse_profile(document, document["name"])


def _allocation_panel() -> Panel:
    table, uniform = _columns("dcut_allocation"), np.cumsum(np.cumprod(_conditional()))
    verified = table["verified"]
    simulated = {
        "uniform": _ALLOCATION_BATCH * uniform[verified.astype(int) // _ALLOCATION_BATCH - 1],
        "top_k": _ALLOCATION_BATCH * np.array(_top_k(_sharpness())),
    }
    looks = {"uniform": "static:k=4", "top_k": "dcut"}
    lines = [Line(arm, looks[arm], verified, simulated[arm]) for arm in looks]
    lines += [Line(f"{arm}, page", looks[arm], verified, table[arm], measured=True) for arm in looks]
    return Panel("Qwen3-8B, batch 32", "drafts verified a step", "drafts accepted a step", lines)


def _throughput_panel(rows: list[Row]) -> Panel:
    looks = {"full": "full", "dcut": "dcut"}
    lines = []
    for arm, look in looks.items():
        arm_rows = [row for row in rows if row.unit == "tok/s" and row.what.startswith(arm)]
        batch = np.array([float(row.what.rpartition(" ")[2]) for row in arm_rows])
        lines.append(Line(arm, look, batch, np.array([row.simulated for row in arm_rows])))
        measured = np.array([row.measured for row in arm_rows], dtype=np.float64)
        lines.append(Line(f"{arm}, page", look, batch, measured, measured=True))
    return Panel("Qwen3-8B, H20", "batch [requests]", "throughput [tok/s]", lines)
