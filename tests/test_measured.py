"""Measured sweeps: what is read, and what is refused with a place and a rule."""

from __future__ import annotations

import json
import math

import pytest

from dspark_sim.errors import InputError
from dspark_sim.measured import Measured, read_measured
from dspark_sim.validation import tables

HEAD = "arm,concurrency,output_tok_per_s,tok_per_s_per_user\n"
RESULT = {"output_throughput": 2871.0, "max_concurrency": 16, "median_tpot_ms": 5.0}


def test_csv_rows_with_comments_and_gaps(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("# source: a blog\n" + HEAD + "k7,16,2871,191.9\nk7,256,4792,\n")
    first, second = read_measured(path)
    assert first == Measured("k7", 16, 2871.0, 191.9)
    assert math.isnan(second.tok_per_s_per_user)


def test_a_folder_of_benchmark_results(tmp_path):
    (tmp_path / "k7-c16.json").write_text(json.dumps(RESULT))
    (tmp_path / "no_spec_c16.json").write_text(json.dumps(RESULT | {"output_throughput": 1671.0}))
    assert read_measured(tmp_path) == [
        Measured("k7", 16, 2871.0, 200.0),
        Measured("no_spec", 16, 1671.0, 200.0),
    ]


def test_rows_of_a_folder_come_by_load_and_the_name_tells_a_load_that_the_result_lacks(tmp_path):
    for load in (4, 16, 128):
        (tmp_path / f"k7-c{load}.json").write_text(json.dumps(RESULT | {"max_concurrency": load}))
    (tmp_path / "k7-c8.json").write_text(json.dumps(RESULT | {"max_concurrency": None}))
    assert [row.concurrency for row in read_measured(tmp_path)] == [4, 8, 16, 128]


def test_json_lines_hold_a_load_each(tmp_path):
    results = [json.dumps(RESULT | {"max_concurrency": load}) for load in (16, 4)]
    (tmp_path / "adaptive.jsonl").write_text("\n".join(results) + "\n\n")
    assert read_measured(tmp_path) == [
        Measured("adaptive", 4, 2871.0, 200.0),
        Measured("adaptive", 16, 2871.0, 200.0),
    ]


def test_a_load_measured_twice_is_refused(tmp_path):
    (tmp_path / "k7.jsonl").write_text(json.dumps(RESULT) + "\n" + json.dumps(RESULT))
    with pytest.raises(InputError, match="several of arm k7 at 16 users"):
        read_measured(tmp_path)


def test_a_table_that_is_no_text(tmp_path):
    (tmp_path / "s.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as UTF-8"):
        read_measured(tmp_path / "s.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arm,concurrency\nk7,16\n", "column output_tok_per_s: missing"),
        (HEAD, "rows: none"),
        (HEAD + "k7,many,1,1\n", "row 1, column concurrency: 'many' is not a number"),
        (HEAD + "k7,1.5,1,1\n", "row 1: needs a whole concurrency"),
        (HEAD + "k7,16,,1\n", "row 1: needs a whole concurrency and a rate"),
        (HEAD + "k7,nan,1,1\n", "column concurrency: nan must be"),
        (HEAD + "k7,16\n", "row 1: needs a whole"),
        (HEAD + ",16,100,5\n", "row 1, column arm: empty"),
        (HEAD + "k7,16,100,5\nk7,32,-2,5\n", "row 2, column output_tok_per_s: -2 must be"),
    ],
)
def test_bad_tables_are_named(tmp_path, text, message):
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_measured(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("k7.json", json.dumps(RESULT), "must tell arm and load"),
        ("k7-c16.json", "{", "is not JSON"),
        ("k7-c16.json", json.dumps(RESULT | {"median_tpot_ms": None}), "key median_tpot_ms: missing"),
        ("k7-c16.json", "[]", "key output_throughput: missing"),
        ("k7-c4.json", json.dumps(RESULT), "key max_concurrency: 16, and the name says 4"),
        ("k7.jsonl", json.dumps(RESULT | {"max_concurrency": 1.5}), "key max_concurrency: 1.5; expected"),
        ("k7.jsonl", "\n", "is empty"),
    ],
)
def test_bad_results_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_measured(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        read_measured(tmp_path / "s.csv")
    with pytest.raises(InputError, match=r"no \.json file"):
        read_measured(tmp_path)


@pytest.mark.parametrize(("name", "arms"), [("vllm_flash_sweep", 5), ("vllm_pro_sweep", 7)])
def test_published_sweeps_are_read(name, arms):
    rows = read_measured(tables._FOLDER / f"{name}.csv")
    assert len({row.arm for row in rows}) == arms
    assert {row.concurrency for row in rows} == {1, 16, 32, 64, 128, 256}
