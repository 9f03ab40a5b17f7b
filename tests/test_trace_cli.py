"""The commands around traces, through the front door: what they print, write, refuse and return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_traces import small_trace

from dspark_sim.cli.app import dispatch
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
    for words in (["trace", "check", absent], ["trace", "show", absent], ["calibrate", absent]):
        assert "no such file" in refused(capsys, *words)
    broken = tmp_path / "broken.parquet"
    broken.write_text("x")
    assert "not a readable parquet file" in refused(capsys, "trace", "show", str(broken))


def test_calibrate_writes_the_trace_and_what_engines_read(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "fitted.parquet"
    assert dispatch(["calibrate", str(recorded), "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "ECE before" in text
    before, after = (read_trace(path).drafter() for path in (recorded, out))
    np.testing.assert_array_equal(before.logits_NG(), after.logits_NG())
    assert (before.calibration.method, after.calibration.method) == ("identity", "sts")
    sidecar = tmp_path / "fitted.dspark.sts.json"
    assert read_temperatures(sidecar, 3).temperatures == after.calibration.temperatures
    assert dispatch(["trace", "show", str(out)]) == 0
    assert "calibrated by sts on" in capsys.readouterr().out


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
    document = run_json(capsys, *words)
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
    document = run_json(capsys, *SMALL, "--out", str(out))
    assert document["drafters"][0]["requested"] == [0.8, 0.7, 0.6]
    np.testing.assert_allclose(document["drafters"][0]["conditional"], [0.8, 0.7, 0.6], atol=0.01)
    assert read_trace(out).meta["made"] == "synthetic acceptance as given"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--like", "qwen"], "no published acceptance 'qwen'"),
        (["--like", "qwen3-4b-chat", "--accept", "dspark=0.5"], "--like and --accept: say one of them"),
        (["--accept", "robot=0.5"], "expected NAME:KIND=c1,c2,..."),
        (["--accept", "dspark=high"], "expected numbers after '='"),
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
