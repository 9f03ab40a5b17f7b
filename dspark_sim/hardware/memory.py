"""How many KV blocks a replica has: what the engine reports, or memory over bytes, graphs subtracted."""

from __future__ import annotations

from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import HardwareProfile, KvMemory
from dspark_sim.hardware.tables import capture_sizes

MIB, GIB = 2**20, 2**30


def kv_blocks(profile: HardwareProfile, drafting: bool) -> int | None:
    """Return the KV blocks of one replica; None if the profile states no KV memory (unlimited).

    A block holds the target's KV of ``block_tokens`` tokens and, where something drafts, the drafter's.
    Captured graphs take ``capture.memory_mib_per_size`` each from ``kv.memory_gib``: capturing more
    sizes leaves fewer blocks. Blocks stated as a number (``kv.num_blocks``) are the target's alone;
    drafting shrinks them by the bytes per token.

    Args:
        profile: its ``kv`` and ``capture`` sections.
        drafting: whether the run holds a drafter's KV.

    Raises:
        InputError: graphs leave no room for a block.
    """
    kv = profile.kv
    if kv is None:
        return None
    blocks = _counted(kv, drafting) if kv.num_blocks is not None else _from_memory(profile, kv, drafting)
    if blocks < 1:
        raise InputError(
            f"profile {profile.name}: no room for a KV block: kv.memory_gib {kv.memory_gib} minus "
            f"{graph_bytes(profile) / GIB:.2f} GiB of captured graphs"
        )
    return blocks


def graph_bytes(profile: HardwareProfile) -> float:
    """Return the memory that the captured graphs take [bytes], all GPUs together."""
    captured = capture_sizes(profile.capture, profile.verify.tokens)
    return len(captured) * profile.capture.memory_mib_per_size * MIB if profile.capture else 0.0


def _counted(kv: KvMemory, drafting: bool) -> int:
    assert kv.num_blocks is not None
    if not (drafting and kv.draft_bytes_per_token and kv.bytes_per_token):
        return kv.num_blocks
    return kv.num_blocks * kv.bytes_per_token // (kv.bytes_per_token + kv.draft_bytes_per_token)


def _from_memory(profile: HardwareProfile, kv: KvMemory, drafting: bool) -> int:
    assert kv.memory_gib is not None
    assert kv.bytes_per_token is not None
    token_bytes = kv.bytes_per_token + (kv.draft_bytes_per_token if drafting else 0)
    return int((kv.memory_gib * GIB - graph_bytes(profile)) // (kv.block_tokens * token_bytes))
