"""Intervals over replications."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from dspark_sim.results.stats import paired_change_pct, t_interval


def test_the_interval_is_students():
    x = [3.0, 4.5, 2.5, 7.0]
    expected = scipy_stats.t.interval(0.95, 3, loc=np.mean(x), scale=scipy_stats.sem(x))
    found = t_interval(x)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx(4.25)
    assert found.half_width == pytest.approx(found.high - found.mean)


def test_one_replication_has_a_mean_and_no_interval():
    found = t_interval([2.0])
    assert (found.mean, found.n, found.bounds) == (2.0, 1, None)
    assert math.isnan(found.half_width)


def test_no_replication_is_our_own_mistake():
    with pytest.raises(ValueError, match="at least one"):
        t_interval([])


def test_coverage_is_what_the_level_says():
    rng = np.random.default_rng(1)
    samples = rng.normal(5.0, 2.0, size=(2000, 4))
    hits = sum(low <= 5.0 <= high for low, high in (t_interval(row).bounds for row in samples))
    assert 0.935 < hits / 2000 < 0.965


def test_pairing_by_seed_takes_what_the_seeds_share_out_of_the_interval():
    rng = np.random.default_rng(2)
    base = {seed: 100.0 + 20.0 * rng.standard_normal() for seed in range(6)}
    arm = {seed: 1.1 * value for seed, value in base.items()}
    found = paired_change_pct(arm, base)
    assert found is not None
    assert found.mean == pytest.approx(10.0)
    assert found.half_width < 1e-9 < t_interval(base.values()).half_width


def test_pairs_are_the_seeds_that_both_arms_ran():
    found = paired_change_pct({1: 2.0, 2: 3.0}, {2: 2.0, 3: 9.0})
    assert found is not None
    assert (found.mean, found.n) == (pytest.approx(50.0), 1)
    assert paired_change_pct({1: 2.0}, {2: 2.0}) is None
