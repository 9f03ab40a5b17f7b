"""The frontier document: schema, percentages, intervals, what cannot be met."""

from __future__ import annotations

import json

import pytest
from results_cases import make_point

from dspark_sim.errors import InputError
from dspark_sim.results.frontier import frontier

LOADS = (1, 10, 20)


def arm(policy: str, factor: float = 1.0, seed: int = 0, drafter: str = "dspark") -> list[dict]:
    """A curve that falls from 100 to 60 tok/s/user; ``factor`` speeds every user up."""
    user = {1: 100.0, 10: 80.0, 20: 60.0}
    return [
        make_point(policy, c, factor * user[c], factor * user[c] * c, seed, drafter=drafter) for c in LOADS
    ]


def rows(document: dict, part: str, policy: str) -> list[dict]:
    return [row for row in document[part] if row["policy"] == policy]


def test_the_document_has_the_keys_of_its_schema():
    document = frontier([*arm("off"), *arm("dspark", 1.5)], "off", [80.0])
    assert document["schema"] == "dspark-sim/frontier/1"
    assert {"drafter", "policy", "points"} <= document["frontier"][0].keys()
    sla = {"sla", "drafter", "policy", "tok_per_s_per_gpu", "concurrency", "vs_baseline_pct", "feasible"}
    assert sla <= document["sla"][0].keys()
    matched = {"sla", "policy", "level_tok_per_s_per_gpu", "tok_per_s_per_user", "vs_baseline_pct"}
    assert matched <= document["matched"][0].keys()
    json.dumps(document, allow_nan=False)


def test_frontier_points_are_the_pareto_set_by_rising_speed():
    points = [*arm("off"), make_point("off", 40, 20.0, 500.0)]
    [row] = frontier(points, "off", [])["frontier"]
    assert row["points"] == [[60.0, 1200.0, 20], [80.0, 800.0, 10], [100.0, 100.0, 1]]


def test_percentages_at_an_sla_are_against_the_baselines_own_best():
    document = frontier([*arm("off"), *arm("dspark", 1.2)], "off", [80.0])
    [base], [faster] = rows(document, "sla", "off"), rows(document, "sla", "dspark")
    assert (base["tok_per_s_per_gpu"], base["vs_baseline_pct"]) == (800.0, 0.0)
    # 1.2 x (80, 60) at loads (10, 20) meets 80 at load 10 + 10 x 16/24.
    load = 10 + 10 * 16 / 24
    gpu = 1.2 * (800 + (1200 - 800) * 16 / 24)
    assert faster["concurrency"] == pytest.approx(load)
    assert faster["tok_per_s_per_gpu"] == pytest.approx(gpu)
    assert faster["vs_baseline_pct"] == pytest.approx(100 * (gpu / 800 - 1))


def test_matched_throughput_compares_users_at_the_baselines_level():
    document = frontier([*arm("off"), *arm("dspark", 1.2)], "off", [80.0])
    [base], [faster] = rows(document, "matched", "off"), rows(document, "matched", "dspark")
    assert base["level_tok_per_s_per_gpu"] == faster["level_tok_per_s_per_gpu"] == 800.0
    assert base["vs_baseline_pct"] == pytest.approx(0.0)
    # 1.2 x (100, 800) tok/s/GPU at loads (1, 10) reach 800 at load 1 + 9 x 680/840.
    share = (800 - 120) / (960 - 120)
    assert faster["tok_per_s_per_user"] == pytest.approx(1.2 * (100 - 20 * share))
    assert faster["vs_baseline_pct"] == pytest.approx(100 * (faster["tok_per_s_per_user"] / 80 - 1))


def test_an_sla_that_nothing_meets_is_a_result():
    document = frontier([*arm("off"), *arm("dspark", 1.2)], "off", [1e6])
    for row in document["sla"]:
        assert row["feasible"] is False
        assert (row["tok_per_s_per_gpu"], row["concurrency"], row["vs_baseline_pct"]) == (None, None, None)
    assert rows(document, "sla", "dspark")[0]["highest_tok_per_s_per_user"] == 120.0
    assert all(row["level_tok_per_s_per_gpu"] is None for row in document["matched"])


def test_where_the_baseline_has_no_reading_there_is_no_percentage():
    document = frontier([*arm("off"), *arm("dspark", 1.2)], "off", [110.0])
    [faster] = rows(document, "sla", "dspark")
    assert faster["feasible"] is True
    assert faster["vs_baseline_pct"] is None


def test_intervals_come_from_the_seeds_one_by_one():
    points = [
        p for s, f in enumerate((1.0, 1.1, 0.9)) for p in (*arm("off", f, s), *arm("dspark", 1.2 * f, s))
    ]
    [row] = rows(frontier(points, "off", [60.0]), "sla", "dspark")
    low, high = row["vs_baseline_pct_ci95"]
    assert low < row["vs_baseline_pct"] < high
    # The seeds differ in speed by 10 %; at the loads' end the two arms of a seed differ by 20 % exactly.
    [at_end] = rows(frontier(points, "off", [50.0]), "sla", "dspark")
    assert at_end["vs_baseline_pct_ci95"] == pytest.approx((20.0, 20.0))
    assert at_end["at_highest_concurrency"] is True
    assert at_end["tok_per_s_per_gpu_ci95"][1] > 1.05 * at_end["tok_per_s_per_gpu"]


def test_a_seed_without_a_reading_leaves_no_interval():
    points = [p for s, f in enumerate((1.0, 0.5)) for p in (*arm("off", f, s), *arm("dspark", 1.2 * f, s))]
    [row] = rows(frontier(points, "off", [70.0]), "sla", "dspark")
    assert row["feasible"] is True
    assert row["tok_per_s_per_gpu_ci95"] is None


def test_a_drafter_is_compared_with_its_own_baseline_where_it_has_one():
    points = [
        *arm("off"),
        *arm("dspark", 1.2),
        *arm("off", 0.5, drafter="mtp"),
        *arm("dspark", 1.0, drafter="mtp"),
    ]
    found = {
        (r["drafter"], r["policy"]): r["vs_baseline_pct"] for r in frontier(points, "off", [30.0])["sla"]
    }
    assert found == {
        ("dspark", "off"): 0.0,
        ("dspark", "dspark"): pytest.approx(20.0),
        ("mtp", "off"): 0.0,
        ("mtp", "dspark"): pytest.approx(100.0),
    }


def test_an_unknown_baseline_names_what_there_is():
    with pytest.raises(
        InputError, match=r"'dspork' is not in the results \(did you mean 'dspark'\?\); .* off"
    ):
        frontier([*arm("off"), *arm("dspark")], "dspork", [80.0])


def test_a_curve_that_turns_back_is_searched_whole():
    points = [
        make_point("off", 1, 100.0, 100.0),
        make_point("off", 3, 80.0, 240.0),
        make_point("off", 5, 90.0, 200.0),
    ]
    [row] = frontier(points, "off", [85.0])["sla"]
    # 85 tok/s/user at load 2.5 on the way down (205 tok/s/GPU) and at load 4 on the way back (220).
    assert (row["concurrency"], row["tok_per_s_per_gpu"]) == (4.0, 220.0)
