"""How torch runs, for callers outside this folder, which do not import torch themselves."""

from __future__ import annotations

import torch

from dspark_sim.errors import InputError

#: Float type that drafters are shipped in: half the file, and training rounds coarser.
SHIPPED_DTYPE = torch.float16


def use_threads(count: int) -> None:
    """Compute on ``count`` threads. Two processes of one thread beat one process of two: spinning
    threads cost more than they give on shared cores.
    """
    torch.set_num_threads(count)


def check_device(device: str) -> None:
    """Refuse a CUDA device that is not there.

    Raises:
        InputError: this machine has no CUDA device.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"--device {device}: this machine has no CUDA device; use cpu")
