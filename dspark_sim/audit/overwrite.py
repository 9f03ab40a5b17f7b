"""The overwrite test: what a rule does not verify must not have decided anything.

Let L be the lengths that a rule returns. Given the past, the event {L = l} must be decided by what the
verified prefixes reveal: the confidences c_{r,j}, j <= l_r + 1, of all requests together. (A c_j that
reads x_j itself, such as a token's probability: j <= l_r.) For fixed l, verified prefixes and output
are a marginal of the full-block law, whose output is the target's; sum over l. So: overwrite every
confidence behind, of all requests at once, by anything. L must not move. Lagged views and the state
are past, and stay.

With a *coupled* bonus, drawn by testing x_{l+1} against the target instead of afresh, a round reveals
one token more of each request: j <= l_r + 2 (docs/policies.md has the proof).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dspark_sim.audit.worlds import Moment, episode, with_confidence
from dspark_sim.policies.base import BatchView, Decision, Policy
from dspark_sim.schema import FloatArray, IntArray

#: (R, gamma, steps) of the episodes, small ones first: the first counterexample is then a small one.
SIZES = ((1, 2, 60), (2, 2, 80), (2, 3, 80), (3, 3, 80), (4, 5, 60), (2, 7, 40), (24, 7, 12))
_RANDOM_FILLS = 6
_CELLS = 12
_DRAFT_FILLS = 10


@dataclass(frozen=True, slots=True)
class Revealed:
    """What a decision reveals of a block, beside the verified tokens.

    Attributes:
        of_token: the drafter's confidence c_j reads x_j itself, not only the tokens before it.
        coupled: the bonus is drawn by testing the first token that is not verified.
    """

    of_token: bool = False
    coupled: bool = False

    @property
    def ahead(self) -> int:
        """Confidences revealed beyond the verified length."""
        return 1 - self.of_token + self.coupled


#: Confidences of the tokens before, bonus drawn afresh.
PLAIN = Revealed()


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Two blocks that agree on all that the first decision reveals, and are decided differently.

    Attributes:
        moved: ``verify_len``, or ``draft``: drafting was decided by a look at the draft.
        view: the batch as the rule saw it.
        verify_len_R: what it decided.
        other_RG: confidences that agree with the view's where the decision reveals them.
        other_len_R: what it decides on those.
    """

    moved: str
    view: BatchView
    verify_len_R: IntArray
    other_RG: FloatArray
    other_len_R: IntArray

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        view = self.view
        lagged = view.lagged_RG if view.lag else None
        return {
            "moved": self.moved,
            "confidences": view.confidence_RG.tolist(),
            "lagged_survivals": None if lagged is None else lagged.tolist(),
            "step_s": view.step_s_M.tolist(),
            "decision": self.verify_len_R.tolist(),
            "overwritten_confidences": self.other_RG.tolist(),
            "decision_then": self.other_len_R.tolist(),
        }


def find_counterexample(
    policy: Policy,
    *,
    revealed: Revealed = PLAIN,
    effort: float = 1.0,
    seed: int = 0,
    on_moment: Callable[[], None] = lambda: None,
) -> Counterexample | None:
    """Search for a counterexample; None if every overwriting left the decisions alone.

    Args:
        policy: the rule at its lag.
        revealed: what a decision reveals.
        effort: length of the episodes, times the usual.
        seed: of the search.
        on_moment: called after every batch that was tried, at most :func:`search_length` times.

    Raises:
        InputError: the rule returns something else than lengths.
    """
    rng = np.random.default_rng(seed)
    least = int(policy.options.get("k", 0))
    for running, gamma, steps in SIZES:
        size = {"num_running": running, "gamma": max(gamma, least), "steps": max(1, round(steps * effort))}
        for moment in episode(policy, rng, **size):
            on_moment()
            found = _try(policy, moment, rng, revealed)
            if found is not None:
                return _smallest(policy, moment, found)
    return None


def search_length(effort: float) -> int:
    """Return how many batches a search without a find tries."""
    return sum(max(1, round(steps * effort)) for *_, steps in SIZES)


def hidden(decision: Decision, gamma: int, revealed: Revealed = PLAIN) -> NDArray[np.bool_]:
    """Return the mask [R, G] of confidences that a decision does not reveal; undrafted ones are not there."""
    place = np.arange(gamma)
    mask: NDArray[np.bool_] = place >= decision.verify_len_R[:, None] + revealed.ahead
    if decision.draft_R is not None:
        mask |= place >= decision.draft_R[:, None]
    return mask


def state_reads_tails(policy: Policy, *, seed: int = 0) -> bool:
    """Whether a rule's state remembers confidences behind its verified prefixes.

    Live that is harmless: the tail of a block is independent of the text to come. In a replay the
    recorded block is drawn given the text, so such a memory knows the future; use ``lagged_RG``.
    """
    rng = np.random.default_rng(seed)
    least = int(policy.options.get("k", 0))
    for moment in episode(policy, rng, num_running=3, gamma=max(4, least), steps=30):
        mask = hidden(moment.decision, moment.view.gamma)
        for fill in (0.0, 1.0):
            other = with_confidence(moment.view, np.where(mask, fill, moment.view.confidence_RG))
            decision = policy.decide(other, moment.state)
            same = np.array_equal(decision.verify_len_R, moment.decision.verify_len_R)
            if same and not _equal(decision.state, moment.decision.state):
                return True
    return False


def _equal(one: object, other: object) -> bool:
    """Whether two states are the same, arrays and tuples of arrays included."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def _try(
    policy: Policy, moment: Moment, rng: np.random.Generator, revealed: Revealed
) -> Counterexample | None:
    view, decision = moment.view, moment.decision
    mask = hidden(decision, view.gamma, revealed)
    for values in _fills(view, mask, rng):
        other = np.where(mask, values, view.confidence_RG)
        then = policy.decide(with_confidence(view, other), moment.state)
        if not np.array_equal(then.verify_len_R, decision.verify_len_R):
            return Counterexample("verify_len", view, decision.verify_len_R, other, then.verify_len_R)
    return _try_drafting(policy, moment, rng)


def _try_drafting(policy: Policy, moment: Moment, rng: np.random.Generator) -> Counterexample | None:
    """What is drafted is decided before the draft: nothing of this step's block may move it."""
    draft_R, view = moment.decision.draft_R, moment.view
    if draft_R is None:
        return None
    everything = np.ones(view.confidence_RG.shape, dtype=bool)
    for values in islice(_fills(view, everything, rng), _DRAFT_FILLS):
        then = policy.decide(with_confidence(view, values), moment.state).draft_R
        if then is None or not np.array_equal(then, draft_R):
            moved = np.full_like(draft_R, view.gamma) if then is None else then
            return Counterexample("draft", view, draft_R, values, moved)
    return None


def _fills(view: BatchView, mask: NDArray[np.bool_], rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield confidences [R, G] to overwrite with: constants, ties, extremes, one cell against the rest."""
    shape = view.confidence_RG.shape
    if not mask.any():
        return
    yield from (np.full(shape, value) for value in (0.0, 1.0, 0.5, 0.97))
    for _ in range(_RANDOM_FILLS):
        yield rng.integers(0, 2, shape).astype(np.float64)
        yield rng.random(shape)
        yield rng.choice(view.confidence_RG.ravel(), shape)
    cells = np.argwhere(mask)
    for r, j in rng.permutation(cells)[:_CELLS]:
        for value in (0.0, 1.0):
            alone = view.confidence_RG.copy()
            alone[r, j] = value
            yield alone


def _smallest(policy: Policy, moment: Moment, found: Counterexample) -> Counterexample:
    """Put back every overwritten cell that the counterexample does not need."""
    if found.moved != "verify_len":
        return found
    view, other, then = found.view, found.other_RG.copy(), found.other_len_R
    for r, j in np.argwhere(other != view.confidence_RG):
        tried = other.copy()
        tried[r, j] = view.confidence_RG[r, j]
        lengths = policy.decide(with_confidence(view, tried), moment.state).verify_len_R
        if not np.array_equal(lengths, found.verify_len_R):
            other, then = tried, lengths
    return Counterexample(found.moved, view, found.verify_len_R, other, then)
