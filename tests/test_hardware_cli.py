"""``dspark-sim hw``: list, show, check."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from hardware_cases import small

from dspark_sim.cli.app import dispatch
from dspark_sim.files import data_folder


@pytest.fixture
def write(tmp_path: Path):
    def _write(name: str, document: object) -> str:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return _write


def test_list_names_the_shipped_profiles(capsys):
    assert dispatch(["hw", "list"]) == 0
    out = capsys.readouterr().out
    assert "h800" in out
    assert "DeepSeek-V4-Flash-0731" in out


def test_list_as_json(capsys):
    assert dispatch(["hw", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "dspark-sim/hw-list/1"
    assert {"b300-tp4-dsv4-flash", "h800"} <= {profile["name"] for profile in document["profiles"]}


def test_show_prints_staircase_cliff_and_sources(capsys):
    assert dispatch(["hw", "show", "b300-tp4-dsv4-flash"]) == 0
    out = capsys.readouterr().out
    assert "20.63 ms there, 104.49 ms one token past it" in out
    assert "688 tokens 15.99 ms" in out
    assert "draft.mtp (derived)" in out


def test_show_as_json_is_one_document(capsys):
    assert dispatch(["hw", "show", "h800", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "dspark-sim/hw/1"
    at = {row["tokens"]: row for row in document["verify"]}
    assert at[512] == {"tokens": 512, "runs": 512, "ms": 11.04}
    assert at[513]["ms"] == pytest.approx(11.8106 + 4.0)
    assert document["draft"]["dspark"]["k"] == 7
    assert document["attention"]["ms"][0]["ms"] == pytest.approx(0.4901)


def test_show_says_what_serving_adds(capsys):
    assert dispatch(["hw", "show", "h100-qwen3-8b"]) == 0
    out = capsys.readouterr().out
    assert "KV: 376,688 tokens in 23,543 blocks" in out
    assert "captured graphs take 0.60 GiB" in out
    assert "prompts read the verify table; 1.18 ms per million pairs" in " ".join(out.split())
    assert dispatch(["hw", "show", "h100-qwen3-8b", "--set", "capture.limit=64", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kv"]["blocks"] > 23_543 > document["kv"]["blocks_drafting"]
    assert document["experts"] is None


def test_show_with_set(capsys):
    assert dispatch(["hw", "show", "h800", "--set", "capture.limit=256", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cliff"]["limit_tokens"] == 256


def test_show_of_a_profile_without_graphs_and_drafters(write, capsys):
    document = small(verify__lookup="linear", capture=None, eager=None, draft=None)
    for path in ("capture", "eager", "draft.dspark", "draft.mtp"):
        del document["sources"][path]
    assert dispatch(["hw", "show", write("plain.yaml", document)]) == 0
    out = capsys.readouterr().out
    assert "capture limit" not in out
    assert "By running requests" not in out


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_picture_is_the_same_bytes_every_time(tmp_path, suffix, capsys):
    pictures = [tmp_path / f"{i}{suffix}" for i in (1, 2)]
    for picture in pictures:
        assert dispatch(["hw", "show", "h800", "--out", str(picture)]) == 0
    first, second = (picture.read_bytes() for picture in pictures)
    assert first == second
    assert len(first) > 5000


def test_picture_of_a_measured_profile_has_its_samples(tmp_path, capsys):
    shipped = data_folder("hw_profiles")
    for name in ("cpu-2core-smollm2.yaml", "cpu-2core-smollm2.samples.parquet"):
        shutil.copy(shipped / name, tmp_path / name)
    mine, picture = str(tmp_path / "cpu-2core-smollm2.yaml"), tmp_path / "x.svg"
    assert dispatch(["hw", "show", mine, "--out", str(picture)]) == 0
    assert "single timings" in picture.read_text()
    samples = tmp_path / "cpu-2core-smollm2.samples.parquet"
    samples.write_text("no table")
    assert dispatch(["hw", "show", mine, "--out", str(picture)]) == 2
    assert f"{samples}: not the samples of a measurement" in capsys.readouterr().err
    samples.unlink()
    assert dispatch(["hw", "show", mine, "--out", str(picture)]) == 0
    assert "single timings" not in picture.read_text()


def test_picture_of_another_kind(capsys):
    assert dispatch(["hw", "show", "h800", "--out", "x.pdf"]) == 2
    assert capsys.readouterr().err == "dspark-sim: error: --out x.pdf: a picture ends in .png or .svg\n"


def test_check_passes_and_fails_by_file(write, capsys):
    good, bad = write("good.yaml", small()), write("bad.yaml", small(num_gpus=0, verify__lookupp="floor"))
    assert dispatch(["hw", "check", good]) == 0
    assert capsys.readouterr().out == f"{good}: ok\n"
    assert dispatch(["hw", "check", good, bad]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{good}: ok"
    assert len(lines) == 3
    assert all(line.startswith(f"{bad}: ") for line in lines[1:])


def test_check_goes_on_past_a_file_that_is_not_there(write, capsys):
    good, bad = write("good.yaml", small()), write("bad.yaml", small(num_gpus=0))
    assert dispatch(["hw", "check", "nowhere.yaml", bad, good]) == 2
    missing, broken, fine = capsys.readouterr().out.splitlines()
    assert missing.startswith("nowhere.yaml: no such file")
    assert broken.startswith(f"{bad}: num_gpus")
    assert fine == f"{good}: ok"


def test_check_warns_of_a_verify_table_in_seconds(tmp_path, capsys):
    text = (data_folder("hw_profiles") / "h800.yaml").read_text()
    document = yaml.safe_load(text)
    document["verify"]["ms"] = [ms / 1e3 for ms in document["verify"]["ms"]]
    path = tmp_path / "slip.yaml"
    path.write_text(yaml.safe_dump(document))
    assert dispatch(["hw", "check", str(path)]) == 0
    told = capsys.readouterr()
    assert told.out == f"{path}: ok\n"
    assert "verify 0.00587 to 0.0223 ms, and draft.dspark.pass_ms" in told.err
    assert "are these seconds?" in told.err


def test_check_as_json(write, capsys):
    bad = write("bad.yaml", small(num_gpus=0))
    assert dispatch(["hw", "check", bad, "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)["files"]
    assert verdict["ok"] is False
    assert verdict["problems"] == [f"{bad}: num_gpus: must be at least 1, got 0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "h8000"], "did you mean 'h800'?"),
        (["show", "h800", "--set", "capture.limt=4"], "did you mean 'capture.limit'?"),
        (["show", "h800", "--set", "capture.limit"], "expected path=value"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words, said, capsys):
    assert dispatch(["hw", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dspark-sim: error: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_export_and_import_do_not_overwrite_in_silence(tmp_path, capsys):
    table, profile = tmp_path / "sps.json", tmp_path / "mine.yaml"
    export = ["hw", "export", "h800", "--format", "sglang", "-o", str(table)]
    take = ["hw", "import", str(table), "-o", str(profile)]
    for words, file in ((export, table), (take, profile)):
        assert dispatch(words) == 0
        capsys.readouterr()
        before = file.read_bytes()
        assert dispatch(words) == 2
        assert (
            capsys.readouterr().err == f"dspark-sim: error: {file}: is there already; --force overwrites it\n"
        )
        assert file.read_bytes() == before
        assert dispatch([*words, "--force"]) == 0
