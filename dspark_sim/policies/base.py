"""The contract of a verification policy, and the registry of them.

A policy is a pure function of a :class:`BatchView` to verify lengths [R]. One file, one decorator::

    @policy("half", source="an example", reads="none", verdict="lossless", example="half:share=0.4")
    def half(view: BatchView, *, share: Annotated[float, Ge(0), Le(1)] = 0.5) -> IntArray: ...

Its keyword-only arguments *are* its options: specs such as ``half:share=0.4`` are checked against
the signature. ``lag`` is an option of the engine, not of the rule: a rule that reads "lagged" takes
it in its spec and sees older survivals in ``view.lagged_RG``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dspark_sim.schema import DraftKind, FloatArray, IntArray, Verdict


class BatchView(NamedTuple):
    """What a policy may look at in one step. Arrays are read-only, and valid during the call only.

    The engine hands over what the rule declares that it reads: survivals, confidences and lagged
    survivals are NaN for a rule that reads "none", lagged ones also for one that reads "current".

    survival_RG: current calibrated survival a[r, j] = P(draft tokens 1..j+1 of request r are all
        accepted); non-increasing along j; on a 2**-24 grid, so that sums do not depend on order.
    confidence_RG: current calibrated conditional confidence c[r, j].
    lagged_RG: survival of the block that each request drafted ``lag`` engine steps ago; 1.0 where
        there is none (new requests). Equal to ``survival_RG`` at lag 0.
    step_s_M: believed duration [s] of this step if m draft tokens are verified in all, m = 0..R*G:
        index m, B = R + m batch tokens. Everything the planner believes it pays is in it (verify at
        padded B, draft at R, attention, host). May rise and fall with m.
    gamma: draft tokens in a block.
    lag: engine steps between the block behind ``lagged_RG`` and now.
    """

    survival_RG: FloatArray
    confidence_RG: FloatArray
    lagged_RG: FloatArray
    step_s_M: FloatArray
    gamma: int
    lag: int

    @property
    def num_running(self) -> int:
        """R, the requests in this step."""
        return int(self.survival_RG.shape[0])


Rule = Callable[..., IntArray]

#: What decides the *sum* of the verify lengths: nothing random ("none": known before the step),
#: the current confidences ("current": the host must wait for them, so lag 0 pays the pipeline
#: bubble), or the lagged ones ("lagged": no bubble unless lag is 0).
Reads = Literal["none", "current", "lagged"]


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A registered rule and what the engine must know of it.

    draft_kind: what a step drafts: "none" (no speculation, no draft cost), a fixed kind ("mtp": k
        serial passes, k = the option ``k``), or None: the kind of the trace's drafter, full block.
    needs_confidence: refuse a drafter without a confidence head.
    default_lag: lag if the spec gives none (a rule with reads="lagged" takes the option ``lag``).
    verdict: (lag) -> verdict at temperature > 0, argued in the rule's docstring, audited in tests.
    options: name -> default, ``inspect.Parameter.empty`` where the spec must give a value.
    example: a spec of the rule that is valid.
    """

    name: str
    rule: Rule
    source: str
    reads: Reads
    draft_kind: DraftKind | None
    needs_confidence: bool
    default_lag: int
    verdict: Callable[[int], Verdict]
    options: Mapping[str, Any]
    example: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule bound to its options: what a spec such as ``dspark-async:lag=2`` becomes.

    ``label`` is the normalised spec (DESIGN 8): name, then every option that the rule has no default
    for or that differs from its default, in signature order; ``lag`` last.
    """

    info: PolicyInfo
    label: str
    options: Mapping[str, Any]
    lag: int

    def __call__(self, view: BatchView) -> IntArray:
        """Return verify_len [R], integers in 0..gamma."""
        return self.info.rule(view, **self.options)

    @property
    def verdict(self) -> Verdict:
        """Verdict of the rule at this lag, temperature > 0 (at 0 every rule is lossless)."""
        return self.info.verdict(self.lag)

    @property
    def synchronous(self) -> bool:
        """Whether the host waits for this step's confidences, and so pays the pipeline bubble."""
        return self.info.reads == "current" or (self.info.reads == "lagged" and self.lag == 0)
