"""`dspark-sim sweep` and `dspark-sim frontier`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from small_traces import small_trace

from dspark_sim.cli.app import dispatch
from dspark_sim.results.store import read_results
from dspark_sim.workload.trace_io import write_trace

HW = "h800.yaml"
SMALL = ("--hw", HW, "--output-tokens", 200, "--policy", "off", "--policy", "full", "--concurrency", "1,8,64")
FILES = {
    "details.jsonl",
    "evidence.json",
    "frontier.png",
    "frontier.svg",
    "load.png",
    "load.svg",
    "points",
    "points.parquet",
    "run.json",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trace and what a sweep over it leaves."""
    folder = tmp_path_factory.mktemp("sweep")
    write_trace(folder / "toy.parquet", small_trace(seed=3, requests=12, gamma=7, longest=40))
    arguments = [
        "sweep",
        "--trace",
        str(folder / "toy.parquet"),
        *map(str, SMALL),
        "--out",
        str(folder / "s"),
    ]
    assert dispatch(arguments) == 0
    return folder


@pytest.fixture
def toy_trace(made):
    """The trace of the sweep."""
    return str(made / "toy.parquet")


@pytest.fixture
def swept(made, tmp_path):
    """A copy of the result folder, `s` in the working directory."""
    shutil.copytree(made / "s", tmp_path / "s")
    return "s"


def test_a_sweep_leaves_a_folder_with_points_and_pictures(command, swept, tmp_path):
    assert set(os.listdir(tmp_path / swept)) == FILES
    assert len(os.listdir(tmp_path / swept / "points")) == 6


def test_a_repeated_sweep_computes_nothing_and_changes_no_byte(
    command, toy_trace, swept, tmp_path, monkeypatch
):
    def content() -> dict:
        return {path: path.read_bytes() for path in sorted((tmp_path / swept).rglob("*")) if path.is_file()}

    before = content()
    monkeypatch.setattr("dspark_sim.sweeps.running.simulate_task", lambda task: pytest.fail("computed again"))
    done = command("sweep", "--trace", toy_trace, *SMALL, "--out", swept)
    assert done.code == 0
    assert "6 of 6 points were there already" in done.err
    assert content() == before


def test_a_sweep_that_grows_computes_what_is_missing(command, toy_trace, swept):
    done = command("sweep", "--trace", toy_trace, *SMALL, "--policy", "static:k=2", "--out", swept, "--json")
    assert "6 of 9 points were there already" in done.err
    assert len(done.document["points"]) == 9


def test_a_sweep_of_another_grid_keeps_the_points_of_the_former(command, toy_trace, swept, tmp_path):
    """Whoever asks for other loads still has the old ones in points, table and pictures."""
    former = read_results(tmp_path / swept).points
    words = ("sweep", "--trace", toy_trace, *SMALL[:-1], "2,8", "--out", swept)
    done = command(*words)
    assert "2 of 4 points were there already" in done.err
    assert "4 points of former sweeps kept: 1, 64 users" in done.err
    now = read_results(tmp_path / swept)
    assert [(p["policy"], p["concurrency"]) for p in now.points] == [
        (policy, load) for policy in ("off", "full") for load in (1, 2, 8, 64)
    ]
    assert {repr(p) for p in former} <= {repr(p) for p in now.points}  # repr: NaN is not itself
    assert now.about["grid"]["concurrency"] == [1, 2, 8, 64]
    before = (tmp_path / swept / "points.parquet").read_bytes()
    assert command(*words).code == 0
    assert (tmp_path / swept / "points.parquet").read_bytes() == before
    assert "kept" not in command(*words, "--force").err
    assert [p["concurrency"] for p in read_results(tmp_path / swept).points] == [2, 8, 2, 8]


def test_other_seeds_and_policies_join_a_sweep(command, toy_trace, swept, tmp_path):
    more = ("--hw", HW, "--output-tokens", 200, "--policy", "static:k=2", "--concurrency", "8")
    done = command("sweep", "--trace", toy_trace, *more, "--seed", "5", "--out", swept)
    assert "6 points of former sweeps kept: full, off; 1, 64 users; seed 0" in done.err
    found = {(p["policy"], p["concurrency"], p["seed"]) for p in read_results(tmp_path / swept).points}
    olds = {(policy, load, 0) for policy in ("off", "full") for load in (1, 8, 64)}
    assert found == olds | {("static:k=2", 8, 5)}


def test_shares_of_prompts_of_another_count_are_not_mixed(command, toy_trace):
    words = ("sweep", "--trace", toy_trace, *SMALL, "--replicate", "prompts", "--out", "p", "--seeds")
    assert command(*words, "2").code == 0
    assert "differs in grid: seed" in command(*words, "3").error


def test_a_frontier_reads_the_folder_at_the_anchors(command, swept):
    done = command("frontier", swept, "--sla", "60,1e6", "--baseline", "off")
    assert done.code == 0
    assert "not met: fastest is" in done.out
    document = command("frontier", swept, "--sla", "60,1e6", "--baseline", "off", "--json").document
    assert document["schema"] == "dspark-sim/frontier/1"
    assert [row["policy"] for row in document["frontier"]] == ["off", "full"]
    assert [(row["sla"], row["feasible"]) for row in document["sla"]] == [
        (60.0, True),
        (60.0, True),
        (1e6, False),
        (1e6, False),
    ]
    assert all(row["tok_per_s_per_gpu"] is None for row in document["sla"][2:])


def test_without_anchors_two_are_chosen_inside_the_baselines_range(command, swept):
    document = command("frontier", swept, "--json").document
    anchors = sorted({row["sla"] for row in document["sla"]})
    off = next(row for row in document["frontier"] if row["policy"] == "off")
    assert len(anchors) == 2
    assert off["points"][0][0] < anchors[0] < anchors[1] < off["points"][-1][0]


def test_several_folders_are_read_together(command, toy_trace, swept):
    assert command("sweep", "--trace", toy_trace, *SMALL, "--policy", "mtp:k=1", "--out", "more").code == 0
    document = command("frontier", swept, "more", "--baseline", "mtp:k=1", "--json").document
    assert [row["policy"] for row in document["frontier"]] == ["off", "full", "mtp:k=1"]
    assert (
        command("sweep", "--trace", toy_trace, *SMALL, "--set", "host.constant_ms=9", "--out", "other").code
        == 0
    )
    assert "differ in profile" in command("frontier", swept, "other").error


def test_a_frontier_leaves_the_pictures_of_the_sweep_alone(command, swept):
    before = {path: path.stat().st_mtime_ns for path in Path(swept).glob("*.png")}
    assert before
    assert "wrote" not in command("frontier", swept, "--sla", "60").err
    assert {path: path.stat().st_mtime_ns for path in Path(swept).glob("*.png")} == before


def test_pictures_go_where_they_are_asked_for(command, swept, tmp_path):
    assert "wrote t/" in command("frontier", swept, "--out", "t").err
    assert set(os.listdir(tmp_path / "t")) == {"frontier.png", "frontier.svg", "load.png", "load.svg"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sla", "quick"], "--sla 'quick': not a number"),
        (["--sla", "0"], "must be a finite number of tok/s/user above 0"),
        (["--baseline", "mtp:k=1"], "--baseline mtp:k=1: not among the policies of this run: off, full"),
        (["--baseline", "ful"], "did you mean 'full'?"),
    ],
)
def test_bad_input_is_one_line_that_names_it(command, swept, arguments, message):
    assert message in command("frontier", swept, *arguments).error


def test_a_folder_that_is_not_there(command):
    assert "nowhere: no such result folder" in command("frontier", "nowhere").error


def test_a_sweep_that_cannot_write_says_so_first(command, toy_trace, tmp_path):
    (tmp_path / "file").write_text("")
    assert "--out file" in command("sweep", "--trace", toy_trace, *SMALL, "--out", "file").error


def test_one_policy_is_not_compared_with_itself_and_anchors_say_where_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = [
        "--trace",
        "chat",
        "--hw",
        "h800",
        "--concurrency",
        "2,64",
        "--output-tokens",
        "200",
        "--jobs",
        "1",
    ]
    for n, (more, tables, said) in enumerate(
        [
            (["--policy", "off"], 0, True),
            (["--policy", "off", "--policy", "mtp:k=1"], 1, True),
            (["--policy", "off", "--sla", "110"], 0, False),
        ]
    ):
        assert dispatch(["sweep", *words, *more, "--out", str(tmp_path / str(n))]) == 0
        out = capsys.readouterr().out
        assert out.count("Each user's best speed") == tables
        assert ("SLAs: a third and two thirds" in out) == said


@pytest.mark.parametrize("command", [["sensitivity", "noise", "--values", "0"], ["waterfall"]])
def test_pair_and_hardware_that_differ_say_so_within_the_width(
    capsys: pytest.CaptureFixture[str], command: list[str]
):
    words = ["--concurrency", "4", "--output-tokens", "100"]
    for trace, hw, differ in (("chat", "h800", True), ("qwen3-4b-chat.synth", "h800-qwen3-4b", False)):
        assert dispatch([*command, "--trace", trace, "--hw", hw, *words]) == 0
        out = capsys.readouterr().out
        assert ("The pair and the hardware differ" in out) == differ
        assert max(map(len, out.splitlines())) <= 100
