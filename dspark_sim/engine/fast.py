"""Whether a run can be compiled, said without starting the compiler (:mod:`dspark_sim.engine.compiled`)."""

from __future__ import annotations

from importlib.util import find_spec

from dspark_sim.engine.prefill import Prefill
from dspark_sim.engine.shortcuts import has_shortcut
from dspark_sim.errors import InputError
from dspark_sim.policies.base import Policy

#: Engine steps above which compiled steps repay the compiler's start, and its first run, unasked.
STEPS_WORTH_COMPILING = 1_000_000


def is_installed() -> bool:
    """Return whether the compiler (the extra ``fast``: numba) is there."""
    return find_spec("numba") is not None


def require() -> None:
    """Refuse to go on without the compiler.

    Raises:
        InputError: it is not installed.
    """
    if not is_installed():
        raise InputError("the compiled step needs numba; pip install 'dspark-sim[fast]', or run without it")


def hindrance(policy: Policy, prefill: Prefill) -> str | None:
    """Return why runs of ``policy`` are not compiled, or None if they are."""
    if not has_shortcut(policy):
        return f"{policy.label}: only off, static, mtp, full, threshold, dspark and dspark-async are compiled"
    if prefill.workers:
        return f"{policy.label}: a prefill pool of its own is not compiled"
    return None
