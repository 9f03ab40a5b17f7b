"""How torch runs, for callers outside this folder, which do not import torch themselves."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dspark_sim.errors import InputError

#: Float type that drafters are shipped in: half the file, and training rounds coarser.
SHIPPED_DTYPE = torch.float16


def use_threads(count: int) -> None:
    """Compute on ``count`` threads. Two processes of one thread beat one process of two: spinning
    threads cost more than they give on shared cores.
    """
    torch.set_num_threads(count)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks up to 32 MiB for reuse.

    By default it gives them back to the kernel, and page faults take a sixth of a training step.
    Nothing happens under another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 32 << 20)
        mallopt(trim_threshold, 1 << 30)


@contextmanager
def tiny_values_as_zero() -> Iterator[None]:
    """Take floats below 1e-38 as zero on this thread, where the processor can.

    Rows of a table that no token draws leave moments in the optimizer that fade to the smallest float and
    stay there, and some cores are very slow at such floats: on one, training lost a third of its speed.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def check_device(device: str) -> None:
    """Refuse a CUDA device that is not there.

    Raises:
        InputError: this machine has no CUDA device.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"--device {device}: this machine has no CUDA device; use cpu")
