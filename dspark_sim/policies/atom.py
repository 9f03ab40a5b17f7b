"""ATOM's scheduler: Algorithm 1, run as a uniform block."""

from __future__ import annotations

from dspark_sim.errors import InputError
from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.dspark import dspark
from dspark_sim.policies.registry import policy


@policy(
    "atom",
    source="ROCm ATOM, dspark_scheduler.py",
    reads="current",
    verdict="lossless",
    basis="engine",
)
def atom(view: BatchView, *, sizes: str = "1/2/3/4/6/8") -> Decision:
    """Algorithm 1 with its early stop; the step runs R * q tokens, q = ceil(sum(1 + l) / R) rounded up to
    one of ``sizes`` (ragged_graph_sizes, anchor included), at most gamma + 1.

    Lossless as Algorithm 1 is: padding reads nothing but the lengths.
    """
    lengths, running = dspark(view), view.num_running
    tokens = running + int(lengths.sum())
    wanted = -(-tokens // running)
    size = min([q for q in _sizes(sizes) if q >= wanted] or [wanted])
    return Decision(lengths, padding=running * min(size, view.gamma + 1) - tokens)


def _sizes(text: str) -> list[int]:
    words = text.split("/")
    if not all(word.isdecimal() and int(word) for word in words):
        raise InputError(f"policy atom: sizes={text}: must be whole numbers above 0 with / between, as 2/4/8")
    return sorted({int(word) for word in words})
