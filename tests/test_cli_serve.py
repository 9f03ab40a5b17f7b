"""``run`` under arriving requests: files written, tables, refusals."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

HW = "h800"


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "asked.csv"
    rows = [f"{0.1 * i},{20 + i},{5 + i % 4}" for i in range(12)]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return path


def test_a_workload_is_served_under_each_policy(command, toy_trace, workload, tmp_path):
    import pyarrow.parquet as pq

    out = tmp_path / "out"
    asked = ("run", "--trace", toy_trace, "--hw", HW, "--workload", workload, "--json")
    done = command(*asked, "--policy", "off", "--policy", "full", "--out", out)
    assert done.code == 0
    assert done.document["schema"] == "dspark-sim/serve/1"
    assert [run["policy"] for run in done.document["runs"]] == ["off", "full"]
    for run in done.document["runs"]:
        assert (run["requests"], run["refused"], run["output_tokens"]) == (12, 0, 6 * 12 + 6)
        table = pq.read_table(out / f"requests-{run['policy']}-seed0.parquet")
        assert table.column("prompt_tokens").to_pylist() == [20 + i for i in table["request"].to_pylist()]
        ttft_ms = 1e3 * (np.array(table["first_token_s"]) - np.array(table["arrival_s"]))
        assert run["ttft_ms"]["mean"] == pytest.approx(ttft_ms.mean())
    assert done.document["about"]["serving"]["prefill"] == "mixed"
    assert done.document["about"]["traffic"]["rate_scale"] == 1.0


def test_arrivals_by_spec_replicas_and_a_timeline(command, toy_trace, tmp_path):
    timeline = tmp_path / "t.json.gz"
    done = command(
        "run", "--trace", toy_trace, "--hw", HW, "--arrivals", "poisson:rate=20", "--requests", "30",
        "--policy", "full", "--replicas", "2", "--router", "least-loaded", "--prefill", "separate",
        "--timeline", timeline,
    )  # fmt: skip
    assert done.code == 0
    assert "poisson:rate=20" in done.out
    assert "TTFT" in done.out
    events = json.loads(gzip.decompress(timeline.read_bytes()))["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}


def test_a_closed_loop_draws_its_timeline_too_and_pays_for_prompts(command, toy_trace, tmp_path):
    timeline = tmp_path / "t.json.gz"
    asked = ("run", "--trace", toy_trace, "--hw", HW, "--policy", "full", "--json", "--output-tokens", "300")
    mixed = command(*asked, "--concurrency", "4", "--prefill", "mixed", "--timeline", timeline)
    plain = command(*asked, "--concurrency", "4")
    assert timeline.exists()
    speeds = [run.document["points"][0]["tok_per_s"] for run in (mixed, plain)]
    assert speeds[0] < speeds[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arrivals", "poisson:rate=1"], "say how many with --requests"),
        (["--rate-scale", "2"], "--rate-scale: is for arriving requests"),
        (["--mix", "a=1"], "--mix: is for arriving requests"),
        (["--arrivals", "poisson:rate=1", "--requests", "5", "--rate-scale", "0"], "--rate-scale 0"),
        (["--router", "best"], "unknown router 'best'"),
        (["--prefill", "mixed:budget=x"], "budget = x"),
        (["--timeline", "t.json.gz"], "--timeline draws one run, not 6"),
        (["--workload", "no.parquet"], "no.parquet"),
    ],
)
def test_bad_words_are_refused_in_one_line(command, toy_trace, words, message):
    done = command("run", "--trace", toy_trace, "--hw", HW, *words)
    assert done.code == 2
    assert message in done.error
    assert done.error.count("\n") <= 1


def test_rates_scale_and_unsorted_or_empty_tables_are_refused_with_the_row(
    command, toy_trace, workload, tmp_path
):
    asked = ("run", "--trace", toy_trace, "--hw", HW, "--policy", "off", "--json", "--workload")
    spans = [
        command(*asked, workload, "--rate-scale", scale).document["runs"][0]["makespan_s"]
        for scale in ("1", "0.5")
    ]
    assert spans[1] == pytest.approx(2 * spans[0], rel=0.1)
    for row, rule in (("0.05,3,3", "sorted"), ("2.0,nan,3", "prompt_tokens"), ("-1,3,3", "not negative")):
        bad = tmp_path / "bad.csv"
        bad.write_text(f"arrival_s,prompt_tokens,output_tokens\n0.1,3,3\n{row}\n")
        refused = command(*asked, bad)
        assert refused.code == 2
        assert rule in refused.error
        assert "row" in refused.error
