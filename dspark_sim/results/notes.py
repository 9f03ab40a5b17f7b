"""What a reader must know beside the numbers: captions and footnotes from the document of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dspark_sim.results.metrics import Point

if TYPE_CHECKING:
    from dspark_sim.hardware.profile import HardwareProfile
    from dspark_sim.workload.traces import Trace

AUTOREGRESSIVE = ("mtp", "eagle")


def caption(about: dict[str, Any]) -> list[str]:
    """Return lines that name trace and profile; what is synthetic says so first."""
    trace, profile = about["trace"], about["profile"]
    gpus = f"{profile['num_gpus']} GPU{'s' if profile['num_gpus'] > 1 else ''}"
    return [
        f"trace    {synthetic_mark(about)}{trace['name']}: {trace['target']}, T = {trace['temperature']:g}",
        f"hardware {profile['name']}: {profile['model']} on {gpus} ({profile['device']})",
    ]


def synthetic_mark(about: dict[str, Any]) -> str:
    """Return ``SYNTHETIC `` for a trace that no pair recorded, else an empty string."""
    return "SYNTHETIC " if about["trace"]["synthetic"] else ""


def footer(about: dict[str, Any]) -> str:
    """Return the line under a picture: trace, profile, version."""
    trace, profile = about["trace"], about["profile"]
    return (
        f"{synthetic_mark(about)}trace {trace['name']} ({trace['target']}) · "
        f"{profile['name']} ({profile['model']}) · dspark-sim {about['version']}"
    )


def notes(about: dict[str, Any], points: Iterable[Point]) -> list[str]:
    """Return the footnotes that trace, profile and policies of a run call for.

    Args:
        about: document of the run (:class:`dspark_sim.results.store.Results`).
        points: what is in the table.
    """
    trace, profile, points = about["trace"], about["profile"], list(points)
    found = []
    if trace["synthetic"]:
        found.append(
            "SYNTHETIC trace: acceptance was drawn from a model of acceptance, not recorded from a pair."
        )
    found += [words for words in (_few_seeds(points), drafter_words(points)) if words]
    found += pair_note(trace["target"], profile["model"])
    if believed := about.get("believed"):
        found.append(f"Planners believe the cost of '{believed['spec']}'; the engine charges the true one.")
        found += [f"Believed cost {doubt}." for doubt in believed["doubts"]]
    borrowed = sorted({p["drafter"] for p in points if _is_mtp(p["policy"])} - _autoregressive(trace))
    if borrowed:
        found.append(
            "mtp: acceptance is that of the first k positions of the recorded block of "
            f"{', '.join(borrowed)}, which is no autoregressive drafter."
        )
    most = profile.get("max_num_seqs")
    if most is not None and max((p["concurrency"] for p in points), default=0) > most:
        found.append(
            f"At most {most:,} requests run at once (max_num_seqs of {profile['name']}); above that load "
            "the others wait, and a user's speed is that of running requests."
        )
    assumed = [path for path, how in sorted(profile["how"].items()) if how == "assumed"]
    if assumed:
        found.append(f"Assumed, not measured, in {profile['name']}: {', '.join(assumed)}.")
    return found


def _few_seeds(points: Sequence[Point]) -> str:
    if len({p.get("seed") for p in points}) != 2:
        return ""
    return "Two seeds are few: intervals from them are wide and themselves uncertain; more --seeds tell more."


def several_drafters(points: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some policy ran with several drafters, so that its name alone does not say which run it is."""
    pairs = {(p["policy"], p["drafter"]) for p in points}
    return len(pairs) > len({policy for policy, _ in pairs})


def drafter_words(points: Sequence[Mapping[str, Any]]) -> str:
    """Return which policy drafts with which drafter, where several ran and names alone do not say it.

    The drafter of most policies is named last, and ``off``, which drafts nothing, not at all.
    """
    own: dict[str, list[str]] = {}
    for policy, drafter in dict.fromkeys((p["policy"], p["drafter"]) for p in points):
        if policy != "off":
            own.setdefault(drafter, []).append(policy)
    if len(own) < 2 or several_drafters(points):
        return ""
    *few, (last, many) = sorted(own.items(), key=lambda item: len(item[1]))
    words = [f"{', '.join(who)} {_drafts(who)} with {drafter}" for drafter, who in few]
    others = f"the others with {last}" if len(many) > 1 else f"{many[0]} with {last}"
    return f"{', '.join(words)}, {others}."


def _drafts(who: Sequence[str]) -> str:
    return "drafts" if len(who) == 1 else "draft"


def _autoregressive(trace: dict[str, Any]) -> set[str]:
    return {name for name, kind in trace["drafters"].items() if kind in AUTOREGRESSIVE}


def scene(trace: Trace, profile: HardwareProfile, concurrency: int) -> str:
    """Return what was simulated in a line that fits under a table: trace, profile, load."""
    mark = "SYNTHETIC " if trace.synthetic else ""
    users = f"{concurrency:,} user{'s' if concurrency > 1 else ''}"
    return f"{mark}trace {trace.name} ({trace.meta['target']}) · {profile.name} ({profile.model}) · {users}"


def pair_note(target: str, model: str) -> list[str]:
    """Return the footnote that acceptance and step cost are of two models; none where they are of one."""
    if same_model(target, model):
        return []
    return [f"The pair and the hardware differ: acceptance comes from {target}, step cost from {model}."]


def same_model(target: str, model: str) -> bool:
    """Whether two names are of one model: equal but for case, organisation and punctuation."""
    return _bare(target) == _bare(model)


def _bare(name: str) -> str:
    return "".join(c for c in name.rpartition("/")[2].lower() if c.isalnum())


def _is_mtp(policy: str) -> bool:
    return policy.partition(":")[0] == "mtp"
