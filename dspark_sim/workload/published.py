"""Published acceptance that synthetic traces can be made after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dspark_sim.errors import InputError, did_you_mean
from dspark_sim.workload.synth_spec import SynthDrafter

FIGURE_2 = "figure 2 of arXiv 2607.05147 (github.com/deepseek-ai/DeepSpec, DSpark_paper.pdf, commit afdfa7c9)"
GOLDEN = (
    "the golden curves of DeepSeek-V4-Pro, thinking on, on the coding set of SPEED-Bench "
    "(github.com/SemiAnalysisAI/InferenceX, golden_al_distribution, commit 843c6254f)"
)

#: Conditional acceptance at positions 1..7, Qwen3-4B, gamma 7, temperature 1, read off the vector paths
#: of figure 2: domain -> drafter -> values. They multiply to table 1's accepted lengths within 1%.
QWEN3_4B: dict[str, dict[str, tuple[float, ...]]] = {
    "math": {
        "dspark": (0.9053, 0.8899, 0.8878, 0.88543, 0.8872, 0.89057, 0.88243),
        "dflash": (0.88497, 0.827, 0.81983, 0.83377, 0.84143, 0.839, 0.82773),
        "eagle3": (0.81063, 0.8231, 0.83817, 0.84423, 0.8508, 0.85567, 0.85023),
    },
    "code": {
        "dspark": (0.8857, 0.87193, 0.85977, 0.8608, 0.8579, 0.8594, 0.85097),
        "dflash": (0.86537, 0.81453, 0.79707, 0.80127, 0.80977, 0.8014, 0.77703),
        "eagle3": (0.77097, 0.7737, 0.78123, 0.79127, 0.78697, 0.79387, 0.78397),
    },
    "chat": {
        "dspark": (0.7353, 0.7376, 0.7402, 0.74407, 0.7583, 0.7656, 0.7609),
        "dflash": (0.7181, 0.64793, 0.63817, 0.6606, 0.682, 0.69193, 0.68773),
        "eagle3": (0.5336, 0.58943, 0.64213, 0.6782, 0.7086, 0.72887, 0.73253),
    },
}

#: Accepted length at k = 1, 2, ... draft tokens, DeepSeek-V4-Pro, temperature 1. Each k is a run of its own;
#: differences are taken for survivals up to k = 5, the block that DSpark's head was trained for.
DSV4_PRO: dict[str, tuple[float, ...]] = {
    "dspark": (1.84, 2.51, 3.01, 3.36, 3.61),
    "mtp": (1.79, 2.27, 2.49, 2.54, 2.55),
}


def conditionals_of(accepted_len: Sequence[float]) -> tuple[float, ...]:
    """Return conditional acceptance by position from accepted lengths at k = 1, 2, ..."""
    survival = np.diff(np.concatenate([[1.0], accepted_len]))
    return tuple((survival / np.concatenate([[1.0], survival[:-1]])).tolist())


#: Name of a published set -> (target, domain, drafters).
PUBLISHED: dict[str, tuple[str, str, tuple[SynthDrafter, ...]]] = {
    f"qwen3-4b-{domain}": (
        "Qwen3-4B",
        domain,
        (
            SynthDrafter("dspark", "dspark", drafters["dspark"]),
            SynthDrafter("dflash", "dflash", drafters["dflash"]),
            SynthDrafter("eagle3", "eagle", drafters["eagle3"]),
        ),
    )
    for domain, drafters in QWEN3_4B.items()
}
PUBLISHED["dsv4-pro"] = (
    "DeepSeek-V4-Pro",
    "code",
    (
        SynthDrafter("dspark", "dspark", conditionals_of(DSV4_PRO["dspark"])),
        SynthDrafter("mtp", "mtp", conditionals_of(DSV4_PRO["mtp"])),
    ),
)


def source_of(name: str) -> str:
    """Return where the acceptance of the published set ``name`` stands, in words."""
    return GOLDEN if name == "dsv4-pro" else FIGURE_2


def published(name: str) -> tuple[str, str, tuple[SynthDrafter, ...]]:
    """Return (target, domain, drafters) of the published set ``name``.

    Raises:
        InputError: there is none of that name.
    """
    if name not in PUBLISHED:
        near, known = did_you_mean(name, PUBLISHED), ", ".join(PUBLISHED)
        raise InputError(f"no published acceptance '{name}'{near}; there is: {known}")
    return PUBLISHED[name]
