"""What simulated points, policies and settings are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dspark_sim import bounds, recommend_words
from dspark_sim.api.simulation import Run, Source, choose_arms, make_setup
from dspark_sim.arms import choose_baseline
from dspark_sim.audit.verdict import Audit, audit
from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.recommend import TRIED, Search, Setting, loads_up_to
from dspark_sim.results.frontier import default_slas
from dspark_sim.results.frontier import frontier as read_frontier
from dspark_sim.sweeps.running import sweep
from dspark_sim.workload.traces import Trace


def frontier_document(run: Run, baseline: str | None, sla: Sequence[float] | None) -> dict[str, Any]:
    """Return the frontier document of a run (schema ``dspark-sim/frontier/1``).

    Raises:
        InputError: the baseline is not among the policies of the run.
    """
    points = run.results.points
    against = choose_baseline(baseline, dict.fromkeys(p["policy"] for p in points))
    return read_frontier(points, against, default_slas(points, against) if sla is None else sla)


def frontier(run: Run, *, sla: Sequence[float] | None = None, baseline: str | None = None) -> pd.DataFrame:
    """Return what every policy gives at SLA anchors, a row an anchor and policy.

    ``tok_per_s_per_gpu`` is the best throughput at which each user still gets the SLA, with its 95%
    interval over seeds in ``_low`` and ``_high`` (NaN with one seed); ``vs_baseline_pct`` the change
    against the baseline's own best; ``concurrency_users`` where that is. ``matched_tok_per_s_per_user``
    is each user's best speed at the throughput that the baseline has at the SLA. NaN: not reached.

    Args:
        run: simulated points.
        sla: anchors [tok/s/user]; None: two round ones in the baseline's range.
        baseline: policy spec that percentages are against; None: ``off``, else the first policy.

    Raises:
        InputError: the baseline is not among the policies of the run.
    """
    document = frontier_document(run, baseline, sla)
    matched = {(row["sla"], row["drafter"], row["policy"]): row for row in document["matched"]}
    rows = []
    for row in document["sla"]:
        other = matched[row["sla"], row["drafter"], row["policy"]]
        rows.append(
            {
                "sla_tok_per_s_per_user": row["sla"],
                "drafter": row["drafter"],
                "policy": row["policy"],
                "feasible": row["feasible"],
                **_with_bounds("tok_per_s_per_gpu", row),
                **_with_bounds("vs_baseline_pct", row),
                "concurrency_users": row["concurrency"],
                "matched_tok_per_s_per_user": other["tok_per_s_per_user"],
                "matched_vs_baseline_pct": other["vs_baseline_pct"],
            }
        )
    numbers = [name for name in (rows[0] if rows else {}) if name not in ("drafter", "policy", "feasible")]
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, "float64"))


def _with_bounds(name: str, row: Mapping[str, Any]) -> dict[str, float | None]:
    low, high = row[f"{name}_ci95"] or (None, None)
    return {name: row[name], f"{name}_low": low, f"{name}_high": high}


def audit_policy(
    policy: str, *, lag: int | None = None, temperature: float = 1.0, effort: float = 1.0, seed: int = 0
) -> Audit:
    """Search for a batch that shows a policy not lossless.

    ``verdict`` is ``lossless``, ``lossless-under-lag`` or ``not-lossless``; ``counterexample`` two batches
    that the rule may not tell apart, and does, or None.

    Args:
        policy: spec, a file of your own included.
        lag: of a rule that reads older confidences [steps]; None: its own.
        temperature: of target and drafter.
        effort: length of the search, times the usual.
        seed: of the search.

    Raises:
        InputError: an unknown policy, or one that returns something else than lengths.
    """
    return audit(parse_policy(policy, lag), temperature=temperature, effort=effort, seed=seed)


def bound(
    trace: Source | Trace,
    hw: Source | HardwareProfile,
    *,
    concurrency: int | Sequence[int],
    drafter: str | None = None,
) -> pd.DataFrame:
    """Return a throughput that no rule exceeds in a closed loop, clairvoyant ones included, a row a load.

    Args:
        trace: a name, a path, or a loaded trace.
        hw: a name, a path, or a loaded profile.
        concurrency: users of the loop, one number or several.
        drafter: of the trace; None as in ``Trace.drafter``.

    Raises:
        InputError: no such file or drafter, or the profile has no cost for its kind.
    """
    setup = make_setup(trace, hw, output_tokens=1)
    read, profile = setup.load_trace(), setup.load_profile()
    loads = [concurrency] if isinstance(concurrency, int) else list(concurrency)
    most = [bounds.bound(read, profile, concurrency=load, drafter=drafter).tok_per_s for load in loads]
    return pd.DataFrame(
        {
            "concurrency_users": loads,
            "bound_tok_per_s": most,
            "bound_tok_per_s_per_gpu": [speed / profile.num_gpus for speed in most],
        }
    )


@dataclass(frozen=True)
class Recommendation:
    """The best setting for an SLA.

    Attributes:
        words: the answer in one paragraph, with its evidence and its margin.
        speculate: whether the best setting speculates; False too where nothing meets the SLA.
        ranking: every setting that meets the SLA at its most users, the best first.
        break_even_tok_per_round: accepted length at which the best speculative setting equals no
            speculation at its load; None where no speculative setting meets the SLA.
    """

    words: str
    speculate: bool
    ranking: pd.DataFrame
    break_even_tok_per_round: float | None

    def __str__(self) -> str:
        """Return the words."""
        return self.words


def best_setting(
    trace: Source | Trace,
    hw: Source | HardwareProfile,
    *,
    sla: float,
    policies: Sequence[str] | None = None,
    max_users: int = 256,
    seeds: int = 2,
    output_tokens: int = 20_000,
    drafter: str | None = None,
    overrides: Mapping[str, object] | None = None,
    jobs: int = 1,
) -> Recommendation:
    """Return policy, draft length and most users for an SLA: the highest tok/s/GPU that meets it.

    Args:
        trace: a name, a path, or a loaded trace.
        hw: a name, a path, or a loaded profile.
        sla: speed that each user must get [tok/s/user].
        policies: specs to choose among; None: nine of them.
        max_users: most users of one replica.
        seeds: replications.
        output_tokens: output tokens to measure per point.
        drafter: of the trace; None as in ``Trace.drafter``.
        overrides: fields of the profile to change.
        jobs: worker processes.

    Raises:
        InputError: as :func:`~dspark_sim.api.simulation.run`.
    """
    if not sla > 0:
        raise InputError(f"sla={sla}: must be a number of tok/s/user above 0")
    setup = make_setup(trace, hw, output_tokens=output_tokens, overrides=overrides)
    settings = [Setting(setup, *arm) for arm in choose_arms(setup, policies, drafter, None, TRIED)]
    search = Search(settings, loads_up_to(max_users), range(seeds), lambda tasks: sweep(tasks, jobs=jobs))
    document = recommend_words.document(search.answer(float(sla)))
    ranking = [_ranked(row) for row in document["ranking"]]
    return Recommendation(
        document["words"], document["speculate"], pd.DataFrame(ranking), document["break_even_accepted_len"]
    )


def _ranked(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "policy": row["policy"],
        "drafter": row["drafter"],
        "max_users": row["max_users"],
        **_with_bounds("tok_per_s_per_gpu", row),
        **_with_bounds("tok_per_s_per_user", row),
        "accepted_len_tok_per_round": row["accepted_len"],
        "verification_budget_tok_per_round": row["verification_budget"],
        "step_ms": row["step_ms"],
        "lossless": row["lossless"],
    }
