"""ServeGen: requests sampled from clients' windows, against their rates, burstiness and histograms."""

import numpy as np
import pytest
from importer_cases import REAL, SAMPLES, real, sample
from scipy import stats

from dspark_sim.errors import DataError, InputError
from dspark_sim.rng import stream
from dspark_sim.workload.importers.registry import import_file
from dspark_sim.workload.importers.servegen import Client, Histogram, at_or_before, fill_window
from dspark_sim.workload.workloads import describe


def test_servegen_counts_are_the_windows_and_lengths_their_tables():
    first = sample("servegen:to_s=600", "servegen_windows.csv")
    # Client 0: 1200 requests; client 1: 300; client 2 has no output lengths and is left out, with a note.
    assert len(first) == 1500
    assert first.source["notes"][1] == "left out 9.1 % of the requests: their clients have no lengths"
    small = first.prompt_tokens_Q < 2
    assert small.sum() == 300
    assert set(first.prompt_tokens_Q[~small] // 100) == {1, 2}
    chance = stats.binomtest(int((first.prompt_tokens_Q >= 200).sum()), 1200, 0.5).pvalue
    assert chance > 0.001
    late = sample("servegen:from_s=1200,to_s=1800,rate_scale=0.5", "servegen_windows.csv")
    assert len(late) == 900 + 30
    assert set(late.prompt_tokens_Q) <= {1, *range(1000, 1010)}


def test_servegen_a_window_has_the_same_requests_whatever_else_is_sampled():
    early = sample("servegen:to_s=600", "servegen_windows.csv")
    both = sample("servegen:to_s=1200", "servegen_windows.csv")
    assert np.array_equal(both.arrivals[: len(early)], early.arrivals)
    assert np.array_equal(both.output_tokens_Q[: len(early)], early.output_tokens_Q)


@pytest.mark.parametrize(("family", "shape"), [("Gamma", 0.2), ("Weibull", 0.5), ("Gamma", 1.0)])
def test_servegen_gaps_fill_their_window_with_the_burstiness_of_the_family(family, shape):
    times = fill_window(Client(0, 0, 6000, family, shape), stream(0, "window"))
    assert len(times) == 6000
    assert times.min() >= 0
    assert times.max() < 600
    around = np.append(np.diff(times), 600 - times[-1] + times[0])
    assert around.sum() == pytest.approx(600)
    law = stats.gamma(shape) if family == "Gamma" else stats.weibull_min(shape)
    assert around.std() / around.mean() == pytest.approx(law.std() / law.mean(), rel=0.12)


def test_servegen_gaps_that_vanish_come_at_one_instant():
    times = fill_window(Client(0, 0, 5, "Gamma", 1e-9), stream(0, "window"))
    assert len(np.unique(times.round(6))) == 1


def test_servegen_takes_the_latest_table_before_a_window_else_the_first():
    tables = {start: Histogram(np.zeros(1), np.ones(1), np.ones(1)) for start in (600, 1200)}
    assert at_or_before(tables, 0) is tables[600]
    assert at_or_before(tables, 1199) is tables[600]
    assert at_or_before(tables, 1200) is tables[1200]


def test_a_histogram_is_drawn_uniformly_within_its_bins():
    histogram = Histogram(np.array([10.0, 100.0]), np.array([20.0, 300.0]), np.array([0.25, 1.0]))
    drawn = histogram.draw(40_000, stream(0, "draw"))
    assert set(drawn[drawn < 100]) == set(range(10, 20))
    assert stats.binomtest(int((drawn < 100).sum()), 40_000, 0.25).pvalue > 0.001
    assert drawn.mean() == pytest.approx(0.25 * 14.5 + 0.75 * 199.5, rel=0.01)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("servegen:from_s=5000,to_s=6000", "0 requests in windows that start in 5000..6000 s"),
        ("servegen:rate_scale=1e6", "must be 1 to 20,000,000: choose from_s, to_s, rate_scale"),
        ("servegen:lengths=nowhere.csv", "nowhere.csv: no such file"),
        ("servegen:from_s=600,to_s=600", "0 requests"),
        ("servegen:rate_scale=0", "rate_scale = 0: must be above 0"),
    ],
)
def test_servegen_refusals(spec, words):
    with pytest.raises(InputError) as caught:
        sample(spec, "servegen_windows.csv")
    assert words in str(caught.value)


def test_servegen_refuses_an_unknown_family_with_its_row(tmp_path):
    text = (SAMPLES / "servegen_windows.csv").read_text().replace("Weibull", "Pareto", 1)
    (tmp_path / "x_windows.csv").write_text(text)
    (tmp_path / "x_lengths.csv").write_text((SAMPLES / "servegen_lengths.csv").read_text())
    with pytest.raises(DataError, match=r"column 'family', row 1 .*Pareto: must be one of: Gamma, Weibull"):
        import_file("servegen", tmp_path / "x_windows.csv")


@real
def test_servegen_real_day_has_its_published_rate_and_lengths():
    import pyarrow.parquet as pq

    path = REAL / "servegen_deepseek-r1_windows.parquet"
    rates = pq.read_table(path).to_pandas()
    w = import_file("servegen:to_s=86400", path)
    got = describe(w)
    expected = np.rint(rates.rate_rps.to_numpy(dtype=float) * 600).sum()
    assert len(w) == expected
    assert got["rate_per_s"] == pytest.approx(16.0, abs=0.05)
    # The published means are of the exact histograms; bins of a tenth of a decade cost 1 percent.
    assert got["prompt_tokens"]["mean"] == pytest.approx(1268, rel=0.02)
    assert got["output_tokens"]["mean"] == pytest.approx(1527, rel=0.02)
    for column, known in {
        "prompt_tokens": (18, 208, 2092, 23423),
        "output_tokens": (287, 792, 3432, 12607),
    }.items():
        for key, value in zip(("p10", "p50", "p90", "p99"), known, strict=True):
            assert got[column][key] == pytest.approx(value, rel=0.06)
