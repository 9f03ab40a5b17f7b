"""Expected tokens by budget: closed forms, and the trace they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.validation.yields import (
    best_accepted,
    conditionals,
    law_trace,
    shifted_accepted_len,
    shifted_to,
    yield_law,
)
from dspark_sim.workload.synthetic import SynthDrafter

LENGTHS = (1.84, 2.51, 3.01)


def test_conditionals_multiply_back_to_the_accepted_lengths():
    assert 1 + np.cumsum(np.cumprod(conditionals(LENGTHS))) == pytest.approx(LENGTHS)
    assert float(shifted_accepted_len(LENGTHS, np.array(0.0))) == pytest.approx(LENGTHS[-1])


@given(st.floats(1.5, 3.9))
def test_shifted_to_hits_the_accepted_length(wanted):
    assert 1 + np.cumprod(shifted_to((0.8, 0.7, 0.6), wanted)).sum() == pytest.approx(wanted)


def test_a_shift_up_lengthens():
    lengths = shifted_accepted_len(LENGTHS, np.array([-0.3, 0.0, 0.3]))
    assert (np.diff(lengths) > 0).all()


def test_best_accepted_takes_the_largest_first():
    survival = np.array([[0.9, 0.5], [0.7, 0.1]])
    found = best_accepted(survival, np.array([0.0, 0.5, 1.0, 1.25, 2.0]))
    assert found == pytest.approx([0.0, 0.45, 0.8, 0.925, 1.1])


def test_the_law_is_concave_reads_its_nodes_and_ends_at_the_accepted_length():
    law = yield_law(LENGTHS, np.array([-0.2, 0.0]), np.array([0.8, 1.2]))
    at_nodes = law.accepted_DL(np.array([-0.2, 0.0, 0.0]), np.array([0.8, 0.8, 1.2]))
    np.testing.assert_allclose(at_nodes, law.accepted_ASL[[0, 1, 1], [0, 0, 1]])
    middle = law.accepted_DL(np.array([-0.1]), np.array([1.0]))
    np.testing.assert_allclose(middle[0], law.accepted_ASL.mean(axis=(0, 1)))
    assert (np.diff(law.accepted_ASL, n=2) < 1e-9).all()
    assert law.accepted_ASL[1, :, -1] == pytest.approx(LENGTHS[-1] - 1, abs=0.05)


def test_sharper_confidences_get_more_from_the_same_budget():
    law = yield_law(LENGTHS, np.array([0.0, 0.1]), np.array([0.5, 1.5]))
    half = len(law.verified_L) // 2
    assert law.accepted_ASL[0, 1, half] > law.accepted_ASL[0, 0, half] + 0.02


def test_a_law_trace_says_that_it_is_synthetic():
    trace = law_trace([SynthDrafter("d", "dspark", (0.8, 0.7))], "nobody's model")
    assert trace.synthetic
    assert "nobody's model" in trace.pair_label
