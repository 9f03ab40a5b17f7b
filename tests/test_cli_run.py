"""`dspark-sim run` from the door to the files."""

from __future__ import annotations

import json
import os

import pytest
from small_traces import small_trace

from dspark_sim.schema import POINT_COLUMNS
from dspark_sim.workload.trace_io import write_trace

HW = "h800.yaml"
FILES = [
    "details.jsonl", "evidence.json", "frontier.png", "frontier.svg", "load.png", "load.svg",
    "points.parquet", "run.json",
]  # fmt: skip
QUICK = ("--hw", HW, "--output-tokens", 300)


def test_the_bare_command_compares_six_policies_at_one_load_and_draws(command, toy_trace, tmp_path):
    done = command("run", "--trace", toy_trace, "--hw", HW)
    assert done.code == 0
    rows = [line.split()[:2] for line in done.out.splitlines() if line.startswith("   64")]
    assert [row[1] for row in rows] == ["off", "mtp:k=1", "static:k=3", "full", "dspark", "dspark-async"]
    assert sorted(os.listdir(tmp_path / "runs" / "toy-h800")) == FILES
    assert "wrote runs/toy-h800/" in done.err


def test_the_table_says_what_must_be_known(command, toy_trace):
    words = " ".join(command("run", "--trace", toy_trace, *QUICK).out.split())
    assert "SYNTHETIC trace" in words
    assert "acceptance comes from toy, step cost from Qwen3-8B" in words
    assert "mtp: acceptance is that of the first k positions of the recorded block of dspark" in words


def test_json_is_one_document_with_the_schemas_keys_and_no_files(command, toy_trace, tmp_path):
    done = command("run", "--trace", toy_trace, *QUICK, "--json", "--concurrency", "4,1", "--seeds", 2)
    points = done.document["points"]
    assert done.document["schema"] == "dspark-sim/run/1"
    assert all(list(point) == list(POINT_COLUMNS) for point in points)
    assert [(p["policy"], p["concurrency"], p["seed"]) for p in points[:4]] == [
        ("off", 1, 0),
        ("off", 1, 1),
        ("off", 4, 0),
        ("off", 4, 1),
    ]
    assert points[0]["accept_rate"] is None
    assert {p["lossless"] for p in points} == {"lossless", "lossless-under-lag"}
    assert done.err == ""
    assert not (tmp_path / "runs").exists()


def test_the_same_seed_gives_the_same_bytes_of_every_file(command, toy_trace, tmp_path):
    for out in ("a", "b"):
        assert (
            command(
                "run", "--trace", toy_trace, *QUICK, "--concurrency", "2,8", "--seed", 7, "--out", out
            ).code
            == 0
        )
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_another_seed_gives_other_points(command, toy_trace):
    one, two = (
        command("run", "--trace", toy_trace, *QUICK, "--policy", "full", "--seed", seed, "--json").document[
            "points"
        ][0]
        for seed in (1, 2)
    )
    assert one["tok_per_s"] != two["tok_per_s"]


def test_specs_are_normalised_and_repeated_ones_run_once(command, toy_trace):
    specs = [word for spec in ("dspark-async:lag=2", "dspark-async", "off") for word in ("--policy", spec)]
    points = command("run", "--trace", toy_trace, *QUICK, *specs, "--json").document["points"]
    assert [p["policy"] for p in points] == ["dspark-async", "off"]


def test_lag_reaches_the_rules_that_have_one(command, toy_trace):
    specs = ("--policy", "dspark-async", "--policy", "off", "--lag", 1)
    points = command("run", "--trace", toy_trace, *QUICK, *specs, "--json").document["points"]
    assert [p["policy"] for p in points] == ["dspark-async:lag=1", "off"]


def test_set_reaches_the_profile_and_the_run(command, toy_trace):
    def tokens(*more: str) -> dict:
        return command("run", "--trace", toy_trace, *QUICK, "--policy", "full", *more, "--json").document[
            "points"
        ][0]

    plain = tokens()
    assert tokens("--set", "host.constant_ms=50")["step_ms"] > plain["step_ms"] + 40
    assert tokens("--set", "workload.max_output_tokens=4")["requests"] > 2 * plain["requests"]


def test_percentages_are_against_off_unless_said(command, toy_trace):
    assert "vs\n" not in command("run", "--trace", toy_trace, *QUICK).out
    header = command("run", "--trace", toy_trace, *QUICK, "--baseline", "mtp:k=1").out.splitlines()[3:5]
    assert "vs" in header[0].split()
    assert "mtp:k=1" in header[1].split()


def test_several_loads_are_read_at_the_anchors(command, toy_trace):
    done = command("run", "--trace", toy_trace, *QUICK, "--concurrency", "1,64", "--sla", "60,9999")
    assert "Best throughput at which each user still gets the SLA" in done.out
    assert "not met: fastest is" in done.out


def test_a_drafter_without_confidences_gets_the_policies_it_can_serve(command, toy_trace):
    done = command("run", "--trace", toy_trace, *QUICK, "--drafter", "eagle", "--json")
    assert [p["policy"] for p in done.document["points"]] == ["off", "mtp:k=1", "static:k=3", "full"]
    assert "dspark left out: drafter 'eagle' has no confidence head" in done.err


def test_a_profile_without_a_drafters_cost_gets_the_policies_it_can_charge(command, toy_trace):
    done = command(
        "run",
        "--trace",
        toy_trace,
        "--hw",
        "b300-tp4-dsv4-flash",
        "--output-tokens",
        300,
        "--drafter",
        "eagle",
        "--json",
    )
    assert [p["policy"] for p in done.document["points"]] == ["off", "mtp:k=1"]
    assert "full left out: b300-tp4-dsv4-flash has no cost of drafter kind eagle" in done.err


def test_a_short_block_gets_the_policies_that_fit(command, tmp_path):
    write_trace(tmp_path / "short.parquet", small_trace(gamma=2))
    done = command("run", "--trace", "short.parquet", *QUICK, "--json")
    assert "static:k=3" not in [p["policy"] for p in done.document["points"]]
    assert "static:k=3 left out: drafter 'dspark' drafts 2 tokens" in done.err


def test_several_drafters_are_compared_on_the_same_texts(command, toy_trace):
    drafters = ("--drafter", "dspark", "--drafter", "eagle")
    done = command("run", "--trace", toy_trace, *QUICK, *drafters, "--policy", "full", "--policy", "dspark")
    assert [line.split()[1:3] for line in done.out.splitlines() if line.startswith("   64")] == [
        ["full", "dspark"],
        ["dspark", "dspark"],
        ["full", "eagle"],
    ]
    assert "dspark left out: drafter 'eagle' has no confidence head" in done.err


def test_one_load_is_read_at_an_anchor_where_one_is_asked_for(command, toy_trace):
    assert "best" not in command("run", "--trace", toy_trace, *QUICK).out
    assert "highest load simulated" in command("run", "--trace", toy_trace, *QUICK, "--sla", "1").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--concurrency", "0"], "--concurrency 0: must be at least 1"),
        (["--concurrency", "-3"], "--concurrency -3: must be at least 1"),
        (["--concurrency", "many"], "--concurrency 'many': not a whole number"),
        (["--concurrency", "1,,2"], "--concurrency '1,,2': holds an empty entry"),
        (
            ["--policy", "mtp:k=99"],
            "drafter 'dspark' of trace 'toy', which stands in for one of kind mtp, drafts",
        ),
        (["--policy", "dspork"], "unknown policy 'dspork' (did you mean 'dspark'?)"),
        (["--policy", "static"], "policy 'static': 'k' is missing; static takes: k"),
        (["--policy", "static:k=9"], "7"),
        (["--drafter", "eagel"], "has no drafter 'eagel' (did you mean 'eagle'?)"),
        (["--drafter", "eagle", "--policy", "dspark"], "eagle"),
        (["--sla", "fast"], "--sla 'fast': not a number"),
        (["--baseline", "threshold:on=survival,at=0.4"], "not among the policies of this run: off, mtp:k=1"),
        (["--baseline", "nothing"], "unknown policy 'nothing'"),
        (["--output-tokens", "0"], "--output-tokens"),
        (["--set", "capture.limt=3"], "capture.limt"),
        (["--set", "workload.max_output=3"], "did you mean 'workload.max_output_tokens'?"),
        (["--set", "workload.max_output_tokens=1"], "must be a whole number of at least 2"),
        (["--set", "nonsense"], "--set 'nonsense': expected path=value"),
    ],
)
def test_bad_input_is_one_line_that_names_it(command, toy_trace, arguments, message):
    assert message in command("run", "--trace", toy_trace, "--hw", HW, *arguments).error


def test_missing_files_are_named_and_what_is_shipped_is_listed(command, toy_trace):
    assert "nothing.parquet: no such file" in command("run", "--trace", "nothing.parquet", "--hw", HW).error
    assert "did you mean 'h800'?" in command("run", "--trace", toy_trace, "--hw", "h880.yaml").error


def test_a_file_that_is_no_trace_is_refused(command, tmp_path):
    (tmp_path / "text.parquet").write_text("hello")
    assert "text.parquet" in command("run", "--trace", "text.parquet", "--hw", HW).error


def test_a_timeline_of_another_name_is_refused_before_the_work(command, toy_trace, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dspark_sim.sweeps.running.simulate_task", lambda task: pytest.fail("simulated first")
    )
    asked = ("run", "--trace", toy_trace, "--hw", HW, "--policy", "off", "--timeline", "t.txt", "--out", "r")
    assert "t.txt: a timeline is written as .json.gz" in command(*asked).error
    assert not (tmp_path / "r").exists()


def test_a_profile_whose_verify_table_looks_like_seconds_is_warned_of(command, toy_trace):
    words = ("run", "--trace", toy_trace, *QUICK, "--json")
    done = command(*words, "--set", "verify.tokens=1,8", "--set", "verify.ms=0.006,0.022")
    assert "verify 0.006 to 0.022 ms, and draft." in done.err
    assert "are these seconds?" in done.err
    assert "seconds?" not in command(*words).err


def test_output_that_cannot_be_written_is_found_before_the_work(command, toy_trace, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(
        "dspark_sim.sweeps.running.simulate_task", lambda task: pytest.fail("simulated first")
    )
    for out in ("file", "file/below"):
        assert (
            f"--out {out}: is or lies under a file"
            in command("run", "--trace", toy_trace, "--hw", HW, "--out", out).error
        )
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert (
        "--out here: folder is not writable"
        in command("run", "--trace", toy_trace, "--hw", HW, "--out", "here").error
    )


def test_the_run_document_names_content_and_neither_clock_nor_path(command, toy_trace, tmp_path):
    command("run", "--trace", toy_trace, *QUICK, "--out", "out", "--set", "capture.limit=256", "--seeds", 2)
    text = (tmp_path / "out" / "run.json").read_text()
    about = json.loads(text)
    assert about["schema"] == "dspark-sim/results/1"
    assert about["profile"]["overrides"] == {"capture.limit": "256"}
    assert about["grid"]["seed"] == [0, 1]
    assert len(about["trace"]["sha256"]) == len(about["profile"]["sha256"]) == 64
    assert str(tmp_path) not in text
