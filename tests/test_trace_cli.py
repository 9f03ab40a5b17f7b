"""The commands around traces, through the front door: what they print, write, refuse and return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_traces import small_trace

from dspark_sim.cli.app import dispatch
from dspark_sim.workload.acceptance import AcceptanceRecords, AcceptanceSummary, write_acceptance
from dspark_sim.workload.fitting import read_temperatures
from dspark_sim.workload.trace_io import read_trace, write_trace

SMALL = [
    "synth",
    "--accept",
    "dspark=0.8,0.7,0.6",
    "--requests",
    "60",
    "--output-tokens",
    "60",
    "--seed",
    "2",
]


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "toy.synth.parquet"
    assert dispatch([*SMALL, "--out", str(path)]) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    small = small_trace(requests=30, longest=50)
    small.meta["synthetic"] = False
    write_trace(tmp_path / "recorded.parquet", small)
    return tmp_path / "recorded.parquet"


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert dispatch([*words, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    document: dict[str, Any] = json.loads(captured.out)
    return document


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert dispatch(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dspark-sim: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_show_prints_every_drafter_domain_and_position(recorded: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["trace", "show", str(recorded)]) == 0
    text = capsys.readouterr().out
    assert "SYNTHETIC" not in text
    for part in (
        "toy, temperature 0.7",
        "random numbers for a test",
        "30 of 15 prompts",
        "dspark (dspark, gamma 3)",
    ):
        assert part in text
    assert "eagle (eagle, gamma 3): no confidence head" in text
    assert text.count("accepted length") == 6
    assert all(f"\n  {domain}: accepted length" in text for domain in ("chat", "math", "all"))


def test_show_says_loudly_what_is_synthetic(trace: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["trace", "show", str(trace)]) == 0
    assert capsys.readouterr().out.startswith("SYNTHETIC TRACE: acceptance drawn from a model")


def test_show_as_json_says_the_same_as_the_library(trace: Path, capsys: pytest.CaptureFixture[str]):
    document = run_json(capsys, "trace", "show", str(trace))
    assert (document["schema"], document["synthetic"]) == ("dspark-sim/trace/1", True)
    (drafter,) = document["drafters"]
    (domain,) = drafter["domains"]
    np.testing.assert_allclose(domain["conditional"], [0.8, 0.7, 0.6], atol=0.01)
    np.testing.assert_allclose(domain["survival"], [0.8, 0.56, 0.336], atol=0.02)
    assert document["content_hash"] == read_trace(trace).content_hash


def test_show_finds_shipped_traces_by_bare_name(capsys: pytest.CaptureFixture[str]):
    assert dispatch(["trace", "show", "qwen3-4b-chat.synth"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("SYNTHETIC")
    assert "eagle3" in text


def test_check_passes_good_files_and_fails_bad_ones(
    trace: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
):
    assert dispatch(["trace", "check", str(trace), str(recorded)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{trace}: ok, 60 requests",
        f"{recorded}: ok, 30 requests",
    ]
    trace.write_bytes(b"PAR1 nothing PAR1")
    assert dispatch(["trace", "check", str(trace), str(recorded)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{trace}: not a readable parquet file")
    assert lines[1].endswith("ok, 30 requests")
    assert dispatch(["trace", "check", str(trace), "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)["files"]
    assert verdict["requests"] is None
    assert verdict["error"] == lines[0]


def test_missing_and_broken_files_are_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    absent = str(tmp_path / "absent.parquet")
    for words in (["trace", "show", absent], ["calibrate", absent]):
        assert "no such file" in refused(capsys, *words)
    broken = tmp_path / "broken.parquet"
    broken.write_text("x")
    assert "not a readable parquet file" in refused(capsys, "trace", "show", str(broken))


def test_check_goes_on_past_a_file_that_is_not_there(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    broken = tmp_path / "broken.parquet"
    broken.write_text("x")
    assert dispatch(["trace", "check", "nowhere.parquet", str(broken), str(trace)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("nowhere.parquet: no such file")
    assert lines[1].startswith(f"{broken}: not a readable parquet file")
    assert lines[2] == f"{trace}: ok, 60 requests"


def test_calibrate_writes_the_trace_and_what_engines_read(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "fitted.parquet"
    assert dispatch(["calibrate", str(recorded), "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "ECE" in text
    before, after = (read_trace(path).drafter() for path in (recorded, out))
    np.testing.assert_array_equal(before.logits_NG(), after.logits_NG())
    assert (before.calibration.method, after.calibration.method) == ("identity", "sts")
    sidecar = tmp_path / "fitted.dspark.sts.json"
    assert read_temperatures(sidecar, 3).temperatures == after.calibration.temperatures
    assert dispatch(["trace", "show", str(out)]) == 0
    assert "calibrated by sts on" in capsys.readouterr().out


def test_a_single_prompt_has_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "one.parquet"
    write_trace(path, small_trace(requests=30, longest=50).take([0]))
    shown = run_json(capsys, "trace", "show", str(path))["drafters"][0]["domains"][0]
    assert shown["accepted_len_ci"] == [None, None]
    assert dispatch(["trace", "show", str(path)]) == 0
    assert "(one prompt, so no interval)" in capsys.readouterr().out


def test_a_calibration_of_few_rounds_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plenty = tmp_path / "plenty.parquet"
    write_trace(plenty, small_trace(requests=400, longest=50))
    few = tmp_path / "few.parquet"
    write_trace(few, small_trace(requests=6, longest=50))
    for path, warned in ((few, True), (plenty, False)):
        assert dispatch(["calibrate", str(path), "--out", str(tmp_path / f"{warned}.parquet")]) == 0
        assert ("visited anchors, which is little" in capsys.readouterr().err) == warned


def test_calibrate_takes_temperatures_from_a_file_and_can_write_in_place(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given = tmp_path / "given.json"
    given.write_text('{"sts_temperatures": [1.5, 1.25, 2]}')
    words = [
        "calibrate",
        str(recorded),
        "--temperatures",
        str(given),
        "--drafter",
        "dspark",
        "--out",
        str(recorded),
    ]
    assert "is there already; --force overwrites it" in refused(capsys, *words)
    assert read_trace(recorded).drafter().calibration.method == "identity"
    document = run_json(capsys, *words, "--force")
    assert document["schema"] == "dspark-sim/calibrate/1"
    assert document["drafters"][0]["temperatures"] == [1.5, 1.25, 2]
    assert read_trace(recorded).drafter().calibration.temperatures == (1.5, 1.25, 2.0)


def test_calibrate_lowers_the_error_of_a_head_that_is_too_sure(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sure = tmp_path / "sure.json"
    sure.write_text('{"sts_temperatures": [0.4, 0.4, 0.4]}')
    document = run_json(
        capsys, "calibrate", str(trace), "--temperatures", str(sure), "--out", str(tmp_path / "x.parquet")
    )
    worse = document["drafters"][0]["ece_after"]
    document = run_json(
        capsys, "calibrate", str(trace), "--method", "bias", "--out", str(tmp_path / "y.parquet")
    )
    assert max(document["drafters"][0]["ece_after"]) < min(worse)


def test_calibrate_refuses(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = ["--out", str(tmp_path / "no.parquet")]
    assert "did you mean 'dspark'" in refused(capsys, "calibrate", str(recorded), "--drafter", "dspar", *out)
    assert "has no column" in refused(capsys, "calibrate", str(recorded), "--drafter", "eagle", *out)
    assert "unknown calibration method" in refused(
        capsys, "calibrate", str(recorded), "--method", "magic", *out
    )
    assert not (tmp_path / "no.parquet").exists()


def test_synth_says_what_was_asked_and_what_came_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "toy.parquet"
    assert dispatch([*SMALL, "--accept", "mine:eagle=0.5,0.5", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("SYNTHETIC trace")
    assert "is there already; --force overwrites it" in refused(capsys, *SMALL, "--out", str(out))
    document = run_json(capsys, *SMALL, "--out", str(out), "--force")
    assert document["drafters"][0]["requested"] == [0.8, 0.7, 0.6]
    np.testing.assert_allclose(document["drafters"][0]["conditional"], [0.8, 0.7, 0.6], atol=0.01)
    assert read_trace(out).meta["made"] == "synthetic acceptance as given"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--like", "qwen"], "no published acceptance 'qwen'"),
        (["--like", "qwen3-4b-chat", "--accept", "dspark=0.5"], "--like, --accept: say one of them"),
        (["--accepted-len", "3", "--accept", "dspark=0.5"], "--accept, --accepted-len: say one of them"),
        (["--accepted-len", "9"], "accepted length 9: must lie in 1..8 at gamma 7"),
        (["--accepted-len", "3", "--kind", "dsparc"], "--kind dsparc: not one of dspark"),
        (["--from", "nowhere.parquet"], "nowhere.parquet"),
        (["--mode", "geometric", "--noise", "1"], "noise = 1.0: mode geometric"),
        (["--mode", "drifty"], "did you mean 'drift'?"),
        (["--ece", "much"], "--ece: expected numbers with commas"),
        (["--ece", "0.1,0.1", "--requests", "9"], "expected 1 or 7 numbers"),
        (["--mode", "geometric", "--auc", "0.8"], "a spread above 0"),
        (["--accept", "robot=0.5"], "expected NAME:KIND=c1,c2,..."),
        (["--accept", "dspark=high"], "--accept 'dspark=high': expected numbers with commas"),
        (["--accept", "dspark=1.5"], "numbers in 0.01..0.99"),
        (["--accept", "dspark.x=0.5"], "a drafter's name must be non-empty and hold no dot"),
        (["--requests", "0"], "requests = 0"),
        (["--noise", "-1"], "noise = -1.0"),
    ],
)
def test_synth_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str):
    out = tmp_path / "no.parquet"
    assert message in refused(capsys, "synth", *words, "--out", str(out))
    assert list(tmp_path.iterdir()) == []


def test_synth_in_another_mode_says_so_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "toy.parquet"
    words = ["synth", "--requests", "60", "--output-tokens", "60", "--accepted-len", "2.4", "--gamma", "3"]
    document = run_json(capsys, *words, "--mode", "minimum-variance", "--out", str(out))
    (row,) = document["drafters"]
    assert (row["drafter"], row["mode"]) == ("dspark", "minimum-variance")
    assert row["requested"] == pytest.approx([1.0, 0.4, 0.0])
    assert row["accepted_len_uncut"] == pytest.approx(2.4, rel=0.01)
    assert dispatch(["trace", "show", str(out)]) == 0
    text = capsys.readouterr().out
    assert "SYNTHETIC" in text
    assert "accepted length 2.4 as given, mode minimum-variance" in text


def test_synth_from_acceptance_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    records, out = tmp_path / "mine.parquet", tmp_path / "toy.parquet"
    summary = AcceptanceSummary(3, 900, 2.2, (0.7, 0.6, 0.5), None, "rates", ("blocks were trimmed",))
    write_acceptance(records, AcceptanceRecords("mine", {}, summary))
    assert dispatch(["synth", *SMALL[3:], "--from", str(records), "--kind", "eagle", "--out", str(out)]) == 0
    assert "blocks were trimmed" in capsys.readouterr().err
    trace = read_trace(out)
    assert trace.meta["made"] == "synthetic acceptance after the records mine, basis rates"
    assert trace.drafter("eagle").gamma == 3
    assert trace.meta["notes"]["requested_conditional_acceptance"]["eagle"] == [0.7, 0.6, 0.5]
