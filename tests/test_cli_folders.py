"""No former run is lost unasked."""

from __future__ import annotations

import pytest

SMALL = ("--hw", "h800", "--output-tokens", 60, "--concurrency", "2")


@pytest.fixture
def run(command, toy_trace, monkeypatch):
    """Run with some policies; pictures are somebody else's tests."""
    monkeypatch.setattr("dspark_sim.cli.answer.write_pictures", lambda *arguments: [])

    def call(name: str, *policies: str, more=()):
        chosen = [word for policy in policies for word in ("--policy", policy)]
        return command(name, "--trace", toy_trace, *SMALL, *chosen, *more)

    return call


def test_a_folder_that_holds_another_run_is_refused_and_stays(run, tmp_path):
    assert run("run", "off", more=("--out", "r")).code == 0
    before = (tmp_path / "r" / "points.parquet").read_bytes()
    error = run("run", "off", "full", more=("--out", "r")).error
    assert error == (
        "--out r: holds another run (differs in grid: policy): name another folder, or --force to replace it"
    )
    assert (tmp_path / "r" / "points.parquet").read_bytes() == before
    assert run("run", "off", "full", more=("--out", "r", "--force")).code == 0
    assert (tmp_path / "r" / "points.parquet").read_bytes() != before


def test_the_same_question_goes_where_it_went(run, tmp_path):
    for _ in range(2):
        assert run("run", "off", more=("--out", "r")).code == 0
        assert run("run", "off").code == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["toy-h800"]


def test_without_out_another_run_takes_the_next_free_name(run, tmp_path):
    for policies in (["off"], ["full"], ["off", "full"], ["full"]):
        done = run("run", *policies)
        assert done.code == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"toy-h800", "toy-h800-2", "toy-h800-3"}
    assert "wrote runs/toy-h800-2/" in done.err
    assert run("run", "dspark", more=("--force",)).code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_a_sweep_goes_on_in_its_folder_with_another_grid_but_not_another_set_up(run, tmp_path):
    assert run("sweep", "off", more=("--out", "s")).code == 0
    done = run("sweep", "full", "off", more=("--out", "s"))
    assert done.code == 0
    assert "1 of 2 points were there already" in done.err
    assert len(list((tmp_path / "s" / "points").iterdir())) == 2
    assert run("run", "off", more=("--out", "r")).code == 0
    assert "holds another run" in run("sweep", "full", more=("--out", "r")).error
    other = run("sweep", "off", more=("--out", "s", "--set", "capture.limit=64"))
    assert "differs in profile: overrides and sha256" in other.error


def test_files_that_are_no_run_are_not_mixed_with_one(run, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / ".keep").touch()
    assert run("run", "off", more=("--out", "docs", "--json")).code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "page.md").touch()
    error = run("run", "off", more=("--out", "mine")).error
    assert error == "--out mine: holds files that are no run: name another folder, or --force"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["page.md"]
    assert run("run", "off", more=("--out", "mine", "--force")).code == 0


def test_an_interrupted_sweep_is_a_run(run, tmp_path):
    (tmp_path / "s" / "points").mkdir(parents=True)
    assert run("sweep", "off", more=("--out", "s")).code == 0


def test_a_folder_that_cannot_be_read_is_not_overwritten(run, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "run.json").write_text("{")
    assert "an unreadable run.json" in run("run", "off", more=("--out", "r")).error


@pytest.mark.parametrize("name", ["off", "dspark-async"])
def test_a_new_policy_does_not_take_a_shipped_name(command, name, tmp_path):
    assert f"policy name '{name}': a shipped rule has it" in command("policy", "new", name).error
    assert list(tmp_path.glob("*.py")) == []
