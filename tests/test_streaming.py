"""Records that are written as they come: the same rows and figures, nothing kept, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from worlds import random_profile, random_trace

from dspark_sim.engine import recorder
from dspark_sim.engine.fast import is_installed
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results import streaming
from dspark_sim.results.serving import Window, read_requests, serving_figures, write_requests
from dspark_sim.results.slo import parse_slos
from dspark_sim.results.streaming import RunFiles
from dspark_sim.workload.mix import demand_of_mix, make_mix


@pytest.fixture(params=[Serving("mixed:budget=64"), Serving("mixed:budget=64", replicas=2)], ids=["1", "2"])
def world(request):
    """A service of a few hundred steps, with prompts in them."""
    mix = make_mix([random_trace(3)])
    arrival_s = np.random.default_rng(0).exponential(0.05, 60).cumsum()
    return {
        "trace": mix.trace,
        "demand": demand_of_mix(mix, 60, 0, None),
        "arrival_s_Q": arrival_s,
        "profile": random_profile(3, 4),
        "policy": parse_policy("dspark-async"),
        "seed": 0,
        "serving": request.param,
    }


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "_CHUNK_VALUES", 13 * 20)
    monkeypatch.setattr(streaming, "GROUP", 50)
    return RunFiles(tmp_path / "steps.parquet", tmp_path / "requests.parquet")


def test_figures_are_those_of_a_run_that_is_kept(world, files, tmp_path):
    whole = serve(**world)
    with files:
        streamed = serve(**world, sink=files)
    asked = parse_slos(["tpot_p99=25ms", "ttft_p90=1s"]), Window.of(60, 0.25, 0.05)
    for words in ((), asked):
        ours, theirs = files.figures(streamed, *words), serving_figures(whole, *words)
        gaps, known = ours.pop("itl_ms"), theirs.pop("itl_ms")
        assert ours == theirs
        assert gaps["mean"] == pytest.approx(known["mean"], rel=1e-12)
        for name in streaming.QUANTILES:
            assert gaps[name] == pytest.approx(known[name], rel=1e-3)
    assert len(streamed.steps.step_s) == len(streamed.requests.request) == 0
    assert streamed.rounds == whole.rounds
    assert streamed.completed == whole.completed

    file = pq.ParquetFile(tmp_path / "steps.parquet")
    assert file.num_row_groups > 2
    table = file.read()
    for name in ("start_s", "step_s", "num_running", "batch_tokens", "prefill_tokens", "accepted_tokens"):
        np.testing.assert_array_equal(table[name].to_numpy(), getattr(whole.steps, name))
    write_requests(tmp_path / "whole.parquet", whole)
    assert pq.read_table(tmp_path / "requests.parquet").equals(pq.read_table(tmp_path / "whole.parquet"))
    read = read_requests(tmp_path / "requests.parquet")
    np.testing.assert_array_equal(read.start_s, whole.requests.start_s)
    assert {path.name for path in tmp_path.iterdir()} == {
        "steps.parquet", "requests.parquet", "whole.parquet"
    }  # fmt: skip


@pytest.mark.skipif(not is_installed(), reason="numba is not installed")
def test_the_compiled_step_streams_the_same_bytes(world, files, tmp_path):
    with files:
        run = serve(**world, sink=files)
    others = RunFiles(tmp_path / "steps-2.parquet", tmp_path / "requests-2.parquet")
    with others:
        compiled = serve(**world, sink=others, fast=True)
    assert files.figures(run) == others.figures(compiled)
    for name in ("steps", "requests"):
        assert (tmp_path / f"{name}.parquet").read_bytes() == (tmp_path / f"{name}-2.parquet").read_bytes()


def test_nobody_keeps_what_was_handed_on(world):
    """At no flush is there more than one chunk of steps, nor a request that has ended."""

    class Watching:
        def take_steps(self, table, gap_s):
            assert len(table) <= 20

        def take_requests(self, log):
            assert len(log.request)
            assert np.isfinite(log.end_s).all()
            seen.extend(log.request.tolist())

    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "_CHUNK_VALUES", 13 * 20)
        run = serve(**world, sink=Watching())
    assert sorted(seen) == list(range(60))
    assert not run.gaps.gap_s.size


def test_a_run_that_fails_leaves_its_finished_groups(world, files, tmp_path):
    class EnoughError(Exception):
        pass

    taken = files.take_requests

    def stop(log):
        taken(log)
        if files.steps > 120:
            raise EnoughError

    files.take_requests = stop
    with pytest.raises(EnoughError), files:
        serve(**world, sink=files)
    assert not (tmp_path / "steps.parquet").exists()
    left = sorted((tmp_path / "steps.parquet.parts").iterdir())
    assert [path.name for path in left] == [f"{i:06d}.parquet" for i in range(len(left))]
    assert sum(pq.read_table(path).num_rows for path in left) == files.steps // 50 * 50
    again = RunFiles(tmp_path / "steps.parquet", tmp_path / "requests.parquet")
    assert not (tmp_path / "steps.parquet.parts").exists(), "a new run begins anew"
    with again:
        serve(**world, sink=again)
    assert {path.name for path in tmp_path.iterdir()} == {"steps.parquet", "requests.parquet"}


def test_a_run_that_is_killed_leaves_readable_groups(toy_trace, tmp_path):
    """A kill -9 in mid-run: every finished group is a file of its own, and no file has the final name."""
    code = (
        "from dspark_sim.results import streaming; streaming.GROUP = 200\n"
        "from dspark_sim.engine import recorder; recorder._CHUNK_VALUES = 13 * 50\n"
        "from dspark_sim.cli.app import main; main()"
    )
    words = ["run", "--trace", str(toy_trace), "--hw", "h800-qwen3-4b", "--policy", "static:k=2", "--no-fast"]
    words += [
        "--arrivals",
        "poisson:rate=20",
        "--requests",
        "200000",
        "--stream",
        "--out",
        str(tmp_path / "r"),
    ]
    parts = tmp_path / "r" / "steps-static-k=2-seed0.parquet.parts"
    child = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(list(parts.glob("0*.parquet"))) < 3 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    _, said = child.communicate()
    groups = sorted(parts.glob("0*.parquet"))
    assert len(groups) >= 3, said.decode()
    starts = np.concatenate([pq.read_table(path)["start_s"].to_numpy() for path in groups])
    assert len(starts) == 200 * len(groups)
    assert (np.diff(starts) > 0).all()
    assert not (tmp_path / "r" / "steps-static-k=2-seed0.parquet").exists()
    assert not (tmp_path / "r" / "run.json").exists()


ASKED = (
    "--policy",
    "static:k=2",
    "--arrivals",
    "poisson:rate=20",
    "--requests",
    "40",
    "--slo",
    "ttft_p90=1s",
)


def test_the_command_streams_the_same_run(command, toy_trace, tmp_path):
    asked = ("run", "--trace", toy_trace, "--hw", "h800", *ASKED, "--json")
    kept = command(*asked, "--out", tmp_path / "kept").document
    streamed = command(*asked, "--out", tmp_path / "streamed", "--stream").document
    [ours], [theirs] = streamed["runs"], kept["runs"]
    gaps, known = ours.pop("itl_ms"), theirs.pop("itl_ms")
    assert streamed == kept
    assert gaps == pytest.approx(known, rel=1e-3)
    name = "requests-static-k=2-seed0.parquet"
    assert pq.read_table(tmp_path / "streamed" / name).equals(pq.read_table(tmp_path / "kept" / name))
    steps = pq.read_table(tmp_path / "streamed" / "steps-static-k=2-seed0.parquet")
    assert steps.num_rows == ours["steps"]
    assert not (tmp_path / "streamed" / "details.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((*ASKED, "--json"), "--stream: writes files"),
        ((*ASKED, "--timeline", "t.json.gz"), "--timeline: draws all steps"),
        (("--policy", "off"), "--stream: is for arriving requests"),
    ],
)
def test_what_cannot_be_streamed_is_refused(command, toy_trace, words, reason):
    done = command("run", "--trace", toy_trace, "--hw", "h800", "--stream", *words)
    assert done.code == 2
    assert reason in done.err
