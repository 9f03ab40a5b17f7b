"""Request importers: samples, options, refusals, and the figures of the real traces."""

import json

import numpy as np
import pytest
from importer_cases import REAL, SAMPLES, real, sample, written

from dspark_sim.errors import DataError, InputError
from dspark_sim.workload.importers.registry import import_file, importers
from dspark_sim.workload.importers.sharegpt import conversations
from dspark_sim.workload.workloads import Workload, describe, read_workload, write_workload

REQUEST_SAMPLES = [
    ("azure2023", "azure2023.csv", 9),
    ("mooncake", "mooncake.jsonl", 10),
    ("burstgpt", "burstgpt.csv", 9),
    ("servegen:to_s=600", "servegen_windows.csv", 0),
    ("sharegpt", "sharegpt.json", 2),
]


@pytest.mark.parametrize(("spec", "name", "rows"), REQUEST_SAMPLES[:3] + REQUEST_SAMPLES[4:])
def test_every_sample_becomes_a_valid_request_table(tmp_path, spec, name, rows):
    workload = sample(spec, name)
    assert isinstance(workload, Workload)
    assert len(workload) == rows
    assert workload.source["importer"] == spec
    assert workload.source["file"] == name
    write_workload(tmp_path / "w.parquet", workload)
    assert read_workload(tmp_path / "w.parquet").content_hash == workload.content_hash


def test_every_request_format_has_a_sample():
    listed = {info.name for info in importers() if info.gives == "workload"}
    assert listed == {spec.partition(":")[0] for spec, _, _ in REQUEST_SAMPLES}


def test_azure_times_start_at_the_first_request_to_the_microsecond():
    w = sample("azure2023", "azure2023.csv")
    assert w.arrivals[:3] == pytest.approx([0.0, 4.314579, 4.541877], abs=1e-6)
    assert w.prompt_tokens_Q[:3].tolist() == [374, 396, 879]
    assert w.output_tokens_Q.min() == 14
    assert w.source["notes"] == ["dropped 1 of 10 requests without prompt or output tokens"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("yesterday,1,1", "column 'TIMESTAMP', row 1 (line 3): yesterday: not a date and time"),
        ("2023-11-16 18:15:46,-1,1", "column 'ContextTokens', row 1 (line 3)"),
        ("2023-11-16 18:15:46,1,x", "column 'GeneratedTokens', row 1 (line 3): x: not a number"),
    ],
)
def test_azure_refusals(tmp_path, row, words):
    path = tmp_path / "a.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,1,1\n{row}\n")
    with pytest.raises(DataError) as caught:
        import_file("azure2023", path)
    assert words in str(caught.value)


def test_azure_out_of_order_rows_are_sorted_and_noted(tmp_path):
    path = tmp_path / "a.csv"
    rows = ["2023-11-16 18:15:48,3,1", "2023-11-16 18:15:46,1,1", "2023-11-16 18:15:47,2,1"]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    w = import_file("azure2023", path)
    assert w.prompt_tokens_Q.tolist() == [1, 2, 3]
    assert w.arrivals.tolist() == [0, 1, 2]
    assert w.source["notes"] == ["sorted by arrival: 1 requests were logged out of order"]


@real
@pytest.mark.parametrize("name", ["azure2023_conv", "azure2023_code"])
def test_azure_files_give_the_real_traces_back(tmp_path, name):
    known = read_workload(REAL / f"{name}.parquet")
    start = np.datetime64(known.source["t0"], "ns")
    stamps = start + np.rint(known.arrivals * 1e9).astype("timedelta64[ns]")
    rows = zip(
        np.datetime_as_string(stamps).tolist(), known.prompt_tokens_Q, known.output_tokens_Q, strict=True
    )
    lines = [f"{stamp.replace('T', ' ')[:-2]},{prompt},{output}" for stamp, prompt, output in rows]
    path = tmp_path / "azure.csv"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
    w = import_file("azure2023", path)
    assert w.arrivals == pytest.approx(known.arrivals, abs=2e-6)
    assert (w.prompt_tokens_Q == known.prompt_tokens_Q).all()
    assert (w.output_tokens_Q == known.output_tokens_Q).all()


def test_mooncake_batches_are_spread_within_their_tick_and_prefixes_counted():
    w = sample("mooncake", "mooncake.jsonl")
    raw = sample("mooncake:spread_s=0", "mooncake.jsonl")
    assert raw.arrivals.tolist() == [0, 0, 0, 3, 3, 3, 3, 6, 12, 12]
    # Time starts at the first request, which itself moved within its tick.
    shift = w.arrivals - raw.arrivals
    assert (np.diff(w.arrivals) > 0).all()
    assert (np.abs(shift) < 3).all()
    assert w.cached_prefix_tokens_Q.tolist() == [0, 1024, 0, 1200, 0, 1536, 0, 512, 0, 512]
    assert (w.prompt_tokens_Q == raw.prompt_tokens_Q).all()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"timestamp": 1, "input_length": 2}, "line 2, key 'output_length': None: must be a whole number"),
        ({"timestamp": 1, "input_length": 2.5, "output_length": 1}, "key 'input_length': 2.5"),
        ({"timestamp": "x", "input_length": 2, "output_length": 1}, "'x': must be a finite number"),
        ({"timestamp": 1, "input_length": 2, "output_length": float("nan")}, "nan: must be a finite number"),
        (
            {"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": 7},
            "must be a list of block hashes",
        ),
        ([1], "must be a JSON object"),
    ],
)
def test_mooncake_refusals_name_the_line(tmp_path, line, words):
    good = {"timestamp": 0, "input_length": 2, "output_length": 1, "hash_ids": [1]}
    with pytest.raises(DataError) as caught:
        import_file("mooncake", written(tmp_path, "m.jsonl", good, line))
    assert words in str(caught.value)
    assert "line 2" in str(caught.value)


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 2, "output_length": 1}\n{"timestamp": 0,\n')
    with pytest.raises(DataError, match=r"line 2: not JSON"):
        import_file("mooncake", path)


@real
def test_mooncake_lines_give_the_real_trace_and_its_cached_prefixes(tmp_path):
    import pyarrow.parquet as pq

    path = REAL / "mooncake_conversation.parquet"
    known = read_workload(path)
    hashes = pq.read_table(path, columns=["hash_ids"])["hash_ids"].to_pylist()
    rows = zip(known.arrivals, known.prompt_tokens_Q, known.output_tokens_Q, hashes, strict=True)
    lines = [
        {"timestamp": round(t * 1000), "input_length": int(i), "output_length": int(o), "hash_ids": h}
        for t, i, o, h in rows
    ]
    imported = import_file("mooncake:spread_s=0", written(tmp_path, "m.jsonl", *lines))
    assert imported.content_hash == known.content_hash
    share = imported.cached_prefix_tokens_Q.sum() / imported.prompt_tokens_Q.sum()
    assert share == pytest.approx(0.37, abs=0.005)
    spread = describe(import_file("mooncake", path))
    assert spread["requests"] == 12031
    assert spread["cv_gaps"] == pytest.approx(1.01, abs=0.03)


def test_burstgpt_drops_failures_keeps_kinds_and_filters_models():
    w = sample("burstgpt", "burstgpt.csv")
    assert w.domains == ("API log", "Conversation log")
    assert w.domain_Q.tolist() == [1, 1, 1, 0, 1, 0, 0, 1, 1]
    assert w.arrivals.tolist() == [0, 40, 113, 180, 209, 381, 381, 397, 472]
    only = sample("burstgpt:model=GPT-4", "burstgpt.csv")
    assert only.output_tokens_Q.tolist() == [276, 33, 9]
    with pytest.raises(InputError, match=r"no call to model 'GPT4' \(did you mean 'GPT-4'\?\)"):
        sample("burstgpt:model=GPT4", "burstgpt.csv")


def test_sharegpt_takes_first_or_all_answers_by_words_or_by_a_tokenizer():
    assert sample("sharegpt", "sharegpt.json").prompt_tokens_Q.tolist() == [4, 9]
    every = sample("sharegpt:turns=all,tokens_per_word=1", "sharegpt.json")
    assert every.prompt_tokens_Q.tolist() == [3, 12, 7]
    assert every.output_tokens_Q.tolist() == [6, 3, 6]
    assert "not a tokenizer's count" in every.source["notes"][0]
    by_letters = conversations(SAMPLES / "sharegpt.json", len)
    assert by_letters.prompt_tokens_Q.tolist() == [
        len("one two three"),
        len("you are a lamp" + "shine on me"),
    ]
    assert by_letters.source["notes"][0] == "lengths by a tokenizer"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"text": "x"}, "no conversation: must have the key 'conversations' or 'messages'"),
        (
            {"messages": [{"role": "user"}]},
            "messages[0]: must be an object with the texts 'role' and 'content'",
        ),
        ({"messages": [{"role": "user", "content": "x"}]}, "no conversation has a question and an answer"),
    ],
)
def test_sharegpt_refusals(tmp_path, document, words):
    with pytest.raises(DataError) as caught:
        import_file("sharegpt", written(tmp_path, "s.json", document))
    assert words in str(caught.value)


def test_files_that_are_not_there_and_unknown_formats(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        import_file("azure2023", tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r"unknown format 'azure' \(did you mean 'azure2023'\?\)"):
        import_file("azure", SAMPLES / "azure2023.csv")
    (tmp_path / "m.jsonl").write_text(json.dumps({"timestamp": 0, "input_length": 5, "output_length": 0}))
    with pytest.raises(DataError, match="no request with a prompt and an output"):
        import_file("mooncake", tmp_path / "m.jsonl")
