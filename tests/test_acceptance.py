"""Summaries of acceptance records: what counts say by position, and the file they travel in."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_cases import sample

from dspark_sim.errors import DataError, InputError
from dspark_sim.workload.acceptance import (
    RequestCounts,
    Rounds,
    geometric,
    read_acceptance,
    summarise,
    write_acceptance,
)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 16), st.floats(0, 1))
def test_geometric_inverts_the_closed_form(gamma, alpha):
    length = sum(alpha**j for j in range(gamma + 1))
    assert sum(geometric(gamma, length) ** j for j in range(gamma + 1)) == pytest.approx(length, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60))
def test_full_blocks_give_the_same_conditionals_from_rounds_and_from_histograms(pairs):
    accepted = np.array([a for a, _ in pairs])
    histogram = np.bincount(accepted, minlength=6)[None]
    steps = np.array([len(pairs)])

    def counts(rounds):
        return RequestCounts(["a"], np.array([-1]), steps, steps * 5, accepted.sum()[None], histogram, rounds)

    rounds = Rounds(np.array([0, len(pairs)]), accepted, np.full(len(pairs), 5))
    by_rounds, by_histogram = summarise(counts(rounds)), summarise(counts(None))
    assert by_rounds.conditional == by_histogram.conditional
    assert by_rounds.caveats == by_histogram.caveats == ()
    known = [s for s in by_rounds.survival if s is not None]
    assert 1 + sum(known) == pytest.approx(by_rounds.accepted_len)


def test_conditionals_from_rounds_are_right_under_any_verified_length():
    random = np.random.default_rng(3)
    true = np.array([0.9, 0.7, 0.8, 0.5])
    full = np.logical_and.accumulate(random.random((60_000, 4)) < true, axis=1).sum(axis=1)
    drafted = random.integers(0, 5, len(full))
    accepted = np.minimum(full, drafted)
    steps = np.array([len(full)])
    counts = RequestCounts(
        ["a"],
        np.array([-1]),
        steps,
        drafted.sum()[None],
        accepted.sum()[None],
        np.bincount(accepted, minlength=5)[None],
        Rounds(np.array([0, len(full)]), accepted, drafted),
    )
    summary = summarise(counts)
    error = np.sqrt(true * (1 - true) / np.array(summary.reached))
    assert (np.abs(np.array(summary.conditional) - true) < 4 * error).all()


def test_conditionals_for_synthesis_fill_what_was_never_reached():
    steps = np.array([4])
    never = RequestCounts(
        ["a"], np.array([-1]), steps, steps * 3, np.array([2]), np.array([[2, 2, 0, 0]]), None
    )
    summary = summarise(never)
    assert summary.conditional == (0.5, 0.0, None)
    assert summary.survival == (0.5, 0.0, None)
    assert summary.filled() == (0.5, 0.01, 0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"conditional": [0.5, 1.5, 0.5]}, "summary.conditional.1"),
        ({"conditional": [0.5]}, "needs gamma = 3 conditionals, has 1"),
        ({"gamma": 0}, "summary.gamma: must be at least 1"),
        ({"accepted_len": "long"}, "summary.accepted_len"),
        ({"basis": "hope"}, "summary.basis"),
    ],
)
def test_a_summary_that_was_tampered_with_is_refused(tmp_path, change, words):
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    write_acceptance(path, sample("vllm", "vllm_summary.json"))
    table = pq.read_table(path)
    document = json.loads(table.schema.metadata[b"dspark_sim_acceptance"])
    document["summary"] |= change
    pq.write_table(table.replace_schema_metadata({"dspark_sim_acceptance": json.dumps(document)}), path)
    with pytest.raises(DataError) as caught:
        read_acceptance(path)
    assert words in str(caught.value)


def test_other_files_are_no_records(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="missing: not records of dspark-sim import"):
        read_acceptance(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="no such file"):
        read_acceptance(tmp_path / "nowhere.parquet")
    with pytest.raises(InputError, match=r"written as \.parquet"):
        write_acceptance(tmp_path / "x.json", sample("vllm", "vllm_summary.json"))
