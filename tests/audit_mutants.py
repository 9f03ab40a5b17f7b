"""Rules that look at what they do not verify, each in its own way."""

from __future__ import annotations

import numpy as np

from dspark_sim.policies.base import Decision, Policy, PolicyInfo
from dspark_sim.policies.selection import best_budget, expected_tokens_M, top_k
from dspark_sim.schema import Verdict


def policy_of(rule, *, reads="current", lag=0, verdict: Verdict = "lossless", stateful=False) -> Policy:
    """Bind a bare function as a policy, unregistered."""
    info = PolicyInfo(
        rule.__name__, rule, "a test", reads, None, True, lag, lambda _: verdict, {}, "", stateful=stateful
    )
    return Policy(info, rule.__name__, {}, lag)


def prefix(mask_RG):
    return np.logical_and.accumulate(mask_RG, axis=1).sum(axis=1)


def last_above(mask_RG):
    return np.where(mask_RG.any(axis=1), mask_RG.shape[1] - mask_RG[:, ::-1].argmax(axis=1), 0)


def whole_or_nothing(view, chosen_R):
    return np.where(chosen_R, view.gamma, 0)


def next_of(view, lengths):
    """c_{l+2} of each request, 0 where there is none."""
    rows, place = np.arange(view.num_running), np.minimum(lengths + 1, view.gamma - 1)
    return np.where(lengths + 1 < view.gamma, view.confidence_RG[rows, place], 0.0)


def without_break(view):
    return top_k(view.survival_RG, best_budget(view.survival_RG, view.step_s_M))


def break_one_late(view):
    theta = expected_tokens_M(view.survival_RG) / view.step_s_M
    worse = theta[1:] <= theta[:-1]
    stop = int(worse.argmax()) if worse.any() else len(worse)
    if stop + 2 < len(theta) and theta[stop + 2] > theta[stop]:
        stop += 2
    return top_k(view.survival_RG, stop)


def last_confidence_above(view):
    return last_above(view.confidence_RG >= 0.4)


def mean_threshold(view):
    return prefix(view.confidence_RG >= view.confidence_RG.mean())


def median_threshold(view):
    return prefix(view.confidence_RG >= np.median(view.confidence_RG))


def own_peak_threshold(view):
    return prefix(view.confidence_RG >= 0.8 * view.confidence_RG.max(axis=1, keepdims=True))


def expected_number(view):
    return top_k(view.survival_RG, round(float(view.survival_RG.sum())))


def counted_budget(view):
    return top_k(view.survival_RG, int(np.count_nonzero(view.survival_RG >= 0.3)) // 2)


def other_drew_a(view):
    """Each verifies iff the other's second confidence, which reads its first token, is high."""
    return np.where(np.roll(view.confidence_RG[:, min(1, view.gamma - 1)], 1) >= 0.5, 1, 0)


def last_decides(view):
    return whole_or_nothing(view, view.confidence_RG[:, -1] > 0.5)


def weakest_left_out(view):
    total = view.survival_RG.sum(axis=1)
    return whole_or_nothing(view, np.arange(view.num_running) != total.argmin())


def better_half(view):
    last = view.survival_RG[:, -1]
    return whole_or_nothing(view, last >= np.median(last))


def one_more_if_likely(view):
    lengths = prefix(view.survival_RG >= 0.5)
    return np.minimum(lengths + (next_of(view, lengths) > 0.9), view.gamma)


def one_less_if_unlikely(view):
    lengths = np.full(view.num_running, min(2, view.gamma))
    deep = next_of(view, lengths - 1) < 0.1
    return np.where(deep, lengths - 1, lengths)


def batch_peak(view):
    return np.full(view.num_running, view.gamma if view.confidence_RG[:, -1].max() > 0.9 else 1)


def ranked_lengths(view):
    order = np.argsort(-view.survival_RG.sum(axis=1), kind="stable")
    lengths = np.empty(view.num_running, dtype=np.int64)
    lengths[order] = np.linspace(view.gamma, 0, view.num_running).round().astype(int)
    return lengths


def if_dead_then_none(view):
    dead = (view.confidence_RG == 0.0).any(axis=1)
    return np.where(dead, 0, min(2, view.gamma))


def mean_with_the_next(view):
    ahead = np.concatenate([view.confidence_RG[:, 1:], view.confidence_RG[:, -1:]], axis=1)
    return prefix((view.confidence_RG + ahead) / 2 >= 0.6)


def smoothed_both_ways(view):
    padded = np.pad(view.survival_RG, ((0, 0), (1, 1)), mode="edge")
    return prefix((padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3 >= 0.5)


def ties_by_the_next(view):
    ahead = np.concatenate([view.survival_RG[:, 1:], np.zeros((view.num_running, 1))], axis=1)
    order = np.argsort(-(view.survival_RG[:, 0] + 1e-3 * ahead[:, 0]), kind="stable")
    lengths = np.zeros(view.num_running, dtype=np.int64)
    lengths[order[: (view.num_running + 1) // 2]] = 1
    return lengths


def normalised(view):
    share = view.survival_RG / np.maximum(view.survival_RG.sum(axis=1, keepdims=True), 1e-9)
    return prefix(share >= 0.2)


def alive_count(view):
    alive = int(np.count_nonzero(view.survival_RG >= 1e-6))
    return top_k(view.survival_RG, alive // 2)


def tier_of_the_best(view):
    running = view.num_running
    theta = expected_tokens_M(view.survival_RG)[::running] / view.step_s_M[::running]
    return top_k(view.survival_RG, int(theta.argmax()) * running)


def from_behind(view):
    return view.gamma - prefix(view.confidence_RG[:, ::-1] < 0.5)


def product_of_all(view):
    likely = view.survival_RG[:, -1].prod() ** (1 / view.num_running) > 0.2
    return np.full(view.num_running, view.gamma if likely else 0)


def remembered(view, state):
    """A moving average that takes this step's whole block in before it decides."""
    level = 0.5 * (0.5 if state is None else state) + 0.5 * float(view.survival_RG.mean())
    return Decision(prefix(view.survival_RG >= level), level)


def drafts_after_a_look(view):
    lengths = prefix(view.survival_RG >= 0.4)
    return Decision(lengths, draft_R=np.where(lengths > 0, view.gamma, 0))


STATELESS = [
    without_break, break_one_late, last_confidence_above, mean_threshold,
    median_threshold, own_peak_threshold, expected_number, counted_budget, other_drew_a, last_decides,
    weakest_left_out, better_half, one_more_if_likely, one_less_if_unlikely, batch_peak, ranked_lengths,
    if_dead_then_none, mean_with_the_next, smoothed_both_ways, ties_by_the_next, normalised, alive_count,
    tier_of_the_best, from_behind, product_of_all, drafts_after_a_look,
]  # fmt: skip
MUTANTS = [policy_of(rule) for rule in STATELESS] + [policy_of(remembered, stateful=True)]
