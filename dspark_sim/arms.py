"""Which policies are compared where nobody says otherwise, and which drafter and profile can serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.base import Policy
from dspark_sim.policies.registry import parse_policy
from dspark_sim.workload.traces import DrafterTrace, Trace

#: What is compared where no policy is given: no speculation, the paper's baseline, a fixed length,
#: every drafted token, the paper's rule as written, and as it runs in production.
DEFAULT_POLICIES = ("off", "mtp:k=1", "static:k=3", "full", "dspark", "dspark-async")


def unfit(policy: Policy, drafter: DrafterTrace, profile: HardwareProfile) -> str:
    """Return why drafter and profile cannot serve a policy, ``""`` if they can."""
    kind = policy.info.draft_kind or drafter.kind
    if policy.info.needs_confidence and not drafter.has_confidence:
        return f"drafter '{drafter.name}' has no confidence head"
    if kind != "none" and profile.draft.get(kind) is None:
        return f"{profile.name} has no cost of drafter kind {kind}"
    if policy.options.get("k", 0) > drafter.gamma:
        return f"drafter '{drafter.name}' drafts {drafter.gamma} tokens"
    return ""


def own_drafter(policy: Policy, trace: Trace) -> DrafterTrace:
    """Return the drafter of ``trace`` that a policy drafts with where none is named.

    A policy of one kind of drafter (``mtp`` drafts in serial passes) takes the trace's drafter of that kind
    if it drafts enough tokens; every other takes the trace's default, as does ``mtp`` on a trace without one.
    Where neither drafts enough, it is the one of the kind that a refusal should name.
    """
    kind, k = policy.info.draft_kind, policy.options.get("k", 0)
    of_kind = sorted((d for d in trace.drafters.values() if d.kind == kind), key=lambda d: d.gamma < k)
    default = trace.drafter()
    return of_kind[0] if of_kind and (of_kind[0].gamma >= k or default.gamma < k) else default


def own_arms(
    policies: Iterable[Policy],
    trace: Trace,
    profile: HardwareProfile | None = None,
    left_out: Callable[[str], None] = lambda words: None,
) -> list[tuple[str, str]]:
    """Return each policy with its own drafter; with ``profile``, as ``fitting_arms``, those that can run.

    Raises:
        InputError: none can.
    """
    arms: list[tuple[str, str]] = []
    for policy in policies:
        drafter = own_drafter(policy, trace)
        why = unfit(policy, drafter, profile) if profile is not None else ""
        if why:
            left_out(f"{policy.label} left out: {why}")
        else:
            arms.append((drafter.name, policy.label))
    return _some(arms)


def fitting_arms(
    policies: Iterable[Policy],
    drafters: Iterable[DrafterTrace],
    profile: HardwareProfile,
    left_out: Callable[[str], None] = lambda words: None,
) -> list[tuple[str, str]]:
    """Return the arms (drafter, policy label) that can run; tells ``left_out`` of each that cannot.

    Raises:
        InputError: none can.
    """
    rules, found = list(policies), []
    for drafter in drafters:
        for policy in rules:
            why = unfit(policy, drafter, profile)
            if why:
                left_out(f"{policy.label} left out: {why}")
            else:
                found.append((drafter.name, policy.label))
    return _some(found)


def _some(arms: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if not arms:
        raise InputError("no policy is left that drafter and profile can serve")
    return list(dict.fromkeys(arms))


def choose_baseline(asked: str | None, labels: Iterable[str]) -> str:
    """Return the baseline, normalised: what was asked for, else ``off``, else the first policy.

    Raises:
        InputError: what was asked for is no policy, or is not among ``labels``.
    """
    known = list(labels)
    if asked is None:
        return "off" if "off" in known else known[0]
    label = parse_policy(asked).label
    if label not in known:
        raise InputError(f"--baseline {label}: not among the policies of this run: {', '.join(known)}")
    return label
