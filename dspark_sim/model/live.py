"""Live speculative decoding of R requests in lockstep steps, verification lengths chosen by a policy.

The same loop as the simulator's, with a real pair in it: every step drafts a block for each running
request, shows the policy what the simulator would show it, verifies, commits, and replaces finished
requests. Time is not simulated; the policy plans with the cost of a profile.
Shape suffixes: R running requests, G gamma, T verified positions (1 + the largest verify_len),
V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafting import BlockStep, DraftBlock, cached, draft_freely
from dspark_sim.model.planning import Planner
from dspark_sim.model.prompts import TokenPrompt
from dspark_sim.model.sampling import draw, probabilities
from dspark_sim.model.target import Target
from dspark_sim.model.verify import Verified, verify
from dspark_sim.policies.base import Policy
from dspark_sim.rng import stream
from dspark_sim.schema import DraftKind, FloatArray, IntArray
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.rounds import Rounds


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What a live run is.

    Attributes:
        policy: verification policy.
        profile: what the policy believes a step costs.
        calibration: of the drafter's confidences; None leaves them raw.
        concurrency: requests in a step.
        temperature, top_p: of target and drafter alike.
        max_new_tokens: cuts a text that does not end by itself [tokens].
        seed: every request has a random stream of its own.
    """

    policy: Policy
    profile: HardwareProfile
    concurrency: int
    calibration: Calibration | None = None
    temperature: float = 0.7
    top_p: float = 1.0
    max_new_tokens: int = 192
    seed: int = 0


@dataclass(slots=True)
class _Running:
    """One request; ``output`` ends with the anchor, ``lagged`` holds the survivals of its last blocks."""

    slot: int
    prompt: TokenPrompt
    sample: int
    uniforms: np.random.Generator
    lagged: deque[FloatArray]
    output: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.prompt.prompt_id}#{self.sample}"

    @property
    def position(self) -> int:
        """Absolute position of the anchor."""
        return len(self.prompt.ids) + len(self.output) - 1


@dataclass(frozen=True, slots=True)
class _Step:
    """What every part of a step reads; ``uniform_RU`` [R, 2G + 1]: verification, then drafting."""

    anchor_R: Tensor
    position_R: Tensor
    row_R: Tensor
    uniform_RU: Tensor


@dataclass(frozen=True, slots=True)
class LiveRound:
    """One round of one request, as it is logged (see ``Rounds``)."""

    request_id: str
    anchor: int
    verify_len: int
    accepted: int
    confidence_logit_G: np.ndarray


class LiveDecoder:
    """Decodes requests with one pair; ``texts`` holds the output tokens of finished requests."""

    def __init__(
        self, target: Target, drafter: Drafter, settings: LiveSettings, max_prompt_tokens: int
    ) -> None:
        """Prepare caches for ``settings.concurrency`` requests with prompts of ``max_prompt_tokens``.

        Raises:
            InputError: the drafter has no confidence head and the policy needs one, or a setting is
                out of range.
        """
        if settings.concurrency < 1 or settings.max_new_tokens < 1 or settings.temperature < 0:
            raise InputError("live: concurrency and max_new_tokens must be at least 1, temperature 0 or more")
        if drafter.confidence is None and settings.policy.info.needs_confidence:
            label = settings.policy.label
            raise InputError(f"policy {label} needs confidences, and the drafter has no such head")
        self.target = target
        self.drafter = drafter
        self.settings = settings
        self.gamma = drafter.config.gamma
        self.texts: dict[str, list[int]] = {}
        self.taps = list(drafter.config.target_layer_ids)
        rows, capacity = settings.concurrency, max_prompt_tokens + settings.max_new_tokens + self.gamma + 1
        self._cache = target.new_cache(rows, capacity)
        self._context = drafter.new_cache(rows, capacity)
        self._cost = StepCost(settings.profile, rows, rows * (1 + self.gamma))
        self._planner = self._new_planner()
        self._calibration = settings.calibration or Calibration.identity(self.gamma)
        self._running: list[_Running] = []

    @torch.inference_mode()
    def run(self, requests: Iterable[tuple[TokenPrompt, int]]) -> Iterator[list[LiveRound]]:
        """Decode ``requests`` (prompt, sample number) in order; yield the rounds of each step."""
        waiting = iter(requests)
        while self._admit(waiting):
            yield self._step()

    def _new_planner(self) -> Planner:
        kind = cast(DraftKind, self.drafter.config.kind)
        return Planner(self.settings.policy, self._cost, kind, self.gamma)

    def _admit(self, waiting: Iterator[tuple[TokenPrompt, int]]) -> bool:
        """Fill free slots, again where a text ended with its first token; return whether any runs."""
        while free := sorted(set(range(self.settings.concurrency)) - {r.slot for r in self._running}):
            new = [self._start(slot, *request) for slot, request in zip(free, waiting, strict=False)]
            if not new:
                break
            self._prefill(new)
            self._running += [r for r in new if not self._finish(r)]
        self._running.sort(key=lambda r: r.slot)
        return bool(self._running)

    def _start(self, slot: int, prompt: TokenPrompt, sample: int) -> _Running:
        generator = stream(self.settings.seed, "live", prompt.prompt_id, sample)
        return _Running(slot, prompt, sample, generator, deque(maxlen=self.settings.policy.lag or 1))

    def _prefill(self, new: list[_Running]) -> None:
        """Run the prompts in one ragged pass, and draw each first output token."""
        length_R, row_R = torch.tensor([len(r.prompt.ids) for r in new]), torch.tensor([r.slot for r in new])
        ids_RT = torch.zeros(len(new), int(length_R.max()), dtype=torch.long)
        for n, r in enumerate(new):
            ids_RT[n, : len(r.prompt.ids)] = torch.tensor(r.prompt.ids)
        positions_RT = torch.arange(ids_RT.shape[1]).expand_as(ids_RT)
        valid_RT = positions_RT < length_R[:, None]
        out = self.target(ids_RT, positions_RT, self._cache, row_R, self.taps, valid_RT)
        assert out.taps_RTmd is not None
        self.drafter.extend_context(out.taps_RTmd, positions_RT, self._context, row_R, valid_RT)
        p_RV = self._probabilities(out.hidden_RTd[torch.arange(len(new)), length_R - 1])
        uniform_R = torch.tensor([r.uniforms.random() for r in new])
        for r, token in zip(new, draw(p_RV, uniform_R).tolist(), strict=True):
            r.output.append(token)

    def _step(self) -> list[LiveRound]:
        size = 2 * self.gamma + 1
        step = _Step(
            torch.tensor([r.output[-1] for r in self._running]),
            torch.tensor([r.position for r in self._running]),
            torch.tensor([r.slot for r in self._running]),
            torch.from_numpy(np.stack([r.uniforms.random(size, np.float32) for r in self._running])),
        )
        backbone = cached(self.drafter, step.anchor_R, step.position_R, self._context, step.row_R)
        drafting = BlockStep(self.drafter, backbone, self.settings.temperature, self.settings.top_p)
        block = draft_freely(drafting, step.anchor_R, step.uniform_RU[:, self.gamma + 1 :])
        logit_RG = self._logits(block)
        length_R = self._decide(logit_RG)
        done = self._verify(step, block, torch.from_numpy(length_R))
        return self._commit(block, done, length_R, logit_RG)

    def _logits(self, block: DraftBlock) -> np.ndarray:
        """Confidence logits as a trace stores them; NaN without a head."""
        if block.confidence_logit_RG is None:
            return np.full((len(self._running), self.gamma), np.nan, dtype=np.float16)
        return block.confidence_logit_RG.half().cpu().numpy()

    def _decide(self, logit_RG: np.ndarray) -> IntArray:
        """Verify lengths [R] from what the simulator would show the policy."""
        return self._planner.decide(self._running, self._calibration.apply(logit_RG))

    def _learn(self, accepted_R: IntArray) -> None:
        """Tell the policy's memory what was accepted."""
        self._planner.learn(accepted_R)

    def _verify(self, step: _Step, block: DraftBlock, verify_len_R: Tensor) -> Verified:
        """One target pass over anchors and verified drafts; keeps what was accepted in the caches."""
        width = torch.arange(int(verify_len_R.max()) + 1)
        drafted = self.drafter.to_full(block.index_RG[:, : len(width) - 1])
        ids_RT, valid_RT = torch.cat([step.anchor_R[:, None], drafted], 1), width <= verify_len_R[:, None]
        positions_RT = step.position_R[:, None] + width
        out = self.target(ids_RT, positions_RT, self._cache, step.row_R, self.taps, valid_RT)
        p_RTV = torch.zeros(*valid_RT.shape, self.target.config.vocab_size)
        p_RTV[valid_RT] = self._probabilities(out.hidden_RTd[valid_RT])
        done = verify(
            p_RTV, block.q_RGW, block.index_RG, verify_len_R,
            draft_ids_W=self.drafter.draft_ids, uniform_RU=step.uniform_RU[:, : len(width)],
        )  # fmt: skip
        assert out.taps_RTmd is not None
        kept_RT = width <= done.accepted_R[:, None]
        self.drafter.extend_context(out.taps_RTmd, positions_RT, self._context, step.row_R, kept_RT)
        return done

    def _commit(
        self, block: DraftBlock, done: Verified, length_R: IntArray, logit_RG: np.ndarray
    ) -> list[LiveRound]:
        self._learn(done.accepted_R.numpy())
        drafted = self.drafter.to_full(block.index_RG).tolist()
        rounds = []
        for n, r in enumerate(self._running):
            accepted, anchor = int(done.accepted_R[n]), len(r.output) - 1
            r.output += [*drafted[n][:accepted], int(done.next_R[n])]
            del r.output[self._end(r, anchor) :]
            accepted = min(accepted, len(r.output) - 1 - anchor)
            rounds.append(LiveRound(r.name, anchor, int(length_R[n]), accepted, logit_RG[n]))
        self._running = [r for r in self._running if not self._finish(r)]
        return rounds

    def _end(self, r: _Running, anchor: int) -> int:
        """Tokens that ``r.output`` keeps: up to the first end token after ``anchor``, and the cap."""
        stops = self.target.config.eos_token_ids
        ends = [i + 1 for i in range(anchor + 1, len(r.output)) if r.output[i] in stops]
        return min([*ends[:1], self.settings.max_new_tokens])

    def _finish(self, r: _Running) -> bool:
        """Keep the text of a request that has ended; return whether it has."""
        ended = r.output[-1] in self.target.config.eos_token_ids
        if ended or len(r.output) >= self.settings.max_new_tokens:
            self.texts[r.name] = r.output
            return True
        return False

    def _probabilities(self, hidden: Tensor) -> Tensor:
        return probabilities(self.target.logits(hidden), self.settings.temperature, self.settings.top_p)


def decode_live(
    decoder: LiveDecoder,
    requests: Iterable[tuple[TokenPrompt, int]],
    meta: dict[str, Any],
    on_progress: Callable[[int], None] | None = None,
) -> Rounds:
    """Decode ``requests`` and return the log; ``on_progress`` is told the rounds of every step."""
    rounds: list[LiveRound] = []
    for step in decoder.run(requests):
        rounds += step
        if on_progress is not None:
            on_progress(len(step))
    return Rounds(
        meta=meta,
        request_id=[r.request_id for r in rounds],
        anchor_M=np.array([r.anchor for r in rounds], dtype=np.int64),
        verify_len_M=np.array([r.verify_len for r in rounds], dtype=np.int64),
        accepted_M=np.array([r.accepted for r in rounds], dtype=np.int64),
        confidence_logit_MG=np.array([r.confidence_logit_G for r in rounds]).reshape(-1, decoder.gamma),
    )
