"""Request tables: round trips, transformations, refusals, and the real traces in circulation."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.errors import DataError, InputError
from dspark_sim.workload.workloads import Workload, describe, read_workload, write_workload

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "workloads"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the real traces are not beside this checkout")


def csv(folder, text):
    path = folder / "w.csv"
    path.write_text(text)
    return path


def workload(arrival=(0.0, 1.0, 1.0, 4.5), prompt=(10, 20, 30, 40), output=(1, 2, 3, 4)):
    times = None if arrival is None else np.array(arrival)
    return Workload("w", {"importer": "test"}, times, np.array(prompt), np.array(output))


def test_a_csv_file_with_all_columns(tmp_path):
    path = csv(
        tmp_path,
        "arrival_s,prompt_tokens,output_tokens,cached_prefix_tokens,domain\n0,10,5,0,chat\n1.5,20,6,20,code\n1.5,9,7,3,chat\n",
    )
    w = read_workload(path)
    assert (w.name, len(w), w.domains) == ("w", 3, ("chat", "code"))
    assert w.arrivals.tolist() == [0, 1.5, 1.5]
    assert w.prompt_tokens_Q.tolist() == [10, 20, 9]
    assert w.output_tokens_Q.tolist() == [5, 6, 7]
    assert w.cached_prefix_tokens_Q.tolist() == [0, 20, 3]
    assert w.domain_Q.tolist() == [0, 1, 0]


@pytest.mark.parametrize("arrivals", ["", "arrival_s,"])
def test_lengths_only_with_or_without_an_empty_column(tmp_path, arrivals):
    cell = "," if arrivals else ""
    w = read_workload(csv(tmp_path, f"{arrivals}prompt_tokens,output_tokens\n{cell}10,5\n{cell}20,6\n"))
    assert w.arrival_s_Q is None
    with pytest.raises(InputError, match="holds lengths only"):
        w.scale_rate(2)


HEAD = "arrival_s,prompt_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            HEAD + "0,1,1\n5,1,1\n4,1,1\n",
            "column 'arrival_s', row 2 (line 4): 4.0: earlier than the row before",
        ),
        (HEAD + "-1,1,1\n", "column 'arrival_s', row 0 (line 2): -1.0: must be finite, not negative"),
        (HEAD + "0,1,1\nnan,1,1\n", "column 'arrival_s', row 1 (line 3): nan: must be finite"),
        (HEAD + "0,1,1\n,1,1\n", "column 'arrival_s', row 1 (line 3): nan: must be finite"),
        (HEAD + "0,1,1\ninf,1,1\n", "column 'arrival_s', row 1 (line 3): inf"),
        (
            HEAD + "0,1,1\n1,0,1\n",
            "column 'prompt_tokens', row 1 (line 3): 0.0: must be a whole number of tokens, at least 1",
        ),
        (
            HEAD + "0,1,-4\n",
            "column 'output_tokens', row 0 (line 2): -4.0: must be a whole number of tokens, at least 1",
        ),
        (HEAD + "0,1,NaN\n", "column 'output_tokens', row 0 (line 2): nan: must be a whole number"),
        (HEAD + "0,1,2.5\n", "column 'output_tokens', row 0 (line 2): 2.5: must be a whole number"),
        (HEAD + "0,1,1\n1,many,1\n", "column 'prompt_tokens', row 1 (line 3): many: not a number"),
        (HEAD, "holds no row"),
        (HEAD + "0,1e30,1\n", "1e+30: must be at most 2,147,483,647"),
        (
            "arrival_s,prompt_token,output_tokens\n0,1,1\n",
            "column 'prompt_tokens': missing (the file has 'prompt_token'?)",
        ),
        (
            "arrivals,prompt_tokens,output_tokens\n0,1,1\n",
            "column 'arrivals': unknown (did you mean 'arrival_s'?)",
        ),
        (
            "prompt_tokens,output_tokens,cached_prefix_tokens\n5,1,6\n",
            "column 'cached_prefix_tokens', row 0 (line 2): 6: longer than the prompt",
        ),
        ("prompt_tokens,output_tokens,domain\n5,1,a\n5,1,\n", "column 'domain', row 1 (line 3)"),
        ("prompt_tokens,output_tokens,prompt_tokens\n5,1,6\n", "column"),
        ("prompt_tokens,output_tokens\n5\n", "not readable as csv"),
    ],
)
def test_refusals_name_file_column_row_and_rule(tmp_path, text, words):
    path = csv(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_a_parquet_file_is_refused_by_the_same_rules(tmp_path):
    path = tmp_path / "w.parquet"
    pq.write_table(pa.table({"prompt_tokens": [1, 2, None], "output_tokens": [1, 1, 1]}), path)
    with pytest.raises(DataError, match=r"column 'prompt_tokens', row 2: nan: must be a whole number"):
        read_workload(path)
    pq.write_table(pa.table({"prompt_tokens": [[1]], "output_tokens": [1]}), path)
    with pytest.raises(DataError, match=r"column 'prompt_tokens': has type list.*; must be numbers"):
        read_workload(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_workload(tmp_path / "nowhere.csv")
    (tmp_path / "w.txt").write_text("x")
    with pytest.raises(InputError, match=r"must be a \.csv or \.parquet file"):
        read_workload(tmp_path / "w.txt")
    (tmp_path / "w.parquet").write_text("not parquet")
    with pytest.raises(DataError, match="not readable as parquet"):
        read_workload(tmp_path / "w.parquet")
    with pytest.raises(InputError, match="is written as"):
        write_workload(tmp_path / "w.csv", workload())


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_what_is_written_is_what_is_read(tmp_path_factory, data):
    count = data.draw(st.integers(1, 30))
    column = st.lists(st.integers(1, 10**6), min_size=count, max_size=count)
    times = st.lists(st.floats(0, 1e6), min_size=count, max_size=count)
    prompt = np.array(data.draw(column))
    full = data.draw(st.booleans())
    written = Workload(
        "w",
        {"notes": ["x"]},
        np.sort(data.draw(times)) if data.draw(st.booleans()) else None,
        prompt,
        np.array(data.draw(column)),
        prompt // 2 if full else None,
        np.arange(count) % 2 if full and count > 1 else None,
        ("a", "b") if full and count > 1 else (),
    )
    path = tmp_path_factory.mktemp("w") / "w.parquet"
    write_workload(path, written)
    read = read_workload(path)
    assert read.content_hash == written.content_hash
    assert (read.name, read.source["notes"]) == ("w", ["x"])
    first = path.read_bytes()
    write_workload(path, read)
    assert read_workload(path).content_hash == written.content_hash
    write_workload(path, written)
    assert path.read_bytes() == first


def test_the_hash_tells_any_change_of_content_but_not_of_name():
    base = workload()
    others = [workload(output=(1, 2, 3, 5)), workload(arrival=None), workload(arrival=(0, 1, 1, 4.6))]
    assert len({w.content_hash for w in [base, *others]}) == 4
    assert Workload("v", {}, *base._arrays()[:3]).content_hash == base.content_hash


def test_scale_rate_divides_times_and_nothing_else():
    scaled = workload().scale_rate(2)
    assert scaled.arrivals.tolist() == [0, 0.5, 0.5, 2.25]
    assert scaled.prompt_tokens_Q is not None
    assert describe(scaled)["rate_per_s"] == pytest.approx(2 * describe(workload())["rate_per_s"])
    for factor in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="must be a finite number above 0"):
            workload().scale_rate(factor)


def test_window_is_half_open_and_starts_anew():
    cut = workload().window(1.0, 4.5)
    assert cut.arrivals.tolist() == [0, 0]
    assert cut.prompt_tokens_Q.tolist() == [20, 30]
    for bounds in ((5, 9), (2, 3), (3, 3), (4, 1), (-1, 2)):
        with pytest.raises(InputError, match=r"no arrival in .* arrivals lie in 0\.\.4\.5 s"):
            workload().window(*bounds)


def test_head_keeps_the_first():
    assert workload().head(2).prompt_tokens_Q.tolist() == [10, 20]
    assert len(workload().head(99)) == 4
    with pytest.raises(InputError, match="at least 1"):
        workload().head(0)


def _stats():
    return {row["trace"]: row for row in json.loads((REAL / "stats.json").read_text())}


@real
@pytest.mark.parametrize(
    "name", ["azure2023_conv", "azure2023_code", "mooncake_conversation", "mooncake_synthetic"]
)
def test_real_traces_read_as_they_are_and_have_their_published_figures(name):
    w, known = read_workload(REAL / f"{name}.parquet"), _stats()[name]
    got = describe(w)
    assert len(w) == known["rows"]
    assert got["span_s"] == pytest.approx(known["span_s"], abs=0.06)
    assert got["rate_per_s"] == pytest.approx(known["rate_rps"], abs=6e-5)
    assert got["cv_gaps"] == pytest.approx(known["cv_interarrival"], abs=6e-4)
    for column in ("prompt_tokens", "output_tokens"):
        for key in ("mean", "p10", "p50", "p90", "p99"):
            assert got[column][key] == pytest.approx(known[column][key], abs=0.6)
    assert "licence" in w.source


@real
def test_real_lengths_without_arrivals():
    w = read_workload(REAL / "vidur_arxiv_summ_lengths.parquet")
    assert (len(w), w.arrival_s_Q) == (28257, None)
    assert describe(w)["prompt_tokens"]["mean"] == pytest.approx(2588, abs=0.5)


@real
def test_a_file_that_is_no_request_table_says_what_one_has():
    with pytest.raises(DataError, match=r"column 'prompt_tokens': missing.*a request table has the columns"):
        read_workload(REAL / "servegen_deepseek-r1_windows.parquet")
