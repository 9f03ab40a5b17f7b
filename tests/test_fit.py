"""The fit finds what made the data, says what it cannot know, and is not bent by one bad row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dspark_sim.errors import InputError
from dspark_sim.fit import Unknown, fit
from dspark_sim.measured import Measured

UNKNOWNS = [
    Unknown("fixed_ms", 5.0, 1.0, "guess"),
    Unknown("per_request_ms", 0.05, 1.0, "guess"),
    Unknown("idle", 2.0, 0.3, "nothing depends on it"),
]
TRUTH = {"fixed_ms": 8.0, "per_request_ms": 0.1, "idle": 2.0}
LOADS = (1, 8, 32, 128, 256)


def rates(values, row):
    user = 1e3 / (values["fixed_ms"] + values["per_request_ms"] * row.concurrency)
    return row.concurrency * user, user


def rows(wrong=None):
    found = [Measured("off", c, math.nan, math.nan) for c in LOADS]
    exact = [Measured(row.arm, row.concurrency, *rates(TRUTH, row)) for row in found]
    return [
        Measured(
            r.arm, r.concurrency, r.tok_per_s * (wrong or {}).get(r.concurrency, 1.0), r.tok_per_s_per_user
        )
        for r in exact
    ]


def test_the_fit_finds_what_made_the_data():
    found = fit(UNKNOWNS, rows(), rates, most_rounds=30)
    assert found.values["fixed_ms"] == pytest.approx(8.0, rel=0.01)
    assert found.values["per_request_ms"] == pytest.approx(0.1, rel=0.01)
    np.testing.assert_allclose(found.residuals, 0, atol=0.01)
    for estimate in found.estimates:
        assert estimate.low < TRUTH[estimate.name] < estimate.high


def test_what_the_data_do_not_touch_keeps_its_prior_and_is_said_so():
    found = {e.name: e for e in fit(UNKNOWNS, rows(), rates, most_rounds=30).estimates}
    assert found["idle"].value == pytest.approx(2.0)
    assert found["idle"].width == pytest.approx(1.0)
    assert not found["idle"].identified
    assert found["fixed_ms"].identified


def test_one_bad_row_moves_little():
    found = fit(UNKNOWNS, rows({32: 0.5}), rates, most_rounds=30)
    assert found.values["fixed_ms"] == pytest.approx(8.0, rel=0.08)
    assert found.residuals[2, 0] == pytest.approx(math.log(2), abs=0.1)


def test_rates_that_nobody_measured_are_left_out():
    half = [Measured(r.arm, r.concurrency, r.tok_per_s, math.nan) for r in rows()]
    found = fit(UNKNOWNS, half, rates, most_rounds=30)
    assert np.isnan(found.residuals[:, 1]).all()
    assert found.values["per_request_ms"] == pytest.approx(0.1, rel=0.02)


def test_simulations_are_counted():
    asked = []

    def counted(values, row):
        asked.append(row)
        return rates(values, row)

    assert fit(UNKNOWNS, rows(), counted, most_rounds=3).simulations == len(asked)


@pytest.mark.parametrize(
    ("unknowns", "measured", "message"),
    [
        ([], rows(), "at least one unknown"),
        (UNKNOWNS, [], "one measured row"),
        ([Unknown("x", 0.0, 1.0, "")], rows(), "unknown x"),
        (UNKNOWNS, [Measured("k7", 16, 0.0, 1.0)], "arm k7 at concurrency 16"),
        (UNKNOWNS, [Measured("k7", 16, 1.0, -1.0)], "arm k7 at concurrency 16"),
    ],
)
def test_bad_input_is_named(unknowns, measured, message):
    with pytest.raises(InputError, match=message):
        fit(unknowns, measured, rates)
