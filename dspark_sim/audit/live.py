"""A small live pair, driven by the rule: are its texts the target's, one by one and two by two?

Requests run in pairs; the rule decides on the two requests of a pair together, as on a batch of two,
while the pair model carries many pairs through one pass. Chi-square compares the first tokens of each
request, and of both requests of a pair jointly, with the target's law, which is written out cell by
cell. Needs torch.
Shape suffixes: L tokens of a text, N texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import FORMAT, HardwareProfile
from dspark_sim.hardware.reading import parse_profile
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.live import LiveDecoder, LiveSettings
from dspark_sim.model.planning import Planner
from dspark_sim.model.prompts import TokenPrompt
from dspark_sim.model.sampling import probabilities
from dspark_sim.model.target import Target
from dspark_sim.model.tiny import tiny_pair
from dspark_sim.policies.base import Policy
from dspark_sim.schema import FloatArray, IntArray

VOCAB, GAMMA, LENGTH = 3, 3, 3
#: A true law is refused once in this many audits.
ALPHA = 1e-6
_MIN_EXPECTED = 5.0
_PAIRS_AT_ONCE = 250
_PROMPT = TokenPrompt("audit", "toy", (0, 2, 1))


@dataclass(frozen=True, slots=True)
class Fit:
    """A chi-square test: p-value, z = (chi2 - dof) / sqrt(2 dof), degrees of freedom."""

    p_value: float
    z: float
    dof: int


@dataclass(frozen=True, slots=True)
class LiveAudit:
    """Fits of the texts of each request of a pair, and of both jointly.

    Attributes:
        pairs: pairs of texts.
        single: one fit a request.
        joint: both texts of a pair, against the product of the target's laws.
        lengths: verify lengths that occurred.
    """

    pairs: int
    single: tuple[Fit, Fit]
    joint: Fit
    lengths: list[int]

    @property
    def agrees(self) -> bool:
        """Whether neither the texts nor the pairs of texts are refused."""
        return min(fit.p_value for fit in (*self.single, self.joint)) > ALPHA


class _PairDecoder(LiveDecoder):
    """Decodes pairs of requests, each with a planner of its own; samples 2n and 2n + 1 are a pair."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._planners: dict[int, Planner] = {}
        self._rows: dict[int, list[int]] = {}

    def _decide(self, logit_RG: np.ndarray) -> IntArray:
        confidence_RG = self._calibration.apply(logit_RG)
        self._rows = {}
        for n, request in enumerate(self._running):
            self._rows.setdefault(request.sample // 2, []).append(n)
        lengths = np.zeros(len(self._running), dtype=np.int64)
        for pair, rows in self._rows.items():
            if pair not in self._planners:
                self._planners[pair] = self._new_planner()
            planner = self._planners[pair]
            lengths[rows] = planner.decide([self._running[n] for n in rows], confidence_RG[rows])
        return lengths

    def _learn(self, accepted_R: IntArray) -> None:
        for pair, rows in self._rows.items():
            self._planners[pair].learn(accepted_R[rows])


def live_audit(policy: Policy, *, pairs: int = 6000, temperature: float = 1.0, seed: int = 0) -> LiveAudit:
    """Decode ``pairs`` pairs of texts live, and compare them with the target's law.

    Raises:
        InputError: the rule verifies more tokens than the pair drafts.
    """
    if int(policy.options.get("k", 0)) > GAMMA:
        raise InputError(f"policy {policy.label}: the live pair drafts blocks of {GAMMA} tokens")
    target, drafter = _pair()
    settings = LiveSettings(
        policy, _profile(), 2 * _PAIRS_AT_ONCE, temperature=temperature, max_new_tokens=LENGTH + 1, seed=seed
    )
    parts: list[IntArray] = []
    lengths: set[int] = set()
    for first in range(0, pairs, _PAIRS_AT_ONCE):
        decoder = _PairDecoder(target, drafter, settings, max_prompt_tokens=len(_PROMPT.ids))
        samples = range(2 * first, 2 * min(first + _PAIRS_AT_ONCE, pairs))
        for step in decoder.run([(_PROMPT, sample) for sample in samples]):
            lengths |= {live.verify_len for live in step}
        parts.append(_cells(decoder, samples))
    cells_N2 = np.concatenate(parts)
    law = text_law(target, _PROMPT, LENGTH, temperature)
    return LiveAudit(
        pairs=pairs,
        single=(_fit(cells_N2[:, 0], law), _fit(cells_N2[:, 1], law)),
        joint=_fit(cells_N2[:, 0] * len(law) + cells_N2[:, 1], np.outer(law, law).ravel()),
        lengths=sorted(lengths),
    )


def _cells(decoder: LiveDecoder, samples: range) -> IntArray:
    """Return the first tokens of each text as one number, a row a pair [len(samples) / 2, 2]."""
    texts_NL = np.array([decoder.texts[f"{_PROMPT.prompt_id}#{n}"][:LENGTH] for n in samples])
    return (texts_NL @ VOCAB ** np.arange(LENGTH)[::-1]).reshape(-1, 2)


def text_law(target: Target, prompt: TokenPrompt, length: int, temperature: float) -> FloatArray:
    """Return the probability of each text of ``length`` tokens after ``prompt``, in lexicographic order."""
    texts_NL = torch.tensor(list(product(range(target.config.vocab_size), repeat=length)))
    ids = torch.cat([torch.tensor(prompt.ids).expand(len(texts_NL), -1), texts_NL], 1)
    cache = target.new_cache(len(ids), ids.shape[1])
    with torch.inference_mode():
        out = target(ids, torch.arange(ids.shape[1]).expand_as(ids), cache, torch.arange(len(ids)))
        logits = target.logits(out.hidden_RTd[:, len(prompt.ids) - 1 : -1])
        p = probabilities(logits, temperature, 1.0).double()
    law: FloatArray = p.gather(-1, texts_NL[..., None])[..., 0].prod(1).numpy()
    return law


def _fit(cell_N: IntArray, law: FloatArray) -> Fit:
    """Test draws against ``law``; cells of fewer than five expected draws are one."""
    from scipy.stats import chi2

    count = np.bincount(cell_N, minlength=len(law)).astype(np.float64)
    if count[law == 0].any():
        return Fit(0.0, float("inf"), 0)
    expected = law / law.sum() * len(cell_N)
    rare = expected < _MIN_EXPECTED
    seen, want = (np.append(x[~rare], x[rare].sum()) for x in (count, expected))
    kept = want > 0
    statistic, dof = float(((seen - want)[kept] ** 2 / want[kept]).sum()), max(int(kept.sum()) - 1, 1)
    return Fit(float(chi2.sf(statistic, dof)), (statistic - dof) / (2 * dof) ** 0.5, dof)


def _pair() -> tuple[Target, Drafter]:
    """Return a pair whose confidences say much, so that a rule that looks ahead has something to see."""
    target, drafter = tiny_pair(5, vocab=VOCAB, gamma=GAMMA, head="vanilla", sharpness=2.5)
    assert drafter.confidence is not None, "a head is there"
    with torch.no_grad():
        drafter.confidence.proj.weight.mul_(3.0)
    return target, drafter


def _profile() -> HardwareProfile:
    """Return costs on which budgets vary at two requests: stairs, so that looking past them tempts."""
    sections = ("verify", "host.constant_ms", "host.bubble_ms", "draft.dspark", "draft.mtp")
    source = {"how": "assumed", "source": "made up so that lengths vary"}
    draft = {"lookup": "linear", "requests": [1, 2], "pass_ms": [0.1, 0.1], "beyond": "last_two"}
    return parse_profile(
        {
            "format": FORMAT,
            "name": "audit",
            "description": "stairs for two requests",
            "device": "none",
            "model": "tiny",
            "num_gpus": 1,
            "sources": dict.fromkeys(sections, source),
            "verify": {
                "lookup": "linear",
                "tokens": list(range(1, 2 * (1 + GAMMA) + 1)),
                "ms": [1.0, 1.0, 1.35, 1.4, 2.0, 2.05, 2.1, 2.15],
                "beyond": "last_two",
                "context_tokens": 1,
            },
            "host": {"constant_ms": 0.1, "bubble_ms": 0.0},
            "draft": {"dspark": {"gamma": GAMMA, **draft}, "mtp": draft},
        },
        "audit",
    )
