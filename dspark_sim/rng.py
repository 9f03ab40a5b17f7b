"""Named random streams: one per purpose, so that policies share their randomness.

Two policies run under the same seed meet the same requests in the same order (common random
numbers), because no stream is shared between purposes and none depends on the policy.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: object) -> np.random.Generator:
    """Return the generator of the stream ``names`` under ``seed``.

    The key is a SHA-256 of the names, not Python's salted ``hash``, so that the same seed gives the
    same bytes in every process and on every machine.
    """
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    words = np.frombuffer(digest[:16], dtype=np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words.tolist()])))
