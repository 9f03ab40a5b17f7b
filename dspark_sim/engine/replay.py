"""A trace laid out for replay: everything a step gathers, one row an anchor.

Shape legend: N anchors of the trace, all texts laid end to end; G = gamma; W columns of a padded table:
G survivals, then -1 up to whole words of eight, so that rows are aligned and their truth values are words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dspark_sim.engine.table_files import mapped, write
from dspark_sim.errors import InputError
from dspark_sim.policies import dspark, dspark_async
from dspark_sim.policies.base import Policy
from dspark_sim.schema import DraftKind, FloatArray, IntArray
from dspark_sim.workload.shelf import AT_ONCE, slices
from dspark_sim.workload.traces import DrafterTrace, Trace, quantise

_LAGGED: WeakKeyDictionary[DrafterTrace, NDArray[np.float32]] = WeakKeyDictionary()
_SURVIVAL: WeakKeyDictionary[DrafterTrace, NDArray[np.float32]] = WeakKeyDictionary()
_WORD = 8


@dataclass(frozen=True, slots=True)
class Replay:
    """What the engine reads of one drafter of a trace.

    Attributes:
        draft_kind, draft_tokens: what a step drafts: its kind, and tokens per request.
        accepted_N: draft tokens that a full-block verification accepts, never past the recorded end.
        survival_NG, confidence_NG: current block, calibrated; None unless the rule is shown it.
        survival_NW: the same survivals, padded; None unless the rule reads them.
        lagged_LW: survivals that an older step reveals, row ``N-row * G + min(verify_len, G - 1)``
            (see :func:`lagged_table`), and a row of ones at the end; None unless the rule is lagged.
    """

    gamma: int
    draft_kind: DraftKind
    draft_tokens: int
    accepted_N: IntArray
    survival_NG: FloatArray | None
    confidence_NG: FloatArray | None
    survival_NW: NDArray[np.float32] | None
    lagged_LW: NDArray[np.float32] | None

    @property
    def width(self) -> int:
        """Columns of the padded tables, W."""
        return _width(self.gamma)

    @property
    def lookahead(self) -> int:
        """Draft tokens per request that a step must have KV and token budget for."""
        return 0 if self.draft_kind == "none" else self.draft_tokens


def build_replay(trace: Trace, drafter: DrafterTrace, policy: Policy) -> Replay:
    """Lay ``drafter`` out for ``policy``.

    Raises:
        InputError: the policy needs confidences that the drafter lacks, or more draft tokens than a
            block holds.
    """
    _check(trace, drafter, policy)
    kind = policy.info.draft_kind or drafter.kind
    serial = kind in ("mtp", "eagle")
    reads = policy.info.reads
    shown = reads != "none" and not replays_tables(policy)
    return Replay(
        gamma=drafter.gamma,
        draft_kind=kind,
        draft_tokens=int(policy.options.get("k", drafter.gamma)) if serial else drafter.gamma,
        accepted_N=accepted_table(drafter),
        survival_NG=drafter.survival_NG() if shown else None,
        confidence_NG=drafter.confidence_NG() if shown else None,
        survival_NW=survival_table(drafter) if reads != "none" else None,
        lagged_LW=lagged_table(drafter) if policy.lag else None,
    )


def replays_tables(policy: Policy) -> bool:
    """Return whether a shipped rule is decided from the padded tables alone (:mod:`.shortcuts`)."""
    return policy.info.rule in (dspark.dspark, dspark_async.dspark_async)


def survival_table(drafter: DrafterTrace) -> NDArray[np.float32]:
    """Return the current survivals, padded [N, W]; float32 holds their 2**-24 grid exactly.

    Raises:
        InputError: the trace holds no confidences.
    """
    if drafter not in _SURVIVAL:
        rows = len(drafter.logits_NG())
        parts = (_padded(drafter.survival_of(some)) for some in slices(rows))
        _SURVIVAL[drafter] = mapped(drafter, "survival", (rows, _width(drafter.gamma)), parts)
    return _SURVIVAL[drafter]


def _width(gamma: int) -> int:
    return (gamma // _WORD + 1) * _WORD


def _padded(survival_XG: FloatArray) -> NDArray[np.float32]:
    """Return rows of survivals with their pads [X, W]."""
    rows, gamma = survival_XG.shape
    table = np.full((rows, _width(gamma)), -1, dtype=np.float32)
    table[:, :gamma] = survival_XG
    return table


def lagged_table(drafter: DrafterTrace) -> NDArray[np.float32]:
    """Return the survivals that a lagged budget may use, for every anchor and verify_len.

    A step that verified l tokens of a block reveals the coupled confidences 1..l+1; past those the
    live drafter's block is independent of the text to come, so the free block's confidences stand in.
    Running products, rounded to the 2**-24 grid, padded. Shape [N * G + 1, W]:
    row ``n * G + min(l, G - 1)``; the last row is 1.0, for requests that were not there.

    Raises:
        InputError: the trace holds no free block.
    """
    if drafter not in _LAGGED:
        rows = len(drafter.logits_NG(free=True)) * drafter.gamma + 1
        _LAGGED[drafter] = mapped(drafter, "lagged", (rows, _width(drafter.gamma)), _lagged_parts(drafter))
    return _LAGGED[drafter]


def _lagged_parts(drafter: DrafterTrace) -> Iterator[NDArray[np.float32]]:
    gamma = drafter.gamma
    for some in slices(len(drafter.accepted_N), AT_ONCE // gamma):
        coupled, free = drafter.confidence_of(some), drafter.confidence_of(some, free=True)
        part_NGG = np.empty((len(coupled), gamma, gamma))
        for verified in range(gamma):
            known = np.arange(gamma) <= verified
            mixed: FloatArray = np.where(known, coupled, free)
            part_NGG[:, verified] = quantise(np.cumprod(mixed, axis=1, dtype=np.float64))
        yield _padded(part_NGG.reshape(-1, gamma))
    yield _padded(np.ones((1, gamma)))


def accepted_table(drafter: DrafterTrace) -> IntArray:
    """Return the accepted tokens in the width of lengths [N]: a step need not cast them."""
    if drafter.home is None:
        return drafter.accepted_N.astype(np.int64)
    rows = len(drafter.accepted_N)
    parts = (drafter.accepted_N[some] for some in slices(rows))
    table: IntArray = drafter.laid_out("accepted", np.int64, (rows,), parts)
    return table


def share_tables(folder: Path, drafter: DrafterTrace, policy: Policy) -> None:
    """Write the tables that runs of ``policy`` replay into ``folder``, for other processes to map.

    Those of a trace that is mapped lie where every process finds them.
    """
    if drafter.home is not None:
        return
    if policy.info.reads != "none" and drafter.has_confidence:
        write(folder, drafter, "survival", survival_table(drafter))
        if policy.lag and drafter.confidence_logit_free_NG is not None:
            write(folder, drafter, "lagged", lagged_table(drafter))


def _check(trace: Trace, drafter: DrafterTrace, policy: Policy) -> None:
    if policy.info.needs_confidence and not drafter.has_confidence:
        raise InputError(
            f"policy {policy.label} needs confidences, and drafter '{drafter.name}' of trace "
            f"'{trace.name}' has no confidence head; static:k=N and full need none"
        )
    wanted = policy.options.get("k", 0)
    if wanted > drafter.gamma:
        kind = policy.info.draft_kind
        instead = f", which stands in for one of kind {kind}," if kind not in (None, drafter.kind) else ""
        raise InputError(
            f"policy {policy.label}: k is {wanted}, but drafter '{drafter.name}' of trace "
            f"'{trace.name}'{instead} drafts {drafter.gamma} tokens a block; k must be 0 to {drafter.gamma}"
        )
