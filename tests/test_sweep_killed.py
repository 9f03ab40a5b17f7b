"""Sweeps that are killed, and sweeps at once: no finished point is lost or torn; the answer is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from dspark_sim.cli.sweep import KEPT
from dspark_sim.sweeps import running as module
from dspark_sim.sweeps.estimate import seconds
from dspark_sim.sweeps.running import PointStore, Setup, grid, sweep

HW = "h800.yaml"
ARMS = [("dspark", "off"), ("dspark", "full")]

_CHILD = """
import sys, time
from pathlib import Path
from dspark_sim.sweeps.running import PointStore, Setup, grid, sweep
trace, folder, pause_s = sys.argv[1:]
arms = [("dspark", "off"), ("dspark", "full")]
tasks = grid(Setup(trace, "h800.yaml", output_tokens=100), arms, [1, 2, 32], [0, 1])
sweep(tasks, store=PointStore(Path(folder)), on_point=lambda: time.sleep(float(pause_s)))
"""


@pytest.fixture
def tasks(toy_trace):
    """Those of the child."""
    return grid(Setup(toy_trace, HW, output_tokens=100), ARMS, [1, 2, 32], [0, 1])


def child(toy_trace, folder, pause_s: float) -> subprocess.Popen[bytes]:
    """Start the sweep in a process of its own, which pauses after every point."""
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(toy_trace), str(folder), str(pause_s)])


def test_a_sweep_that_is_killed_loses_no_finished_point(toy_trace, tasks, tmp_path, monkeypatch):
    process = child(toy_trace, tmp_path / "points", pause_s=30)
    while not list((tmp_path / "points").glob("*.json")):
        assert process.poll() is None, "the sweep ended before it was killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    store, computed, simulate = PointStore(tmp_path / "points"), [], module.simulate_task
    there = [task for task in tasks if store.get(task) is not None]
    assert len(there) == 1
    monkeypatch.setattr(module, "simulate_task", lambda task: computed.append(task) or simulate(task))
    resumed = sweep(tasks, store=store)
    assert sorted(map(repr, computed + there)) == sorted(map(repr, tasks)), (
        "only what was missing is computed"
    )
    assert repr(resumed) == repr(sweep(tasks))
    computed.clear()
    sweep(tasks, store=store)
    assert computed == []


def test_two_sweeps_into_one_folder_leave_whole_points(toy_trace, tasks, tmp_path):
    both = [child(toy_trace, tmp_path / "points", pause_s=0) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    kept = sorted((tmp_path / "points").iterdir())
    assert len(kept) == len(tasks), "no file of either sweep is left over"
    assert all(json.loads(path.read_text()) for path in kept)
    store = PointStore(tmp_path / "points")
    assert repr([store.get(task) for task in tasks]) == repr(sweep(tasks))


def test_a_half_written_point_of_a_killed_writer_is_not_taken_for_one(tasks, tmp_path):
    """What a writer leaves behind that dies before it renames: a hidden file of another name."""
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / ".0123.abcd.json").write_text('{"policy": "of')
    store = PointStore(tmp_path / "points")
    assert [store.get(task) for task in tasks] == [None] * len(tasks)


def test_a_folder_of_an_unfinished_sweep_is_called_one(toy_trace, command, tmp_path):
    words = ("sweep", "--trace", toy_trace, "--hw", HW, "--policy", "off", "--policy", "full",
             "--concurrency", "1,2", "--output-tokens", "100", "--out", "s")  # fmt: skip
    assert command(*words, "--json").code == 0
    for path in (tmp_path / "s").iterdir():
        if path.is_file():
            path.unlink()
    for read in (("report", "s"), ("frontier", "s")):
        assert "s: an unfinished sweep, 4 points; repeat the sweep to finish it" in command(*read).error
    (tmp_path / "empty").mkdir()
    assert "empty: not a result folder, points.parquet is missing" in command("report", "empty").error


def test_a_dry_run_counts_and_computes_nothing(toy_trace, command, tmp_path):
    words = ("sweep", "--trace", toy_trace, "--hw", HW, "--policy", "off", "--policy", "full",
             "--concurrency", "1,2", "--output-tokens", "100", "--out", tmp_path / "s")  # fmt: skip
    ran = command(*words, "--dry-run")
    assert ran.code == 0
    assert "4 points" in ran.out
    assert "0 there already, 4 to compute" in ran.out
    assert not (tmp_path / "s").exists()
    assert command(*words, "--json").code == 0
    assert "4 there already, 0 to compute" in command(*words, "--dry-run").out
    assert len(os.listdir(tmp_path / "s" / KEPT)) == 4


def test_an_estimate_grows_with_what_is_asked(tasks):
    few, many = seconds(tasks[:2]), seconds(tasks)
    assert 0 < few < many
