"""What is wrong with a believed table: flat, stale, truncated, or of another shape than the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dspark_sim.hardware.believed import CONTEXT, Block
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.schema import FloatArray

#: A table that rises by less than this from no draft token to all of them plans nothing ...
_FLAT = 0.01
#: ... which is wrong where the truth rises by more than this.
_RISES = 0.05
#: Relative costs that are off by more than this are of another shape.
_SHAPE = 0.2


@dataclass(frozen=True, slots=True)
class Steps:
    """Step durations [s] at R requests by draft tokens verified, 0..R * gamma, believed and true."""

    requests: int
    believed_s_M: FloatArray
    true_s_M: FloatArray

    @property
    def shape_error_M(self) -> FloatArray:
        """Believed over true, both relative to verifying nothing, minus one."""
        believed_M, true_M = (curve / curve[0] for curve in (self.believed_s_M, self.true_s_M))
        error_M: FloatArray = believed_M / true_M - 1.0
        return error_M


def doubts(believed: HardwareProfile, true: HardwareProfile, block: Block, max_requests: int) -> list[str]:
    """Return one line for each thing that is wrong with a believed table, for a run of that size.

    Args:
        believed: what the planner reads.
        true: what the engine charges.
        block: what drafts.
        max_requests: most running requests.

    Raises:
        InputError: one of the two has no cost of such a drafter.
    """
    most_tokens = max_requests * (1 + block.gamma)
    costs = [StepCost(profile, max_requests, most_tokens) for profile in (believed, true)]

    def steps(requests: int) -> Steps:
        curves = [_curve(cost, block, requests) for cost in costs]
        return Steps(requests, curves[0], curves[1])

    sizes = {min(1 << i, max_requests) for i in range(max_requests.bit_length() + 1)}
    curves = [steps(requests) for requests in sorted(sizes)]
    shape = [*_flat(curves[-1])] or [*_misshaped(curves)]
    return [*_stale(believed, true), *_truncated(believed, most_tokens), *shape]


def _curve(cost: StepCost, block: Block, requests: int) -> FloatArray:
    draft_s = cost.draft_s(block.kind, requests, block.gamma)
    return cost.step_s_M(requests, requests * CONTEXT, requests * block.gamma, draft_s, False)


def _stale(believed: HardwareProfile, true: HardwareProfile) -> Iterator[str]:
    if "not stated" in (believed.device, believed.model):
        yield "unstated: the table does not say on what device or for what model it was taken"
        return
    for what in ("device", "model", "num_gpus"):
        theirs, ours = getattr(believed, what), getattr(true, what)
        if theirs != ours:
            yield f"stale: taken with {what} {theirs}, the run is on {ours}"
    for library in sorted(believed.versions.keys() & true.versions.keys()):
        theirs, ours = believed.versions[library], true.versions[library]
        if theirs != ours:
            yield f"stale: taken with {library} {theirs}, the profile of the run with {ours}"


def _truncated(believed: HardwareProfile, most_tokens: int) -> Iterator[str]:
    """Say so where neither the table nor a measured eager tail reaches the largest batch."""
    verify, eager = believed.verify, believed.eager
    tail = eager.tokens if eager and eager.tokens else ()
    last, beyond = max(verify.tokens[-1], *tail, 1), eager.beyond if eager and tail else verify.beyond
    if len(verify.tokens) > 1 and last < most_tokens:
        how = "held at its last value" if beyond == "hold" else f"extrapolated by its {beyond}"
        yield f"truncated: the table ends at {last:,} tokens, a full batch has {most_tokens:,}; {how} beyond"


def _flat(largest: Steps) -> Iterator[str]:
    believes, pays = (np.ptp(curve) / curve[0] for curve in (largest.believed_s_M, largest.true_s_M))
    if believes < _FLAT and pays > _RISES:
        yield (
            f"flat: at {largest.requests:,} requests it rises by {believes:.1%} from verifying nothing to "
            f"everything, the truth by {pays:.0%}; the planner will verify everything"
        )


def _misshaped(curves: list[Steps]) -> Iterator[str]:
    worst = max(curves, key=lambda steps: float(np.abs(steps.shape_error_M).max()))
    at = int(np.abs(worst.shape_error_M).argmax())
    if abs(worst.shape_error_M[at]) > _SHAPE:
        believes, pays = (curve[at] / curve[0] for curve in (worst.believed_s_M, worst.true_s_M))
        yield (
            f"mis-shaped: at {worst.requests:,} requests and {worst.requests + at:,} tokens a step is "
            f"believed to cost {believes:.2f} times one that verifies nothing; it costs {pays:.2f}"
        )
