"""Numbers of the paper's offline studies, to stand beside ours.

Read off the vector paths of figures 2 to 6 and off table 1 of arXiv 2607.05147 (DSpark_paper.pdf of
github.com/deepseek-ai/DeepSpec, commit afdfa7c9). Accepted lengths count the bonus token and are means over
the three datasets of a domain. Figure 2 stands in ``workload.published.QWEN3_4B``.
"""

from __future__ import annotations

SOURCE = "arXiv 2607.05147, DSpark_paper.pdf of github.com/deepseek-ai/DeepSpec, commit afdfa7c9"

DOMAINS = ("math", "code", "chat")

#: Figure 4 (Qwen3-4B, 5 layers): drafter -> gamma -> accepted length in math, code, chat.
LENGTH: dict[str, dict[int, tuple[float, float, float]]] = {
    "dspark": {
        3: (3.5428, 3.4141, 2.8014),
        7: (5.5698, 5.1217, 3.4909),
        11: (6.6171, 5.8915, 3.6565),
        15: (7.1905, 6.2545, 3.6995),
    },
    "dflash": {
        3: (3.3215, 3.2315, 2.6101),
        7: (4.8020, 4.4377, 2.9543),
        11: (5.3932, 4.8494, 3.0196),
        15: (5.5359, 4.9566, 3.0332),
    },
}

#: Figure 4, latency panel: drafter -> gamma -> one round at 128 requests, mean over contexts 512..4096 [ms].
ROUND_MS: dict[str, dict[int, float]] = {
    "dspark": {3: 188.098, 7: 190.333, 11: 192.688, 15: 194.997},
    "dflash": {3: 187.693, 7: 189.274, 11: 190.898, 15: 192.483},
}

#: Figure 3 (Qwen3-4B, gamma 7): drafter -> layers -> accepted length in math, code, chat.
DEPTH: dict[str, dict[int, tuple[float, float, float]]] = {
    "dspark": {1: (4.204, 3.769, 2.612), 2: (5.152, 4.696, 3.168), 5: (5.570, 5.122, 3.491)},
    "dflash": {5: (4.802, 4.438, 2.954)},
}

#: Table 1 (gamma 7): target -> drafter -> accepted length in math, code, chat.
TABLE_1: dict[str, dict[str, tuple[float, float, float]]] = {
    "Qwen3-4B": {"dspark": (5.57, 5.12, 3.49), "dflash": (4.80, 4.44, 2.95), "eagle3": (4.56, 3.87, 2.40)},
    "Qwen3-8B": {"dspark": (5.65, 5.28, 3.50), "dflash": (4.77, 4.46, 2.97), "eagle3": (4.66, 4.15, 2.58)},
    "Qwen3-14B": {"dspark": (5.63, 5.24, 3.47), "dflash": (4.74, 4.45, 2.92), "eagle3": (4.52, 3.99, 2.52)},
    "Gemma4-12B": {"dspark": (5.65, 5.09, 3.25), "dflash": (4.90, 4.35, 2.80), "eagle3": (5.39, 4.75, 2.99)},
}

#: Figure 5: domain (its dataset) -> acceptance rate at confidence thresholds 0 and 0.9, bonus counted [%].
THRESHOLD: dict[str, tuple[str, float, float]] = {
    "math": ("GSM8K", 76.9, 92.5),
    "code": ("HumanEval", 67.6, 92.0),
    "chat": ("MT-Bench", 45.7, 95.7),
}

#: Figure 6 (Alpaca): position -> ECE of the survival before and after STS. Computed here from the figure's
#: points, weighted by its histogram, which it gives for "before" only.
ECE: dict[int, tuple[float, float]] = {
    1: (0.0573, 0.0161),
    3: (0.0820, 0.0149),
    5: (0.0581, 0.0075),
    7: (0.0334, 0.0045),
}
