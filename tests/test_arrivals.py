"""Arrival processes: their laws within intervals, determinism, and refusals.

Seeds are fixed, so a statistical test cannot flicker; its bound is what a fresh seed meets with
probability .999 or more.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dspark_sim.errors import DataError, InputError
from dspark_sim.rng import stream
from dspark_sim.workload.arrivals import MAX_ARRIVALS, parse_arrivals, spread_batches, unit_gaps

SPECS = [
    "poisson:rate=5",
    "gamma:rate=5,cv=3",
    "gamma:rate=2,cv=0.3",
    "deterministic:rate=4",
    "burst:n=50,at=3",
]
LEVEL = 0.001


def day(folder, rows="600,2\n300,0\n600,8\n"):
    path = folder / "day.csv"
    path.write_text("duration_s,rate_per_s\n" + rows)
    return path


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_gamma_gaps_follow_their_law(cv):
    # Not from differences of times: at CV 3 most gaps are lost in the rounding of a long sum.
    gaps = unit_gaps(40_000, cv, stream(1, "gaps"))
    assert stats.kstest(gaps, "gamma", args=(cv**-2, 0, cv**2)).pvalue > LEVEL


@pytest.mark.parametrize(("rate", "cv"), [(5.0, 1.0), (0.2, 3.0), (40.0, 0.3)])
def test_mean_and_cv_of_gaps_lie_in_their_intervals_over_seeds(rate, cv):
    count, seeds = 4_000, 40
    arrivals = parse_arrivals(f"gamma:rate={rate},cv={cv}")
    gaps = np.array([np.diff(arrivals.times(count, seed), prepend=0.0) for seed in range(seeds)])
    reach = stats.t.isf(LEVEL / 2, seeds - 1) / np.sqrt(seeds)
    mean, square = gaps.mean(axis=1) * rate, (gaps**2).mean(axis=1) * rate**2
    assert abs(mean.mean() - 1) < reach * mean.std(ddof=1)
    assert abs(mean.std(ddof=1) * np.sqrt(count) / cv - 1) < 0.4
    # E[gap^2] = (1 + CV^2) / rate^2, and unlike the sample CV it is not biased.
    assert abs(square.mean() - (1 + cv**2)) < reach * square.std(ddof=1)


def test_poisson_gaps_are_exponential_and_counts_have_variance_equal_to_mean():
    times = parse_arrivals("poisson:rate=5").until(4_000.0, seed=2)
    assert stats.kstest(np.diff(times), "expon", args=(0, 0.2)).pvalue > LEVEL
    counts = np.bincount(times.astype(int), minlength=4_000)
    dispersion = ((counts - counts.mean()) ** 2).sum() / counts.mean()
    assert LEVEL < stats.chi2.cdf(dispersion, len(counts) - 1) < 1 - LEVEL


def test_superposed_poissons_are_a_poisson_of_the_summed_rate():
    times = parse_arrivals("poisson:rate=2+poisson:rate=3").times(20_000, seed=3)
    assert stats.kstest(np.diff(times), "expon", args=(0, 0.2)).pvalue > LEVEL
    assert abs(np.corrcoef(np.diff(times)[:-1], np.diff(times)[1:])[0, 1]) < 4 / np.sqrt(20_000)


def test_superposed_parts_have_streams_of_their_own():
    times = parse_arrivals("poisson:rate=2+poisson:rate=2").times(1_000, seed=3)
    assert len(np.unique(times)) == 1_000


def test_deterministic_arrivals_are_a_clock():
    assert np.array_equal(parse_arrivals("deterministic:rate=4").times(8, seed=9), np.arange(1, 9) / 4)


def test_gamma_of_cv_0_is_deterministic_and_of_cv_1_poisson():
    assert np.array_equal(
        parse_arrivals("gamma:rate=4,cv=0").times(50, 1), parse_arrivals("deterministic:rate=4").times(50, 1)
    )
    assert np.array_equal(
        parse_arrivals("gamma:rate=4,cv=1").times(50, 1), parse_arrivals("poisson:rate=4").times(50, 1)
    )


def test_a_burst_of_10000_comes_at_one_instant_and_ends():
    burst = parse_arrivals("burst:n=10000,at=2.5")
    assert np.array_equal(burst.times(20_000, 0), np.full(10_000, 2.5))
    assert len(burst.until(2.5, 0)) == 0
    assert len(burst.until(2.6, 0)) == 10_000


def test_a_burst_on_top_of_a_load_adds_to_it():
    both = parse_arrivals("poisson:rate=5+burst:n=1000,at=60").until(120.0, 4)
    alone = parse_arrivals("poisson:rate=5").until(120.0, 4)
    assert len(both) == len(alone) + 1000
    assert (both == 60.0).sum() == 1000


def test_piecewise_counts_are_poisson_of_the_integral_and_none_come_at_rate_0(tmp_path):
    times = parse_arrivals(f"piecewise:{day(tmp_path)}").until(30 * 1500.0, seed=5)
    phase = times % 1500.0
    counts = np.histogram(phase, [0, 600, 900, 1500])[0]
    assert counts[1] == 0
    for count, mean in ((counts[0], 30 * 1200), (counts[2], 30 * 4800)):
        assert abs(count - mean) < stats.norm.isf(LEVEL / 2) * np.sqrt(mean)
    late = phase[phase >= 900]
    assert stats.kstest((late - 900) / 600, "uniform").pvalue > LEVEL


def test_piecewise_at_cv_0_ticks_by_the_integral_of_the_rate_cycle_after_cycle(tmp_path):
    # The integral is 2 after the first piece, rests through the second, is 4 at the end of the third.
    path = day(tmp_path, "2,1\n3,0\n2,1\n")
    times = parse_arrivals(f"piecewise:{path},cv=0").times(8, 0)
    assert times.tolist() == [1, 5, 6, 7, 8, 12, 13, 14]


def test_piecewise_scales_its_rates_and_keeps_the_shape(tmp_path):
    path = day(tmp_path)
    base = parse_arrivals(f"piecewise:{path},cv=0").until(1500.0, 0)
    twice = parse_arrivals(f"piecewise:{path},cv=0,scale=2").until(1500.0, 0)
    assert abs(len(twice) - 2 * len(base)) <= 1
    assert np.allclose(twice[1::2], base[: len(twice[1::2])])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SPECS), st.integers(1, 300), st.integers(0, 300), st.integers(0, 2**31))
def test_more_arrivals_begin_with_the_same_ones(spec, count, more, seed):
    arrivals = parse_arrivals(spec)
    few, many = arrivals.times(count, seed), arrivals.times(count + more, seed)
    assert np.array_equal(few, many[: len(few)])
    assert (np.diff(many) >= 0).all()
    assert (many >= 0).all()


@pytest.mark.parametrize("spec", ["poisson:rate=50", "gamma:rate=50,cv=4"])
def test_until_is_times_cut_at_the_horizon(spec):
    arrivals = parse_arrivals(spec)
    until = arrivals.until(100.0, 7)
    assert len(until) > 1024
    assert np.array_equal(until, arrivals.times(len(until), 7))
    assert arrivals.times(len(until) + 1, 7)[-1] >= 100.0


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    arrivals = parse_arrivals("gamma:rate=5,cv=3")
    assert arrivals.times(100, 1).tobytes() == arrivals.times(100, 1).tobytes()
    assert arrivals.times(100, 1).tobytes() != arrivals.times(100, 2).tobytes()


def test_the_label_is_the_normalised_spec():
    assert parse_arrivals("gamma: rate=5.0 ,cv=3").label == "gamma:rate=5,cv=3"
    assert parse_arrivals("poisson:rate=5 + burst:n=3,at=0").label == "poisson:rate=5+burst:n=3"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("poison:rate=5", "unknown arrivals 'poison' (did you mean 'poisson'?)"),
        ("poisson:rate=0", "rate = 0: must be above 0"),
        ("poisson:rate=-3", "must be above 0"),
        ("poisson:rate=nan", "must be a finite number"),
        ("poisson", "'rate' is missing; poisson takes: rate"),
        ("gamma:rate=5,cv=-1", "cv = -1: must be at least 0"),
        ("gamma:rate=5", "'cv' is missing"),
        ("poisson:rat=5", "no option 'rat' (did you mean 'rate'?)"),
        ("burst:n=0", "n = 0: must be above 0"),
        ("burst:n=3,at=-1", "at = -1"),
        ("piecewise", "'path' is missing"),
        ("piecewise:nowhere.csv", "nowhere.csv: no such file"),
        ("poisson:rate=5+", "unknown arrivals ''"),
    ],
)
def test_bad_specs_are_refused_in_one_line(spec, words):
    with pytest.raises(InputError) as caught:
        parse_arrivals(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("600,-1\n", "column 'rate_per_s', row 0 (line 2): -1.0: must be a finite rate, 0 or more"),
        ("600,1\n0,1\n", "column 'duration_s', row 1 (line 3): 0.0: must be a finite time above 0"),
        ("600,\n", "column 'rate_per_s', row 0"),
        ("600,0\n300,0\n", "some rate must be above 0"),
        ("", "holds no row"),
        ("600,fast\n", "'rate_per_s', row 0 (line 2): fast: not a number"),
    ],
)
def test_a_bad_file_of_rates_is_refused_with_its_row(tmp_path, rows, words):
    with pytest.raises(DataError) as caught:
        parse_arrivals(f"piecewise:{day(tmp_path, rows)}")
    assert words in str(caught.value)


@pytest.mark.parametrize("count", [0, -1, MAX_ARRIVALS + 1])
def test_counts_out_of_range_are_refused(count):
    with pytest.raises(InputError, match="must be 1 to"):
        parse_arrivals("poisson:rate=5").times(count, 0)


@pytest.mark.parametrize("horizon_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_horizon_is_a_finite_time_above_0(horizon_s):
    with pytest.raises(InputError, match="must be a finite time above 0"):
        parse_arrivals("poisson:rate=5").until(horizon_s, 0)


def test_more_arrivals_than_anybody_means_are_refused(monkeypatch):
    monkeypatch.setattr("dspark_sim.workload.arrivals.MAX_ARRIVALS", 5_000)
    arrivals = parse_arrivals("deterministic:rate=1000")
    assert len(arrivals.until(4.9995, 0)) == 4_999
    with pytest.raises(InputError, match="more than 5,000 before 6 s; lower the rate or the horizon"):
        arrivals.until(6.0, 0)


def test_spreading_a_batch_keeps_it_within_its_room_and_leaves_single_arrivals_alone():
    ticks = np.repeat([0.0, 3.0, 4.0, 9.0], [40, 30, 1, 20])
    spread = spread_batches(ticks, 3.0, seed=1)
    assert (np.diff(spread) >= 0).all()
    assert ((spread[:40] >= 0) & (spread[:40] < 3)).all()
    assert ((spread[40:70] >= 3) & (spread[40:70] < 4)).all()
    assert spread[70] == 4.0
    assert ((spread[71:] >= 9) & (spread[71:] < 12)).all()
    assert stats.kstest(spread[:40] / 3, "uniform").pvalue > LEVEL


def test_spread_ticks_of_a_poisson_process_are_poisson_again():
    true = parse_arrivals("poisson:rate=4").until(6_000.0, 8)
    spread = spread_batches(np.floor(true / 3) * 3, 3.0, seed=8)
    gaps = np.diff(spread)
    assert stats.kstest(gaps, "expon", args=(0, 0.25)).pvalue > LEVEL


def test_unit_gaps_have_mean_1_whatever_the_cv():
    for cv in (0.0, 0.5, 1.0, 2.0):
        gaps = unit_gaps(20_000, cv, stream(0, "gaps"))
        assert abs(gaps.mean() - 1) <= stats.norm.isf(LEVEL / 2) * cv / np.sqrt(20_000)
