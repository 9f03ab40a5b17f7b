"""``run`` under arriving requests: files written, tables, refusals."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

HW = "h800"
POISSON = ("--arrivals", "poisson:rate=20", "--requests", "30")


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
    assert done.document["about"]["traffic"]["requests"] == 12
    assert done.document["about"]["grid"] == {
        "drafter": ["dspark"], "policy": ["off", "full"], "seed": [0], "rate_scale": [1.0]
    }  # fmt: skip


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
        (["--arrivals", "poisson:rate=1", "--requests", "5", "--timeline", "t.json.gz"], "one run, not 6"),
        (["--timeline", "t.txt", "--policy", "off"], "t.txt: a timeline is written as .json.gz"),
        ([*POISSON, "--timeline", "t.txt", "--policy", "off"], "t.txt: a timeline is written as .json.gz"),
        (["--arrivals", "poison:rate=2", "--output-tokens", "2000"], "did you mean 'poisson'"),
        (["--slo", "tpot_p99=25ms"], "--slo: is for arriving requests"),
        (["--warmup", "0.1"], "--warmup: is for arriving requests"),
        (["--requests", "5"], "--requests: is for arriving requests"),
        ([*POISSON, "--concurrency", "64"], "--concurrency: is for users in a loop"),
        ([*POISSON, "--output-tokens", "900"], "--output-tokens: is for users in a loop"),
        ([*POISSON, "--sla", "80"], "--sla: is for users in a loop, and requests arrive here; bound"),
        ([*POISSON, "--baseline", "off"], "--baseline: is for users in a loop"),
        ([*POISSON, "--rate-scale", "1,x"], "--rate-scale 'x': not a number"),
        ([*POISSON, "--warmup", "1"], "--warmup 1: must be a share"),
        ([*POISSON, "--slo", "tpot_p99=25"], "the time has no unit"),
        ([*POISSON, "--mix", "chat=1", "--replicate", "prompts", "--seeds", "2"], "cannot deal out a --mix"),
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


def test_replications_rates_and_objectives_go_into_a_folder(command, toy_trace, tmp_path):
    """Two rates, two seeds, two policies: eight rows, the same bytes whatever the number of processes."""
    import pyarrow.parquet as pq

    asked = ("run", "--trace", toy_trace, "--hw", HW, *POISSON, "--policy", "off", "--policy", "full",
             "--seeds", "2", "--rate-scale", "2,1",
             "--slo", "tpot_p99=25ms", "--slo", "e2e_p50=1ms")  # fmt: skip
    one = command(*asked, "--out", tmp_path / "one", "--jobs", "1")
    two = command(*asked, "--out", tmp_path / "two", "--jobs", "2", "--json")
    assert (one.code, two.code) == (0, 0)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(
        [f"requests-{policy}-x{scale}-seed{seed}.parquet"
         for policy in ("off", "full") for scale in (1, 2) for seed in (0, 1)]
        + ["details.jsonl", "points.parquet", "run.json"]
        + [f"{name}.{kind}" for name in ("latency", "attainment") for kind in ("png", "svg")]
    )  # fmt: skip
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    rows = pq.read_table(tmp_path / "one" / "points.parquet").to_pylist()
    assert [(row["rate_scale"], row["policy"], row["seed"]) for row in rows] == [
        (scale, policy, seed) for scale in (1.0, 2.0) for policy in ("off", "full") for seed in (0, 1)
    ]
    for row in rows:
        assert row["slo.e2e_p50.met"] is row["slos_met"] is False
        assert row["slo.tpot_p99.attainment"] == 1.0
        assert row["attainment"] == row["goodput_tok_per_s"] == 0.0
        assert row["measured"] == 30 - 8 - 2
    assert rows[0]["offered_per_s"] * 2 == pytest.approx(rows[4]["offered_per_s"])
    assert "missed" in one.out
    assert "±" in one.out
    assert "rests on the slowest 1" in one.out
    refused = command("frontier", tmp_path / "one")
    assert refused.code == 2
    assert "requests that arrived in time" in refused.error


def test_replications_can_be_shares_of_the_prompts(command, toy_trace):
    asked = ("run", "--trace", toy_trace, "--hw", HW, *POISSON, "--policy", "off", "--seeds", "2", "--json")
    whole, dealt = command(*asked).document, command(*asked, "--replicate", "prompts").document
    assert dealt["about"]["replications"] == "a share of the prompts each"
    assert [run["output_tokens"] for run in whole["runs"]] != [run["output_tokens"] for run in dealt["runs"]]


def test_a_rate_past_the_knee_is_said(command, toy_trace):
    """One slot, and twice as many arrivals as it serves: the queue grows throughout."""
    asked = ("run", "--trace", toy_trace, "--hw", HW, "--arrivals", "poisson:rate=1", "--requests", "400",
             "--policy", "off", "--set", "max_num_seqs=1", "--rate-scale")  # fmt: skip
    assert "Past the load knee: off at 1" in command(*asked, "15").out
    assert "load knee" not in command(*asked, "3").out


def test_tables_of_many_objectives_fit_a_terminal(command, toy_trace, tmp_path):
    asked = ("run", "--trace", toy_trace, "--hw", HW, *POISSON, "--policy", "off", "--policy",
             "threshold:on=survival,at=0.4", "--seeds", "2", "--rate-scale", "1,2")  # fmt: skip
    slos = [
        word
        for slo in ("tpot_p99=25ms", "ttft_p99=2s", "e2e_p99=9s", "queue_p90=1s")
        for word in ("--slo", slo)
    ]
    done = command(*asked, *slos, "--out", tmp_path / "out")
    assert max(map(len, done.out.splitlines())) <= 100
    assert "queue_p90" in done.out
