"""vLLM's dynamic speculative decoding by a table of batch sizes."""

from __future__ import annotations

import re

from dspark_sim.errors import InputError
from dspark_sim.policies.base import BatchView, Decision
from dspark_sim.policies.registry import policy
from dspark_sim.policies.uniform import uniform

_ENTRY = re.compile(r"(\d+)-(\d+):(\d+)")


@policy(
    "vllm-table",
    source="vLLM, num_speculative_tokens_per_batch_size (PR #32374)",
    reads="none",
    verdict="lossless",
    basis="engine",
)
def vllm_table(view: BatchView, *, table: str = "1-16:3/64-128:2/256-4096:0") -> Decision:
    """K = table[requests of the step], gaps inherit the K before them, at most gamma; 0 drafts nothing.

    Entries are LOW-HIGH:K with / between; the default is the engine's own example. Simplified: the
    engine's key counts requests in prefill too. Lossless: known before anything is drafted.
    """
    below = [k for low, _, k in _entries(table) if low <= view.num_running]
    return uniform(view, below[-1] if below else 0)


def _entries(text: str) -> list[tuple[int, int, int]]:
    found = [_ENTRY.fullmatch(word.strip()) for word in text.split("/")]
    entries = [(int(m[1]), int(m[2]), int(m[3])) for m in found if m]
    if len(entries) < len(found) or sorted(entries) != entries or any(lo > hi for lo, hi, _ in entries):
        raise InputError(f"policy vllm-table: table={text}: must be LOW-HIGH:K, ascending, with / between")
    return entries
