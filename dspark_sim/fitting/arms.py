"""What an arm of a sweep runs: its policy, and how many tokens its drafter drafts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dspark_sim.errors import InputError
from dspark_sim.policies.registry import parse_policy

#: Block of an engine whose sweep has no fixed arm that says it (num_speculative_tokens).
BLOCK = 7
#: Names that sweeps use beside kN and mtpN.
NAMES = {
    "nospec": "off",
    "no-spec": "off",
    "no_spec": "off",
    "baseline": "off",
    "adaptive": "vllm-adaptive",
}
_FIXED = re.compile(r"k=?(?P<k>[1-9][0-9]*)")
_MTP = re.compile(r"mtp-?(?P<k>[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm.

    Attributes:
        name: as the sweep has it.
        policy: normalised spec.
        block: tokens that its drafter drafts; 0 without speculation.
    """

    name: str
    policy: str
    block: int

    @property
    def plans(self) -> bool:
        """Whether it plans with a cost that it profiled, which is not the true one."""
        return self.policy.partition(":")[0] == "vllm-adaptive"


def parse_arms(names: Iterable[str], given: Mapping[str, str], longest: int | None = None) -> dict[str, Arm]:
    """Return the arms of a sweep by name.

    Args:
        names: of the arms: ``nospec``, ``kN`` (N draft tokens, all verified), ``mtpN``, ``adaptive``
            (vLLM's), or any policy spec.
        given: name -> policy spec, for names that say nothing or mean something else.
        longest: block of arms whose length is not fixed; None: that of the longest fixed arm.

    Raises:
        InputError: a name that is none of these, a spec that does not hold, one for an arm that the
            sweep lacks, or a fixed length above ``longest``.
    """
    wanted = list(dict.fromkeys(names))
    for name in given:
        if name not in wanted:
            raise InputError(f"--arm {name}: the sweep has no such arm; it has: {', '.join(wanted)}")
    specs = {name: _spec(name, given) for name in wanted}
    fixed = {name: _fixed_length(spec) for name, spec in specs.items()}
    if longest is None:
        longest = max((k for k in fixed.values() if k), default=BLOCK)
    for name, k in fixed.items():
        if (k or 0) > longest:
            raise InputError(f"arm {name}: drafts {k} tokens, and the fitted system at most {longest}")
    return {name: Arm(name, spec, _block(spec, fixed[name], longest)) for name, spec in specs.items()}


def _block(spec: str, fixed: int | None, longest: int) -> int:
    if spec == "off":
        return 0
    return longest if fixed is None else fixed


def _fixed_length(spec: str) -> int | None:
    policy = parse_policy(spec)
    return int(policy.options["k"]) if policy.info.name in {"static", "mtp"} else None


def _spec(name: str, given: Mapping[str, str]) -> str:
    if name in given:
        return parse_policy(given[name]).label
    word = name.lower()
    if word in NAMES:
        return NAMES[word]
    if found := _FIXED.fullmatch(word):
        return f"static:k={found['k']}"
    if found := _MTP.fullmatch(word):
        return f"mtp:k={found['k']}"
    try:
        return parse_policy(name).label
    except InputError:
        known = f"nospec, kN, mtpN, adaptive, or a policy spec; say what it runs: --arm {name}=SPEC"
        raise InputError(f"arm '{name}': expected {known}") from None
