"""Made figures of served requests for the tests of their pages."""

from __future__ import annotations

import copy
from typing import Any

from results_cases import ABOUT

from dspark_sim.results.details import DETAIL, SHARES
from dspark_sim.results.serving_details import STRETCHES
from dspark_sim.results.serving_store import Served

POLICIES = ("off", "static:k=3", "dspark-async")
SCALES = (1.0, 2.0, 3.0)
SEEDS = (0, 1)
LIMIT_MS = {"tpot_p99": 20.0, "ttft_p99": 500.0}
SERVED_ABOUT: dict[str, Any] = copy.deepcopy(ABOUT) | {
    "settings": {"max_output_tokens": None, "warmup": 0.25},
    "serving": {"prefill": "mixed", "replicas": 1, "router": "round-robin", "lockstep": False},
    "traffic": {"workload": None, "sha256": None, "arrivals": "poisson:rate=10", "requests": 2000, "mix": []},
    "slos": ["tpot_p99=20ms", "ttft_p99=500ms"],
    "grid": {"drafter": ["dspark"], "policy": list(POLICIES), "seed": [0, 1], "rate_scale": list(SCALES)},
}


def made_detail(tpot_ms: float, ttft_ms: float, kv: float | None) -> dict[str, Any]:
    def rising(top: float) -> list[float]:
        return [top * (0.2 + 0.8 * share) for share in SHARES]

    over_time = {"end_s": 96.0, "waiting": [1.0] * STRETCHES, "users": [2.0] * STRETCHES}
    return {
        "ttft_ms": rising(ttft_ms), "tpot_ms": rising(tpot_ms), "e2e_ms": rising(ttft_ms + 100 * tpot_ms),
        "queue_ms": rising(ttft_ms / 2), "itl_ms": rising(3 * tpot_ms), "step_ms": tpot_ms * 2,
        "forward_ms": tpot_ms,
        "batch_tokens": 60.0, "running": 20.0, "eager": 0.125, "kv_mean": kv and kv / 2, "kv_most": kv,
        "over_time": over_time | ({} if kv is None else {"kv": [kv / 2] * STRETCHES}),
    }  # fmt: skip


def made_run(
    policy: str, scale: float, seed: int, *, slos: bool = True, kv: float | None = 0.5
) -> dict[str, Any]:
    """A run whose times grow with the rate, and shrink with the place of the policy in POLICIES."""
    place = POLICIES.index(policy)
    tpot = (10.0 - 2 * place) * scale * (1 + 0.01 * seed)
    ttft = (20.0 if scale < 3 else 4000.0) / (1 + place) * (1 + 0.1 * seed)
    quantiles = {"mean": 0.6, "p50": 0.5, "p90": 0.9, "p99": 1.0}
    times = {
        f"{name}_ms": {quantile: share * top for quantile, share in quantiles.items()}
        for name, top in (("ttft", ttft), ("tpot", tpot), ("e2e", ttft + 100 * tpot), ("queue", ttft / 2),
                          ("itl", 3 * tpot))
    }  # fmt: skip
    reached = {"tpot_p99": tpot, "ttft_p99": ttft}
    met = {name: value <= LIMIT_MS[name] for name, value in reached.items()}
    kept = 1.0 if all(met.values()) else 0.4 / scale
    objectives = {
        "slo": {name: {"limit_ms": LIMIT_MS[name], "value_ms": value, "attainment": kept, "met": met[name]}
                for name, value in reached.items()},
        "slos_met": all(met.values()), "attainment": kept, "goodput_requests_per_s": 10 * scale * kept,
        "goodput_tok_per_s": 1000 * scale * kept, "goodput_tok_per_s_per_gpu": 500 * scale * kept,
    }  # fmt: skip
    return {
        "rate_scale": scale, "offered_per_s": 10 * scale + seed, "policy": policy, "drafter": "dspark",
        "seed": seed,
        "lossless": "lossless-under-lag" if policy == "dspark-async" else "lossless", "requests": 2000,
        "measured": 1400, "refused": 0, "preemptions": 3 if scale == 3 else 0, "preempted_requests": 0,
        "output_tokens": 10**5, "makespan_s": 100.0, "window_s": 90.0, "requests_per_s": 10 * scale,
        "tok_per_s": 1000 * scale, "tok_per_s_per_gpu": 500 * scale, "mean_users": 12.0 * scale,
        "mean_waiting": 0.1 * scale, "most_waiting": 5, "knee_passed": scale == 3 and place == 0,
        "accepted_len": 1.0 + place, "verify_len": 1.5 * place, "steps": 1000,
    } | times | (objectives if slos else {}) | {DETAIL: made_detail(tpot, ttft, kv)}  # fmt: skip


def served(policies=POLICIES, scales=SCALES, seeds=SEEDS, about=None, **more: Any) -> Served:
    runs = [
        made_run(policy, scale, seed, **more) for scale in scales for policy in policies for seed in seeds
    ]
    found = copy.deepcopy(about or SERVED_ABOUT)
    if not more.get("slos", True):
        found["slos"] = []
    return Served(runs, found)


def bare_details(found: Served) -> Served:
    """The same runs as an older version wrote them."""
    return Served([{k: v for k, v in run.items() if k != DETAIL} for run in found.runs], found.about)
