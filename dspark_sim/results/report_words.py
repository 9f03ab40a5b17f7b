"""The sentences of a report: the question, the set-up, what each SLA anchor says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dspark_sim.results.metrics import Point
from dspark_sim.results.tables import number, signed

_VERDICTS = {
    "lossless": "lossless: the output is the target's own",
    "lossless-under-lag": "lossless under lag: the budget is older than the block it cuts",
    "not-lossless": "NOT lossless: the output is no longer the target's",
}


def verdict_words(verdict: str) -> str:
    """Return what a verdict means."""
    return _VERDICTS[verdict]


def title(about: Mapping[str, Any]) -> str:
    """Return the name of a report: whose speed, on what."""
    return f"{about['profile']['model']} on {about['profile']['device']}"


def question(about: Mapping[str, Any], points: Sequence[Point], baseline: str) -> str:
    """Return what was asked, in one sentence."""
    policies = list(dict.fromkeys(p["policy"] for p in points))
    loads = sorted({p["concurrency"] for p in points})
    users = f"{loads[0]} users" if len(loads) == 1 else f"{loads[0]} to {loads[-1]} users"
    trace = about["trace"]
    drafters = list(dict.fromkeys(p["drafter"] for p in points))
    draft = (
        f"drafter {drafters[0]} drafts" if len(drafters) == 1 else f"drafters {' and '.join(drafters)} draft"
    )
    return (
        f"How much throughput does each GPU give, and how fast is each of {users} served, when the "
        f"{draft} for {trace['target']} and each of {len(policies)} policies decides how much to "
        f"verify? Percentages are against {baseline}."
    )


def setup_words(about: Mapping[str, Any], points: Sequence[Point]) -> list[list[str]]:
    """Return [term, description] pairs of what was simulated."""
    trace, profile, settings = about["trace"], about["profile"], about["settings"]
    gpus = f"{profile['num_gpus']} GPU{'s' if profile['num_gpus'] > 1 else ''}"
    overrides = ", ".join(f"{path} = {value}" for path, value in profile["overrides"].items())
    how = sorted({*profile["how"].values()})
    drafters = ", ".join(f"{name} ({kind})" for name, kind in trace["drafters"].items())
    believed = (about.get("believed") or {}).get("spec")
    pairs = [
        ["Trace", f"{trace['name']}: {trace['target']} at temperature {trace['temperature']:g}"],
        ["Made", trace["made"]],
        ["Drafters", drafters],
        ["Hardware", f"{profile['name']}: {profile['model']} on {gpus} ({profile['device']})"],
        ["Costs are", ", ".join(how)],
        ["Overrides", overrides],
        ["Believed cost", believed or ""],
        ["Policies", ", ".join(dict.fromkeys(p["policy"] for p in points))],
        ["Users", ", ".join(str(load) for load in sorted({p["concurrency"] for p in points}))],
        ["Seeds", ", ".join(str(seed) for seed in sorted({p["seed"] for p in points}))],
        ["Measured", f"{settings['output_tokens']:,} output tokens a point"],
        ["Texts cut", f"at {settings['max_output_tokens']} tokens" if settings["max_output_tokens"] else ""],
        ["Versions", f"dspark-sim {about['version']}, code {about['code'][:12]}"],
        ["Contents", f"trace {trace['sha256'][:12]}, profile {profile['sha256'][:12]}"],
    ]
    return [pair for pair in pairs if pair[1]]


def headline(rows: Sequence[Mapping[str, Any]], matched: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """Return what one SLA anchor says, in a sentence or two.

    Args:
        rows: readings at the anchor, one a (drafter, policy).
        matched: readings at the baseline's throughput there.
        baseline: policy that percentages are against.
    """
    sla = f"{rows[0]['sla']:g} tok/s/user"
    there = sorted((r for r in rows if r["feasible"]), key=lambda row: -row["tok_per_s_per_gpu"])
    if not there:
        fastest = max(rows, key=lambda row: row["highest_tok_per_s_per_user"])
        speed = number(fastest["highest_tok_per_s_per_user"], 1)
        return f"No policy serves each user at {sla}; the fastest is {fastest['policy']} with {speed}."
    best = there[0]
    words = (
        f"At {sla}, {best['policy']} gives the most: {number(best['tok_per_s_per_gpu'])} tok/s/GPU"
        f"{_half(best)} with {number(best['concurrency'], 0)} users{_gain(best, baseline)}"
    )
    if best["at_highest_concurrency"]:
        words += ", at the highest load simulated, so more users may give more"
    words += "." if len(there) == 1 else f"; next is {there[1]['policy']} with {_next(there[1], best)}."
    return words + _faster(best, matched, baseline)


def _half(row: Mapping[str, Any]) -> str:
    bounds = row["tok_per_s_per_gpu_ci95"]
    return "" if bounds is None else f" ± {number((bounds[1] - bounds[0]) / 2)}"


def _gain(best: Mapping[str, Any], baseline: str) -> str:
    if best["policy"] == baseline:
        return ": speculation does not pay there" if baseline == "off" else ", the baseline itself"
    if best["vs_baseline_pct"] is None:
        return f", a speed that {baseline} does not reach"
    return f", {signed(best['vs_baseline_pct'], best['vs_baseline_pct_ci95'])} over {baseline}"


def _next(second: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    behind = 100 * (second["tok_per_s_per_gpu"] / best["tok_per_s_per_gpu"] - 1)
    return f"{number(second['tok_per_s_per_gpu'])} ({signed(behind)})"


def _faster(best: Mapping[str, Any], matched: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """Return what the winner gives each user at the baseline's own throughput, where that says anything."""
    same = [row for row in matched if (row["drafter"], row["policy"]) == (best["drafter"], best["policy"])]
    if best["policy"] == baseline or not same or same[0]["vs_baseline_pct"] is None:
        return ""
    change = signed(same[0]["vs_baseline_pct"], same[0]["vs_baseline_pct_ci95"])
    speed = number(same[0]["tok_per_s_per_user"], 1)
    return f" At the throughput that {baseline} has there, each user gets {speed} tok/s ({change})."
