"""The command import: what it prints, what it writes, how it refuses."""

import json

import pytest
from importer_cases import SAMPLES

from dspark_sim.cli.app import dispatch
from dspark_sim.workload.acceptance import read_acceptance
from dspark_sim.workload.importers.registry import importers
from dspark_sim.workload.workloads import read_workload


def test_list_shows_every_format_with_its_options(capsys):
    assert dispatch(["import", "--list"]) == 0
    text = capsys.readouterr().out
    for info in importers():
        assert info.name in text
    assert "spread_s=3" in text
    assert "gamma=..." in text


def test_list_as_json(capsys):
    assert dispatch(["import", "--list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    formats = {row["format"]: row for row in document["formats"]}
    assert formats["sglang-bench"]["options"] == {"gamma": None, "run": 0}
    assert formats["azure2023"]["gives"] == "workload"


def test_a_workload_is_written_and_described(tmp_path, capsys):
    out = tmp_path / "deep" / "w.parquet"
    assert dispatch(["import", "azure2023", str(SAMPLES / "azure2023.csv"), "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "requests  9" in text
    assert "dropped 1 of 10 requests" in text
    assert len(read_workload(out)) == 9


def test_acceptance_is_written_and_described(tmp_path, capsys):
    out = tmp_path / "a.parquet"
    arguments = ["import", "vllm", str(SAMPLES / "vllm_detailed.jsonl"), "--out", str(out), "--json"]
    assert dispatch(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["acceptance"]["conditional"] == pytest.approx([4 / 6, 2 / 3, 1.0])
    assert document["gives"] == "acceptance"
    assert read_acceptance(out).summary.rounds == 6
    assert dispatch([*arguments[:-1], "--force"]) == 0
    assert "accepted length 2.3333" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "import needs FORMAT, FILE and -o OUT.parquet"),
        (["azure2023", "x.csv"], "import needs FORMAT, FILE and -o OUT.parquet"),
        (["azure", "x.csv", "-o", "x.parquet"], "did you mean 'azure2023'?"),
        (["azure2023", str(SAMPLES), "-o", "x.parquet"], "is a folder; name a file"),
        (["azure2023", "nowhere.csv", "-o", "x.parquet"], "nowhere.csv: no such file"),
        (["azure2023:x=1", "x.csv", "-o", "x.parquet"], "no option 'x'; azure2023 takes: no option"),
        (["azure2023", str(SAMPLES / "azure2023.csv"), "-o", "x.csv"], "written as .parquet"),
    ],
)
def test_refusals_are_one_line_and_exit_2(arguments, words, capsys):
    assert dispatch(["import", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_import_does_not_overwrite_in_silence(tmp_path, capsys):
    out = tmp_path / "mine.parquet"
    out.write_text("precious")
    words = ["import", "azure2023", str(SAMPLES / "azure2023.csv"), "-o", str(out)]
    assert dispatch(words) == 2
    assert capsys.readouterr().err == f"dspark-sim: error: {out}: is there already; --force overwrites it\n"
    assert out.read_text() == "precious"
    assert dispatch([*words, "--force"]) == 0
    assert out.read_bytes() != b"precious"
