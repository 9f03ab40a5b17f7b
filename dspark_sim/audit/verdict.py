"""One verdict on a rule at its lag, a temperature and a kind of confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dspark_sim.audit.overwrite import PLAIN, Counterexample, Revealed, find_counterexample, state_reads_tails
from dspark_sim.policies.base import Policy
from dspark_sim.schema import Verdict


@dataclass(frozen=True, slots=True)
class Audit:
    """What the overwrite test found.

    Attributes:
        policy: normalised spec.
        claimed: what the rule says of itself.
        verdict: what was found. ``lossless`` means that no counterexample was, in as long a search.
        counterexample: two batches that the rule may not tell apart, and does.
        state_reads_tails: see :func:`~dspark_sim.audit.overwrite.state_reads_tails`.
    """

    policy: str
    lag: int
    temperature: float
    revealed: Revealed
    claimed: Verdict
    verdict: Verdict
    counterexample: Counterexample | None
    state_reads_tails: bool

    @property
    def honest(self) -> bool:
        """Whether the rule claims no more than was found."""
        return self.verdict != "not-lossless" or self.claimed == "not-lossless"


def audit(
    policy: Policy,
    *,
    temperature: float = 1.0,
    revealed: Revealed = PLAIN,
    effort: float = 1.0,
    seed: int = 0,
    on_moment: Callable[[], None] = lambda: None,
) -> Audit:
    """Search for a counterexample to losslessness, and say what that means.

    At temperature 0 target and drafter are deterministic, and every rule is lossless: whatever is
    verified, the output is the target's one text.

    Args:
        policy: the rule at its lag.
        temperature: of target and drafter.
        revealed: what kind of confidence and of bonus the engine has.
        effort: length of the search, times the usual.
        seed: of the search.
        on_moment: as in :func:`~dspark_sim.audit.overwrite.find_counterexample`.

    Raises:
        InputError: the rule returns something else than lengths.
    """
    found = find_counterexample(policy, revealed=revealed, effort=effort, seed=seed, on_moment=on_moment)
    verdict: Verdict = "lossless-under-lag" if policy.lag else "lossless"
    if found is not None:
        verdict = "not-lossless"
    claimed = policy.verdict
    if temperature == 0:
        verdict, claimed, found = "lossless", "lossless", None
    peeks = policy.info.stateful and state_reads_tails(policy, seed=seed)
    return Audit(policy.label, policy.lag, temperature, revealed, claimed, verdict, found, peeks)
