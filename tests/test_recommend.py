"""Recommendations: the same answer as trying everything, on worlds with jagged costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from results_cases import make_point
from worlds import make_profile, random_trace, table

from dspark_sim.engine.simulator import simulate
from dspark_sim.policies.registry import parse_policy
from dspark_sim.recommend import Answer, Search, Setting, break_even
from dspark_sim.recommend_words import document, paragraph
from dspark_sim.results.details import DETAIL, detail
from dspark_sim.results.metrics import point
from dspark_sim.sweeps.running import Setup, Task

MOST = 12
SEEDS = (0, 1)
POLICIES = ("off", "static:k=1", "static:k=3", "full", "dspark-async")


@dataclass(frozen=True)
class World(Setup):
    """A set-up that is drawn, not read."""

    number: int = 0

    def load_trace(self) -> Any:
        return drawn_trace(self.number)

    def load_profile(self) -> Any:
        return drawn_profile(self.number, int(self.overrides[0][1]))


@cache
def drawn_trace(number: int) -> Any:
    return random_trace(number, num_requests=8, longest=40, gamma=4)


@cache
def drawn_profile(number: int, limit: int) -> Any:
    """Costs that rise and fall, and a capture limit."""
    rng = np.random.default_rng(number)
    sizes = [1, 4, 8, 16, 24, 32, 48, 64, 96, 128]
    ms = np.cumsum(rng.uniform(0.1, 1.5, len(sizes))) + 5 + rng.uniform(-0.6, 0.6, len(sizes))
    return make_profile(
        verify=table(sizes, ms.tolist(), key="tokens", value="ms"),
        capture={"limit": limit, "sizes": [size for size in sizes if size <= limit]},
        host={"constant_ms": float(rng.uniform(0.2, 2)), "bubble_ms": float(rng.uniform(0, 1.5))},
    )


def settings(number: int, policies=POLICIES, limits=(32, 96)) -> list[Setting]:
    worlds = [World("t", "h", (("capture.limit", str(limit)),), number=number) for limit in limits]
    return [Setting(world, "dspark", policy) for world in worlds for policy in policies]


def simulated(task) -> dict:
    """Simulate one point, shortly: what is tested is the search."""
    profile = task.setup.load_profile()
    run = simulate(
        task.setup.load_trace(), profile, parse_policy(task.policy),
        concurrency=task.concurrency, output_tokens=120, seed=task.seed,
    )  # fmt: skip
    return point(run) | {DETAIL: detail(run, profile)}


def exhaustive(number: int, sla: float, points: dict) -> tuple[float, str | None]:
    """Return the highest tok/s/GPU of every setting at every load, and whose it is."""
    best: tuple[float, str | None] = (0.0, None)
    for (limit, policy, _), group in sorted(points.items(), key=lambda item: item[0][2]):
        if np.mean([p["tok_per_s_per_user"] for p in group]) >= sla:
            best = max(best, (float(np.mean([p["tok_per_s_per_gpu"] for p in group])), f"{policy} {limit}"))
    return best


@pytest.mark.parametrize("number", range(20))
def test_the_search_finds_what_trying_everything_finds(number):
    known: dict = {}

    def remembered(tasks):
        found = []
        for task in tasks:
            key = (task.setup.overrides[0][1], task.policy, task.concurrency, task.seed)
            if key not in known:
                known[key] = simulated(task)
            found.append(known[key])
        return found

    chosen = settings(number)
    search = Search(chosen, [1, 2, 4, 8, MOST], SEEDS, remembered)
    speeds = [p["tok_per_s_per_user"] for p in known.values()]
    sla = float(np.quantile(speeds, np.random.default_rng(number).uniform(0.1, 0.8)))
    answer = search.answer(sla)
    asked = len(known)
    every = {
        (s.setup.overrides[0][1], s.policy, load): remembered(
            [Task(s.setup, s.drafter, s.policy, load, seed) for seed in SEEDS]
        )
        for s in chosen
        for load in range(1, MOST + 1)
    }
    most, whose = exhaustive(number, sla, every)
    best = answer.ranking[0]
    assert np.mean([p["tok_per_s_per_user"] for p in best.points]) >= sla
    assert best.gpu == pytest.approx(most), (
        whose,
        best.setting.policy,
        best.setting.capture_limit,
        best.load,
    )
    assert asked < len(known)


def made(curves: dict[str, Any], seeds=SEEDS):
    """A measure that reads curves: policy -> (tok/s/user, accepted length, step_ms) at a load."""

    def measure(tasks):
        found = []
        for task in tasks:
            user, tau, step = curves[task.policy](task.concurrency)
            more = {"accepted_len": tau, "step_ms": step, "verification_budget": tau + 1}
            case = make_point(task.policy, task.concurrency, user, user * task.concurrency, task.seed, **more)
            case[DETAIL] = {"most_tokens": task.concurrency, "eager": 0.0}
            found.append(case)
        return found

    return measure


def falling(top: float, tau: float, steepness: float, cost: float):
    return lambda load: (top / (1 + load / steepness), tau, cost * (1 + load / steepness))


def ask(curves, sla, policies=None) -> Answer:
    return Search(settings(0, policies or list(curves), (96,)), [1, 8, 64], SEEDS, made(curves)).answer(sla)


def test_the_cap_is_found_to_the_user():
    answer = ask({"off": falling(100, 1.0, 50, 10), "full": falling(200, 3.0, 30, 15)}, 80.0)
    # 200 / (1 + r / 30) >= 80 holds up to r = 45
    assert (answer.ranking[0].setting.policy, answer.ranking[0].load) == ("full", 45)
    assert (answer.ranking[1].setting.policy, answer.ranking[1].load) == ("off", 12)
    words = paragraph(answer)
    assert words.startswith("For 80 tok/s/user: full (lossless), at most 45 users at a time")
    assert "Against no speculation (968 tok/s/GPU at 12 users): +272% ±0" in words
    assert "Next best: off at 12 users" in words


def test_the_break_even_is_printed_where_only_speculation_meets_the_sla_too():
    answer = ask({"off": falling(100, 1.0, 50, 10), "full": falling(200, 3.0, 30, 15)}, 150.0)
    assert [choice.setting.policy for choice in answer.ranking] == ["full"]
    words = paragraph(answer)
    assert "Without speculation 150 tok/s/user is not met. Break-even: at 10 users" in words
    assert document(answer)["break_even_accepted_len"] == pytest.approx(1.5 * (1 + 10 / 30) / (1 + 10 / 50))


def test_it_says_do_not_speculate_and_what_would_have_to_be_committed():
    answer = ask({"off": falling(100, 1.0, 50, 10), "static:k=1": falling(80, 1.2, 50, 15)}, 50.0)
    words = paragraph(answer)
    assert "For 50 tok/s/user: do not speculate; at most 50 users at a time" in words
    assert "a step of static:k=1 takes" in words
    assert "it commits 1.20" in words
    rival, off = answer.rival
    assert rival.load == off.load
    assert break_even(rival, off) == pytest.approx(1.5)
    assert document(answer)["speculate"] is False
    assert document(answer)["break_even_accepted_len"] == pytest.approx(1.5)


def test_the_break_even_is_printed_where_no_speculation_meets_the_sla():
    curves = {"off": falling(100, 1.0, 50, 10), "full": falling(40, 1.2, 30, 30)}
    curves["static:k=1"] = falling(45, 1.1, 30, 20)
    answer = ask(curves, 80.0)
    assert [choice.setting.policy for choice in answer.ranking] == ["off"]
    words = paragraph(answer)
    assert "do not speculate" in words
    assert "No speculative setting meets the SLA. Break-even: at 12 users a step of static:k=1 takes" in words
    assert "it commits 1.10" in words
    assert document(answer)["break_even_accepted_len"] == pytest.approx(2 * (1 + 12 / 30) / (1 + 12 / 50))


def test_an_sla_that_nothing_meets_names_the_fastest():
    answer = ask({"off": falling(100, 1.0, 50, 10), "full": falling(200, 3.0, 30, 15)}, 500.0)
    assert answer.ranking == []
    assert paragraph(answer).startswith("No setting serves each user at 500 tok/s. The fastest is full")
    assert document(answer)["ranking"] == []


def test_a_rule_that_is_not_lossless_is_never_recommended():
    def lossy(tasks):
        points = made({"off": falling(100, 1.0, 50, 10), "full": falling(200, 3.0, 30, 15)})(tasks)
        return [p | {"lossless": "not-lossless" if p["policy"] == "full" else "lossless"} for p in points]

    answer = Search(settings(0, ["off", "full"], (96,)), [1, 8, 64], SEEDS, lossy).answer(80.0)
    assert [choice.setting.policy for choice in answer.ranking] == ["off"]
    assert "Nothing else meets the SLA." in paragraph(answer)


def noisy(curves: dict[str, Any], by_seed: dict[str, tuple[float, float]]):
    """A measure whose replications differ by a factor a policy."""

    def measure(tasks):
        points = made(curves)(tasks)
        for p in points:
            p["tok_per_s_per_gpu"] *= by_seed[p["policy"]][p["seed"]]
        return points

    return measure


def test_what_replications_do_not_tell_apart_is_called_a_tie():
    curves = {"off": falling(100, 1.0, 50, 10), "full": falling(200, 3.0, 30, 15)}
    wide = noisy(curves, {"off": (1.0, 1.0), "full": (0.3, 1.5)})
    words = paragraph(Search(settings(0, list(curves), (96,)), [1, 8, 64], SEEDS, wide).answer(80.0))
    assert words.startswith("For 80 tok/s/user: full (lossless) by a hair, at most 45 users")
    assert "2 replications do not settle it" in words
    assert words.count("a tie as far as these replications can tell") == 2
    clear = paragraph(ask(curves, 80.0))
    assert "settle" not in clear
    assert "tie" not in clear


def test_one_replication_says_that_it_has_no_intervals():
    curves = {"off": falling(100, 1.0, 50, 10), "full": falling(200, 3.0, 30, 15)}
    found = Search(settings(0, list(curves), (96,)), [1, 8, 64], [0], made(curves)).answer(80.0)
    assert "One replication: no intervals" in paragraph(found)


def test_the_end_of_the_range_is_said():
    words = paragraph(ask({"off": falling(100, 1.0, 50, 10)}, 10.0))
    assert "at most 64 users" in words
    assert "That is the highest load tried" in words


def test_the_command_answers_every_sla_in_words_and_as_json(command, toy_trace):
    arguments = (
        "recommend", "--trace", toy_trace, "--hw", "h800.yaml", "--sla", "20,1e6", "--policy", "off",
        "--policy", "static:k=2", "--max-users", 6, "--output-tokens", 200, "--seeds", 1, "--jobs", 1,
    )  # fmt: skip
    done = command(*arguments)
    assert done.code == 0
    assert "For 20 tok/s/user: " in done.out
    assert "No setting serves each user at 1e+06 tok/s" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    found = command(*arguments, "--json").document
    assert found["schema"] == "dspark-sim/recommend/1"
    assert [row["sla"] for row in found["answers"]] == [20.0, 1e6]
    assert {row["max_users"] for row in found["answers"][0]["ranking"]} <= set(range(1, 7))


def test_no_setting_for_any_sla_is_a_failed_check(command, toy_trace):
    base = ("recommend", "--trace", toy_trace, "--hw", "h800.yaml", "--policy", "off", "--max-users", 2)
    done = command(*base, "--sla", "1e6", "--output-tokens", 60, "--seeds", 1, "--jobs", 1)
    assert done.code == 1
    assert "No setting serves each user at 1e+06 tok/s" in done.out


def test_bad_input_is_one_line(command, toy_trace):
    base = ("recommend", "--trace", toy_trace, "--hw", "h800.yaml")
    assert "--sla 'fast': not a number" in command(*base, "--sla", "fast").error
    assert "--capture-limit 'a'" in command(*base, "--sla", "20", "--capture-limit", "a").error
