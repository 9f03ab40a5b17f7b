"""A recommendation in one paragraph: the setting, its evidence, its margin, what comes next."""

from __future__ import annotations

from typing import Any

from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.recommend import OFF, Answer, Choice, break_even
from dspark_sim.results.details import DETAIL
from dspark_sim.results.metrics import Point
from dspark_sim.results.stats import Interval, paired_change_pct, t_interval
from dspark_sim.results.tables import number, signed, spread

SCHEMA = "dspark-sim/recommend/1"


def paragraph(answer: Answer) -> str:
    """Return the answer for one SLA in one paragraph."""
    if not answer.ranking:
        return _nothing(answer)
    best = answer.ranking[0]
    speculates = best.setting.policy != OFF
    parts = [
        _what(answer, best),
        _doubt(answer),
        _evidence(best),
        _against_off(answer, best) if speculates else _why_not(answer),
        _next(answer),
        _limit(best),
    ]
    if best.load == answer.most_users:
        parts.append("That is the highest load tried; more users may give more.")
    return " ".join(part for part in parts if part)


def document(answer: Answer) -> dict[str, Any]:
    """Return the answer for one SLA as JSON's own values (schema ``dspark-sim/recommend/1``)."""
    rival = answer.rival
    return {
        "sla": answer.sla,
        "speculate": bool(answer.ranking) and answer.ranking[0].setting.policy != OFF,
        "ranking": [_row(choice) for choice in answer.ranking],
        "break_even_accepted_len": None if rival is None else break_even(*rival),
        "words": paragraph(answer),
    }


def _row(choice: Choice) -> dict[str, Any]:
    gpu, user = (t_interval(_column(choice, c)) for c in ("tok_per_s_per_gpu", "tok_per_s_per_user"))
    return {
        "policy": choice.setting.policy,
        "drafter": choice.setting.drafter,
        "max_users": choice.load,
        "capture_limit": choice.setting.capture_limit,
        "capture_limit_needed": needed_limit(choice),
        "tok_per_s_per_gpu": gpu.mean,
        "tok_per_s_per_gpu_ci95": gpu.bounds,
        "tok_per_s_per_user": user.mean,
        "tok_per_s_per_user_ci95": user.bounds,
        "accepted_len": choice.measured.mean(choice.load, "accepted_len"),
        "verification_budget": choice.measured.mean(choice.load, "verification_budget"),
        "step_ms": choice.measured.mean(choice.load, "step_ms"),
        "lossless": choice.points[0]["lossless"],
    }


def needed_limit(choice: Choice) -> int | None:
    """Return the smallest captured size that holds every step [tokens]; None if none does."""
    profile = choice.setting.setup.load_profile()
    most = max(p[DETAIL]["most_tokens"] for p in choice.points)
    sizes = capture_sizes(profile.capture, profile.verify.tokens)
    return next((size for size in sizes if size >= most), None)


def _column(choice: Choice, column: str) -> list[float]:
    return [p[column] for p in choice.points]


def change(choice: Choice, other: Choice) -> Interval:
    """Return the change of tok/s/GPU of one choice against another [%], paired by seed."""
    found = paired_change_pct(_by_seed(choice.points), _by_seed(other.points))
    assert found is not None, "all settings run the same seeds"
    return found


def _by_seed(points: list[Point]) -> dict[int, float]:
    return {p["seed"]: p["tok_per_s_per_gpu"] for p in points}


def _signed(interval: Interval) -> str:
    return signed(interval.mean, interval.bounds)


def _nothing(answer: Answer) -> str:
    fastest, users = answer.fastest, answer.fastest.load
    speed = t_interval(_column(fastest, "tok_per_s_per_user"))
    return (
        f"No setting serves each user at {answer.sla:g} tok/s. The fastest is {fastest.setting.policy} with "
        f"{spread(speed, 1)} tok/s/user at {users} user{'s' if users > 1 else ''}."
    )


def _what(answer: Answer, best: Choice) -> str:
    users = f"at most {best.load} user{'s' if best.load > 1 else ''} at a time"
    limit = best.setting.capture_limit
    graphs = "" if limit is None else f", capture limit {limit:,} tokens"
    anchor = f"For {answer.sla:g} tok/s/user"
    if best.setting.policy == OFF:
        return f"{anchor}: do not speculate; {users}{graphs}."
    verdict = best.points[0]["lossless"]
    close = " by a hair" if undecided(answer) else ""
    return f"{anchor}: {best.setting.policy} ({verdict}){close}, {users}{graphs}."


def undecided(answer: Answer) -> bool:
    """Return whether the replications do not tell the best setting from the next best or from ``off``."""
    best, *others = answer.ranking
    rivals = [*others[:1], *(choice for choice in others if choice.setting.policy == OFF)]
    margins = [change(best, rival) for rival in rivals]
    return any(margin.bounds is not None and margin.low <= 0 for margin in margins)


def _doubt(answer: Answer) -> str:
    """Return how far the answer is to be trusted, where its intervals are wide or missing."""
    seeds = len(answer.ranking[0].points)
    if seeds == 1:
        return "One replication: no intervals, so take small margins for ties."
    if not undecided(answer):
        return ""
    return (
        f"{seeds} replications do not settle it: some interval below contains zero. "
        "More --seeds or --output-tokens narrow them."
    )


def _evidence(best: Choice) -> str:
    gpu, user = (t_interval(_column(best, c)) for c in ("tok_per_s_per_gpu", "tok_per_s_per_user"))
    mean = best.measured.mean
    words = f"It gives {spread(gpu)} tok/s/GPU and {spread(user, 1)} tok/s to each user"
    step = f"a step takes {mean(best.load, 'step_ms'):.2f} ms"
    if best.setting.policy == OFF:
        return f"{words}; {step}."
    return (
        f"{words}: a round verifies {mean(best.load, 'verification_budget'):.2f} tokens and commits "
        f"{mean(best.load, 'accepted_len'):.2f}, {step}."
    )


def _against_off(answer: Answer, best: Choice) -> str:
    off = next((choice for choice in answer.ranking if choice.setting.policy == OFF), None)
    if off is None:
        return f"Without speculation {answer.sla:g} tok/s/user is not met.{_even(answer)}"
    without, gain = f"{number(off.gpu)} tok/s/GPU at {off.load} users", change(best, off)
    return f"Against no speculation ({without}): {_signed(gain)}{_tie(gain)}.{_even(answer)}"


def _even(answer: Answer) -> str:
    if answer.rival is None:
        return ""
    rival, off = answer.rival
    length, needed = rival.measured.mean(rival.load, "accepted_len"), break_even(rival, off)
    return (
        f" Break-even: at {rival.load} users a step of {rival.setting.policy} takes {needed:.2f} times one "
        f"without, so a round must commit more than {needed:.2f} tokens; it commits {length:.2f}."
    )


def _why_not(answer: Answer) -> str:
    missed = all(choice.setting.policy == OFF for choice in answer.ranking)
    words = "No speculative setting meets the SLA." if missed else ""
    return f"{words}{_even(answer)}".strip()


def _next(answer: Answer) -> str:
    if len(answer.ranking) < 2:
        return "Nothing else meets the SLA."
    best, second = answer.ranking[:2]
    margin = change(best, second)
    limit = second.setting.capture_limit
    where = f", capture limit {limit:,}" if limit != best.setting.capture_limit and limit is not None else ""
    words = (
        f"Next best: {second.setting.policy} at {second.load} users{where}, {number(second.gpu)} tok/s/GPU"
    )
    return f"{words}; the margin is {_signed(margin)}{_tie(margin)}."


def _tie(margin: Interval) -> str:
    return "" if margin.bounds is None or margin.low > 0 else ", a tie as far as these replications can tell"


def _limit(best: Choice) -> str:
    limit, needed = best.setting.capture_limit, needed_limit(best)
    if limit is None:
        return ""
    most = max(p[DETAIL]["most_tokens"] for p in best.points)
    if needed is None:
        eager = 100 * sum(p[DETAIL]["eager"] for p in best.points) / len(best.points)
        return f"Steps reach {most:,} tokens; {eager:.1f} % of them are past the capture limit."
    return f"Steps reach {most:,} tokens, so a capture limit of {needed:,} is enough."
