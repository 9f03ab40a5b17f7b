"""What `run` and `sweep` were asked for: checked before anything is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_sim.cli.common import parse_set, warn
from dspark_sim.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from dspark_sim.engine.serving import Serving
    from dspark_sim.policies.base import Policy
    from dspark_sim.sweeps.running import Setup, Task

#: Load of a plan whose load is not users in a loop: as many as the profile lets run.
ANY_LOAD = 4096

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
    defaults: Sequence[str] | None = None,
    fast: bool | None = None,
) -> Plan:
    """Check everything that a user typed, and return the plan.

    Raises:
        InputError: a file, policy, drafter, override or baseline that does not exist or does not fit.
    """
    from dspark_sim.arms import DEFAULT_POLICIES, choose_baseline
    from dspark_sim.hardware.units import odd_units
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.sweeps.running import Setup, believed_doubts, grid, split_overrides

    if replicate not in REPLICATE:
        known = " or ".join(REPLICATE)
        raise InputError(f"--replicate {replicate}: must be {known}{did_you_mean(replicate, REPLICATE)}")
    overrides, cut = split_overrides(parse_set(assignments or ()))
    setup = Setup(trace, hw, overrides, output_tokens, cut, believed)
    if serving is not None:
        serving.check()
        setup = replace(setup, serving=serving)
    if odd := odd_units(setup.load_profile()):
        warn(f"--hw {hw}: {odd}")
    asked = [parse_policy(spec, lag) for spec in policies or defaults or DEFAULT_POLICIES]
    arms = _arms(setup, asked, drafters, by_name=bool(policies))
    labels = list(dict.fromkeys(label for _, label in arms))
    against = choose_baseline(baseline, labels)
    tasks = grid(setup, dict.fromkeys(arms), loads, seeds, by_prompts=replicate == "prompts")
    if fast or (fast is None and _repays_compiling(tasks)):
        _require_compiler(tasks, said=fast is not None)
        setup = replace(setup, fast=True)
        tasks = [replace(task, setup=setup) for task in tasks]
    for doubt in believed_doubts(tasks):
        warn(f"--believed {believed}: {doubt}")
    return Plan(setup, tasks, against)


def _arms(
    setup: Setup, asked: Sequence[Policy], drafters: Sequence[str] | None, by_name: bool
) -> list[tuple[str, str]]:
    """Return the arms. Policies asked for by name must run; with several drafters, where they can."""
    from dspark_sim.arms import fitting_arms, own_arms

    trace = setup.load_trace()
    if not drafters:
        return own_arms(asked, trace, None if by_name else setup.load_profile(), warn)
    chosen = [trace.drafter(name) for name in drafters]
    if by_name and len(chosen) == 1:
        return [(chosen[0].name, policy.label) for policy in asked]
    return fitting_arms(asked, chosen, setup.load_profile(), warn)


def _repays_compiling(tasks: Sequence[Task]) -> bool:
    """Return whether the compiler is there and ``tasks``, users in a loop, are long enough for it."""
    from dspark_sim.engine.fast import STEPS_WORTH_COMPILING, is_installed

    steps = sum(task.setup.output_tokens / task.concurrency for task in tasks if task.concurrency != ANY_LOAD)
    return steps > STEPS_WORTH_COMPILING and is_installed()


def _require_compiler(tasks: Sequence[Task], said: bool) -> None:
    """Refuse to go on without the compiler; say which policies it does not know, if it was asked for."""
    from dspark_sim.engine.fast import hindrance, require
    from dspark_sim.policies.registry import parse_policy

    require()
    prefill = tasks[0].setup.serving.check()
    reasons = [hindrance(parse_policy(spec), prefill) for spec in dict.fromkeys(t.policy for t in tasks)]
    if said:
        for reason in filter(None, reasons):
            warn(f"--fast: {reason}; it runs as without --fast")


def chosen_folder(
    out: Path | None, parent: str, plan: Plan, quiet: bool, *, resume: bool = False, force: bool = False
) -> Path | None:
    """Return the output folder, made and writable before anything is computed; None if none is wanted.

    Args:
        out: what the user asked for; None: ``parent/TRACE-HW`` in the working directory.
        parent: folder of default output.
        plan: gives the default its name.
        quiet: without ``out``, write nothing.
        resume: whether a folder of the same set-up and another grid may be gone on with.
        force: whether a former run may be replaced.

    Raises:
        InputError: as :func:`~dspark_sim.cli.folders.results_folder`.
    """
    from dspark_sim.cli.folders import results_folder
    from dspark_sim.sweeps.running import about

    if out is None and quiet:
        return None
    document = about(plan.setup, plan.tasks)
    return results_folder(out, Path(parent) / plan.name, document, resume=resume, force=force)
