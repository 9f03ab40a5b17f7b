"""Pareto sets and readings against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results_cases import make_point

from dspark_sim.results.curves import Curve, arms, at_sla, at_throughput, best_where, pareto

SPEED = st.integers(0, 12).map(float) | st.floats(0.1, 500.0)  # small whole numbers make ties


@st.composite
def nodes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Concurrencies, ascending, with two columns of values on them."""
    loads = draw(st.lists(st.integers(1, 300), min_size=1, max_size=7, unique=True))
    column = st.lists(SPEED, min_size=len(loads), max_size=len(loads))
    return np.array(sorted(loads), dtype=float), np.array(draw(column)), np.array(draw(column))


def dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] >= b[0] and a[1] >= b[1] and a != b


@given(st.lists(st.tuples(SPEED, SPEED), min_size=1, max_size=12))
def test_the_pareto_set_is_what_no_point_dominates_and_dominates_the_rest(points):
    x, y = np.array(points).T
    kept = pareto(x, y)
    for point, keep in zip(points, kept, strict=True):
        assert keep == (not any(dominates(other, point) for other in points))
    front = [p for p, keep in zip(points, kept, strict=True) if keep]
    assert all(any(dominates(f, p) for f in front) for p, keep in zip(points, kept, strict=True) if not keep)


@settings(max_examples=200)
@given(nodes(), st.floats(0.0, 600.0) | st.integers(0, 12).map(float))
def test_the_best_place_beats_every_place_of_a_fine_grid(curve, level):
    loads, objective, constraint = curve
    grid = np.unique(np.concatenate([np.linspace(loads[0], loads[-1], 2001), loads]))
    allowed = grid[np.interp(grid, loads, constraint) >= level]
    best = best_where(loads, objective, constraint, level)
    if best is None:
        assert not allowed.size
        return
    assert loads[0] <= best <= loads[-1]
    assert np.interp(best, loads, constraint) >= level - 1e-6
    value = np.interp(best, loads, objective)
    assert value >= np.interp(allowed, loads, objective).max(initial=-np.inf) - 1e-6


def falling() -> Curve:
    return Curve(np.array([1.0, 3.0, 5.0]), np.array([100.0, 80.0, 40.0]), np.array([100.0, 240.0, 200.0]))


def test_a_reading_between_two_loads_is_linear_in_concurrency():
    reading = at_sla(falling(), 90.0)
    assert reading is not None
    assert (reading.concurrency, reading.user, reading.gpu) == pytest.approx((2.0, 90.0, 170.0))


def test_a_load_past_the_peak_is_not_taken_though_the_sla_would_allow_it():
    reading = at_sla(falling(), 50.0)
    assert reading is not None
    assert (reading.concurrency, reading.gpu) == (3.0, 240.0)


def test_nothing_is_extrapolated():
    assert at_sla(falling(), 100.0) is not None
    assert at_sla(falling(), 100.1) is None
    slow = at_sla(falling(), 1.0)
    assert slow is not None
    assert slow.concurrency == 3.0
    assert at_throughput(falling(), 240.1) is None
    assert at_throughput(falling(), None) is None


def test_ties_go_to_the_lower_load():
    flat = Curve(np.array([1.0, 2.0, 4.0]), np.array([9.0, 9.0, 9.0]), np.array([5.0, 7.0, 7.0]))
    reading = at_sla(flat, 9.0)
    assert reading is not None
    assert reading.concurrency == 2.0


@given(nodes(), st.floats(0.0, 600.0))
def test_a_baseline_meets_its_own_throughput_at_least_as_fast_as_the_sla(curve, sla):
    own = Curve(*curve)
    at = at_sla(own, sla)
    if at is not None:
        back = at_throughput(own, at.gpu * (1 - 1e-12))
        assert back is not None
        assert back.user >= at.user - 1e-6


def test_curves_are_means_over_seeds_and_a_seed_that_missed_a_load_has_no_curve():
    points = [
        make_point("a", 1, 10.0, 10.0, seed=0),
        make_point("a", 1, 14.0, 12.0, seed=1),
        make_point("a", 4, 8.0, 30.0, seed=1),
    ]
    arm = arms(points)["dspark", "a"]
    assert arm.mean.user.tolist() == [12.0, 8.0]
    assert list(arm.by_seed) == [1]
    assert arm.by_seed[1].gpu.tolist() == [12.0, 30.0]
