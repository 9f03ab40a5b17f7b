"""What `run` and `sweep` were asked for: checked before anything is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_sim.cli.common import output_folder, parse_set, warn
from dspark_sim.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from dspark_sim.engine.serving import Serving
    from dspark_sim.hardware.profile import HardwareProfile
    from dspark_sim.policies.base import Policy
    from dspark_sim.sweep import Setup, Task
    from dspark_sim.workload.traces import DrafterTrace

#: What is compared where no --policy is given: no speculation, the paper's baseline, a fixed length,
#: every drafted token, the paper's rule as written, and as it runs in production.
DEFAULT_POLICIES = ("off", "mtp:k=1", "static:k=3", "full", "dspark", "dspark-async")

#: What replications may differ in.
REPLICATE = ("seeds", "prompts")


@dataclass(frozen=True)
class Plan:
    """The set-up, its tasks, and the policy that percentages are against."""

    setup: Setup
    tasks: list[Task]
    baseline: str

    @property
    def name(self) -> str:
        """Default name of the output folder."""
        return f"{self.setup.load_trace().name}-{self.setup.load_profile().name}"


def make_plan(
    trace: str,
    hw: str,
    *,
    policies: Sequence[str] | None,
    loads: Sequence[int],
    seeds: Sequence[int],
    output_tokens: int,
    drafters: Sequence[str] | None,
    lag: int | None,
    assignments: Sequence[str] | None,
    baseline: str | None,
    believed: str | None = None,
    replicate: str = "seeds",
    serving: Serving | None = None,
    defaults: Sequence[str] = DEFAULT_POLICIES,
) -> Plan:
    """Check everything that a user typed, and return the plan.

    Raises:
        InputError: a file, policy, drafter, override or baseline that does not exist or does not fit.
    """
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.sweep import Setup, believed_doubts, grid, split_overrides

    if replicate not in REPLICATE:
        known = " or ".join(REPLICATE)
        raise InputError(f"--replicate {replicate}: must be {known}{did_you_mean(replicate, REPLICATE)}")
    overrides, cut = split_overrides(parse_set(assignments or ()))
    setup = Setup(trace, hw, overrides, output_tokens, cut, believed)
    if serving is not None:
        serving.check()
        setup = replace(setup, serving=serving)
    names: Sequence[str | None] = drafters or [None]
    chosen = [setup.load_trace().drafter(name) for name in names]
    asked = [parse_policy(spec, lag) for spec in policies or defaults]
    # Policies asked for by name must run; with several drafters, where they can.
    if not policies or len(chosen) > 1:
        arms = [(d.name, p.label) for d in chosen for p in asked if _fits(p, d, setup.load_profile())]
    else:
        arms = [(chosen[0].name, policy.label) for policy in asked]
    if not arms:
        raise InputError("no policy is left that drafter and profile can serve")
    labels = list(dict.fromkeys(label for _, label in arms))
    against = choose_baseline(baseline, labels)
    tasks = grid(setup, dict.fromkeys(arms), loads, seeds, by_prompts=replicate == "prompts")
    for doubt in believed_doubts(tasks):
        warn(f"--believed {believed}: {doubt}")
    return Plan(setup, tasks, against)


def _fits(policy: Policy, drafter: DrafterTrace, profile: HardwareProfile) -> bool:
    """Whether drafter and profile can serve a policy; says on stderr why not."""
    kind = policy.info.draft_kind or drafter.kind
    why = ""
    if policy.info.needs_confidence and not drafter.has_confidence:
        why = f"drafter '{drafter.name}' has no confidence head"
    elif kind != "none" and profile.draft.get(kind) is None:
        why = f"{profile.name} has no cost of drafter kind {kind}"
    elif policy.options.get("k", 0) > drafter.gamma:
        why = f"drafter '{drafter.name}' drafts {drafter.gamma} tokens"
    if why:
        warn(f"{policy.label} left out: {why}")
    return not why


def choose_baseline(asked: str | None, labels: Sequence[str]) -> str:
    """Return the baseline, normalised: what was asked for, else ``off``, else the first policy.

    Raises:
        InputError: what was asked for is no policy, or is not among ``labels``.
    """
    from dspark_sim.policies.registry import parse_policy

    if asked is None:
        return "off" if "off" in labels else labels[0]
    label = parse_policy(asked).label
    if label not in labels:
        raise InputError(f"--baseline {label}: not among the policies of this run: {', '.join(labels)}")
    return label


def chosen_folder(out: Path | None, parent: str, plan: Plan, quiet: bool) -> Path | None:
    """Return the output folder, made and writable before anything is computed; None if none is wanted.

    Args:
        out: what the user asked for; None: ``parent/TRACE-HW`` in the working directory.
        parent: folder of default output.
        plan: gives the default its name.
        quiet: without ``out``, write nothing.
    """
    if out is None and quiet:
        return None
    return output_folder(out if out is not None else Path(parent) / plan.name)
