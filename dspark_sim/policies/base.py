"""The contract of a verification policy: what a rule sees, what it returns, what the engine knows of it.

A policy is a pure function of a :class:`BatchView` to verify lengths [R]. One file, one decorator::

    @policy("half", source="an example", reads="none", verdict="lossless", example="half:share=0.4")
    def half(view: BatchView, *, share: Annotated[float, Ge(0), Le(1)] = 0.5) -> IntArray: ...

Its keyword-only arguments *are* its options: specs such as ``half:share=0.4`` are checked against
the signature. ``lag`` is an option of the engine, not of the rule: a rule that reads "lagged" takes
it in its spec and sees older survivals in ``view.lagged_RG``.

A rule with memory takes its state as a second argument, None in the first step, and returns the new
one beside its lengths; it never changes the old one::

    @policy("mean", source="an example", reads="none", verdict="lossless")
    def mean(view: BatchView, state: float | None) -> Decision:
        smoothed = ...  # of state and view.past
        return Decision(lengths, state=smoothed)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.schema import DraftKind, FloatArray, IntArray, Verdict


class Past(NamedTuple):
    """What the last finished step came to, for its P requests. It is history: any rule may read it.

    previous_R: place of each running request in that step's batch, 0..P-1; -1 if it was not there.
    verify_len_P, accepted_P: draft tokens verified and accepted (bonus excluded, before the cut at the
        end of a text); each request committed ``accepted + 1``.
    step_s: true duration of that step [s]; NaN before the first.
    """

    previous_R: IntArray
    verify_len_P: IntArray
    accepted_P: IntArray
    step_s: float

    @classmethod
    def nothing(cls, num_running: int) -> Past:
        """Return the past of a first step."""
        none = np.empty(0, dtype=np.int64)
        return cls(np.full(num_running, -1), none, none, np.nan)

    def carried(self, values_P: FloatArray, fresh: float) -> FloatArray:
        """Return values of the last step's requests for those of this one; ``fresh`` for new ones.

        Args:
            values_P: one value, or one row of values, a request of the last step.
            fresh: what a new request starts with.
        """
        shape = (len(self.previous_R), *values_P.shape[1:])
        carried = np.full(shape, fresh)
        stayed = self.previous_R >= 0
        carried[stayed] = values_P[self.previous_R[stayed]]
        return carried


_NO_PAST = Past.nothing(0)


def _costs_nothing(requests: int, tokens: int) -> float:
    return 0.0


class BatchView(NamedTuple):
    """What a policy may look at in one step. Arrays are read-only, and valid during the call only.

    The engine hands over what the rule declares that it reads: survivals, confidences and lagged
    survivals are NaN for a rule that reads "none", lagged ones also for "current" and "fixed".

    survival_RG: current calibrated survival a[r, j] = P(draft tokens 1..j+1 of request r are all
        accepted); non-increasing along j; on a 2**-24 grid, so that sums do not depend on order.
    confidence_RG: current calibrated conditional confidence c[r, j].
    lagged_RG: survival of the block that each request drafted ``lag`` engine steps ago; 1.0 where
        there is none (new requests). Equal to ``survival_RG`` at lag 0.
    step_s_M: believed duration [s] of this step if m draft tokens are verified in all, m = 0..R*G:
        index m, B = R + m batch tokens. Everything the planner believes it pays is in it (verify at
        padded B, draft of whole blocks at R, attention, host). May rise and fall with m.
    gamma: draft tokens in a block.
    lag: engine steps between the block behind ``lagged_RG`` and now.
    draft_s: (requests, tokens each) -> believed duration [s] of drafting that; the part of ``step_s_M``
        is ``draft_s(R, gamma)``. 0.0 for nothing.
    past: what the last step came to; left out: this is the first.
    captured: believed capture sizes [tokens], ascending; empty: none, a step runs the tokens it has.
    kv_tokens: KV cache held by the running requests [tokens].
    prefill_tokens: prompt tokens mixed into this step [tokens]; in ``step_s_M`` already.
    num_waiting: requests that wait for a slot.
    """

    survival_RG: FloatArray
    confidence_RG: FloatArray
    lagged_RG: FloatArray
    step_s_M: FloatArray
    gamma: int
    lag: int
    draft_s: Callable[[int, int], float] = _costs_nothing
    past: Past = _NO_PAST
    captured: tuple[int, ...] = ()
    kv_tokens: int = 0
    prefill_tokens: int = 0
    num_waiting: int = 0

    @property
    def num_running(self) -> int:
        """R, the requests in this step."""
        return int(self.survival_RG.shape[0])


class Decision(NamedTuple):
    """What a rule may answer instead of bare lengths.

    verify_len_R: draft tokens of each request to verify, 0..gamma.
    state: the rule's memory, handed back in the next step.
    draft_R: draft tokens of each request to draft, decided *before* anything is drafted, so without a
        look at this step's confidences; at least ``verify_len_R``. The step pays for the requests that
        draft, at the longest of their blocks. None: whole blocks of all.
    padding: dummy tokens that the step runs beside the verified ones.
    """

    verify_len_R: IntArray
    state: Any = None
    draft_R: IntArray | None = None
    padding: int = 0


Rule = Callable[..., IntArray | Decision]

#: What decides the *sum* of the verify lengths: nothing random ("none": known before the step),
#: the current confidences ("current": the host must wait for them, so lag 0 pays the pipeline
#: bubble), or the lagged ones ("lagged": no bubble unless lag is 0). "fixed": the sum is known before
#: the step, and current confidences only decide whose tokens they are, which no host waits for.
Reads = Literal["none", "fixed", "current", "lagged"]

#: What a rule was checked against: the paper's formula, an engine's code as publicly described, a
#: project's own page, an abstract alone, or nothing (it is ours).
Basis = Literal["paper", "engine", "page", "abstract", "own"]


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
    basis: what the rule was checked against.
    stateful: whether it takes a state.
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
    basis: Basis = "own"
    stateful: bool = False


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
        """Return verify_len [R], integers in 0..gamma, of a first step."""
        return self.decide(view).verify_len_R

    def decide(self, view: BatchView, state: Any = None) -> Decision:
        """Return the rule's decision; ``state`` is that of the last decision, None at first.

        Raises:
            InputError: the rule raised something; the message says what and where.
        """
        if view.past is _NO_PAST:
            view = view._replace(past=Past.nothing(view.num_running))
        memory = (state,) if self.info.stateful else ()
        try:
            answer = self.info.rule(view, *memory, **self.options)
        except InputError:
            raise
        except Exception as error:
            raise InputError(self._blame(error)) from error
        return answer if isinstance(answer, Decision) else Decision(answer)

    def _blame(self, error: Exception) -> str:
        """Return one line that says where a rule, perhaps the user's own, failed."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})" if trace else ""
        return f"policy {self.label} raised {type(error).__name__}: {error}{place}"

    @property
    def verdict(self) -> Verdict:
        """Verdict of the rule at this lag, temperature > 0 (at 0 every rule is lossless)."""
        return self.info.verdict(self.lag)

    @property
    def synchronous(self) -> bool:
        """Whether the host waits for this step's confidences, and so pays the pipeline bubble."""
        return self.info.reads == "current" or (self.info.reads == "lagged" and self.lag == 0)
