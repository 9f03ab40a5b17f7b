"""The offline studies: counts that agree with the replay, paired intervals, what is said to be missing."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_traces import small_trace

from dspark_sim.study.drafters import Pool, drafter_study
from dspark_sim.study.pool import trace_pool
from dspark_sim.study.subjects import NEEDS, STUDY_ANCHORS, Subject, choose
from dspark_sim.study.tally import figures, interval, joined, shared_prompts, tally_of_trace
from dspark_sim.study.traces import threshold_row, walk
from dspark_sim.workload.trace_io import write_trace
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import count, visited


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Texts of two domains with the drafters dspark (gamma 7, confidences) and a worse dflash."""
    made = small_trace(seed=7, requests=120, gamma=7, longest=40)
    spark = made.drafter("dspark")
    worse = np.maximum(made.drafter("eagle").accepted_N.astype(int) - 2, 0).astype(np.uint8)
    flash = replace(made.drafter("eagle"), name="dflash", kind="dflash", gamma=7, accepted_N=worse)
    meta = {
        "dspark": made.meta["drafters"]["dspark"] | {"layers": 2},
        "dflash": {"kind": "dflash", "gamma": 7, "layers": 2, "head": "none"},
    }
    return replace(made, meta=made.meta | {"drafters": meta}, drafters={"dspark": spark, "dflash": flash})


def test_a_tally_counts_what_the_replay_visits(trace: Trace):
    drafter = trace.drafter("dspark")
    counts = count(trace, drafter, visited(trace, drafter))
    tally, total = tally_of_trace(trace, "dspark"), counts.total()
    assert np.array_equal(tally.rounds_K, counts.rounds_K)
    assert np.array_equal(tally.committed_K, counts.committed_K)
    assert np.array_equal(tally.reached_KG, counts.reached_KG)
    assert np.array_equal(tally.accepted_KG, counts.survived_KG)
    length, conditional = tally.figures(np.ones((1, len(tally.prompts))))
    assert length[0] == pytest.approx(total.accepted_len)
    np.testing.assert_allclose(conditional[0], total.conditional_G)


def test_parts_of_a_trace_add_up(trace: Trace):
    halves = [trace.take(np.arange(0, 60)), trace.take(np.arange(60, 120))]
    whole, parts = tally_of_trace(trace, "dspark"), joined([tally_of_trace(h, "dspark") for h in halves])
    assert (whole.prompts, whole.domains) == (parts.prompts, parts.domains)
    assert np.array_equal(whole.reached_KG, parts.reached_KG)


def test_the_mean_is_over_domains_and_intervals_are_paired(trace: Trace):
    same = tally_of_trace(trace, "dspark")
    known = figures({"a": same, "b": same, "c": tally_of_trace(trace, "dflash")}, resamples=200)
    parts = [known["a"][domain].length for domain in ("math", "chat")]
    assert known["a"]["mean"].length == pytest.approx(np.mean(parts))
    gain_B = known["a"]["mean"].length_B / known["b"]["mean"].length_B
    assert interval(gain_B) == (1.0, 1.0), "the same drafter twice differs in no resample"
    low, high = interval(known["c"]["mean"].length_B)
    assert low < known["c"]["mean"].length < high


def test_drafters_are_compared_on_the_prompts_they_share(trace: Trace):
    tallies = {"a": tally_of_trace(trace, "dspark"), "b": tally_of_trace(trace.take(np.arange(40)), "dflash")}
    kept = shared_prompts(tallies)
    assert kept["a"].prompts == kept["b"].prompts == tallies["b"].prompts


# ---- thresholds


def slow_walk(trace: Trace, accepted: np.ndarray, verify: np.ndarray) -> tuple[int, int, int]:
    """The same, one round at a time."""
    rounds = hits = checked = 0
    for first, last in zip(trace.offset_Q1[:-1], trace.offset_Q1[1:] - 1, strict=True):
        at = int(first)
        while at < last and at + verify[at] < last:
            kept = min(int(accepted[at]), int(verify[at]))
            rounds, hits, checked = rounds + 1, hits + kept, checked + int(verify[at])
            at += kept + 1
    return rounds, hits, checked


def test_a_walk_is_the_replay_round_by_round(trace: Trace):
    random = np.random.default_rng(0)
    verify = random.integers(0, 8, len(trace.remaining_N))
    accepted = trace.drafter("dspark").accepted_N.astype(np.int64)
    assert walk(trace, accepted, verify) == slow_walk(trace, accepted, verify)


def test_thresholds_go_from_everything_to_nothing(trace: Trace):
    drafter = trace.drafter("dspark")
    everything, nothing = (threshold_row(trace, drafter, at) for at in (0.0, 1.1))
    assert everything["verified per round"] == 7
    assert (nothing["verified per round"], nothing["accepted length"], nothing["rate [%]"]) == (0, 1, 100)
    lengths = [threshold_row(trace, drafter, at)["verified per round"] for at in (0.0, 0.3, 0.6, 0.9)]
    assert lengths == sorted(lengths, reverse=True)


# ---- needs


def subject(name: str, kind: str, gamma: int, layers: int, anchors: int | None, head: str = "") -> Subject:
    return Subject(name, kind, gamma, layers, head, anchors, "folder")


def test_studies_of_equal_training_take_only_that():
    long = subject("long", "dspark", 7, 2, 360_000, "vanilla")
    short = subject("short", "dspark", 7, 2, STUDY_ANCHORS, "vanilla")
    rnn = subject("rnn", "dspark", 7, 2, 900_000, "rnn")
    need = NEEDS["length"][1]
    assert choose("length", [long, short, rnn])[0][need] is short
    assert choose("gains", [long, short, rnn])[0][NEEDS["gains"][0]] is long
    found, missing = choose("length", [long])
    assert not found
    assert [m.label for m in missing][:2] == ["dspark gamma 3, 2 layers", "dspark gamma 7, 2 layers"]


def test_length_and_depth_are_tables_of_what_is_there(trace: Trace):
    tally = tally_of_trace(trace, "dspark")
    subjects = [
        subject("g3", "dspark", 3, 2, STUDY_ANCHORS, "vanilla"),
        subject("g7", "dspark", 7, 2, STUDY_ANCHORS, "vanilla"),
        subject("l3", "dspark", 7, 3, STUDY_ANCHORS, "vanilla"),
        subject("f3", "dflash", 7, 3, STUDY_ANCHORS, "none"),
    ]
    short = replace(tally, reached_KG=tally.reached_KG[:, :3], accepted_KG=tally.accepted_KG[:, :3])
    tallies = {"g3": short, "g7": tally, "l3": tally, "f3": tally}
    times = {("dspark", g): (1.0 * g, 10.0) for g in (3, 7, 11)}
    pool = Pool(subjects, tallies, "made up", times, "a clock")
    length, depth = drafter_study("length", pool), drafter_study("depth", pool)
    assert {(r["drafter"], r["gamma"], r["domain"]) for r in length.rows if r["low"] is not None} == {
        ("dspark", g, d) for g in (3, 7) for d in ("math", "chat", "mean")
    }
    [eleven] = [r for r in length.rows if (r["drafter"], r["gamma"]) == ("dspark", 11)]
    assert (eleven["accepted length"], eleven["draft [ms]"], eleven["paper round [ms]"]) == (
        None,
        11,
        192.688,
    )
    assert [r["layers"] for r in depth.rows if r["domain"] == "mean"] == [2, 3, 3]
    assert depth.missing == ["dspark gamma 7, 1 layer"]
    assert any("150,000" in note for note in depth.notes)


def test_gains_are_of_dspark_over_the_other(trace: Trace):
    study = drafter_study("gains", trace_pool([trace]))
    [mean] = [r for r in study.rows if (r["domain"], r["drafter"]) == ("mean", "dflash")]
    spark = next(r for r in study.rows if (r["domain"], r["drafter"]) == ("mean", "dspark"))
    assert mean["dspark gains [%]"] == pytest.approx(
        100 * (spark["accepted length"] / mean["accepted length"] - 1)
    )
    assert mean["gain low"] < mean["dspark gains [%]"] < mean["gain high"]
    assert mean["paper gains [%]"] == "16 to 18"
    assert study.missing == ["mtp gamma 7"]


# ---- the command


@pytest.fixture
def recorded(trace: Trace, tmp_path: Path) -> str:
    path = tmp_path / "math.parquet"
    write_trace(path, replace(trace, name="math"))
    return str(path)


def test_the_command_writes_tables_pictures_and_one_document(command, recorded: str, tmp_path: Path):
    done = command("study", "--trace", recorded, "--out", "out")
    assert done.code == 0
    assert "in out: acceptance.csv, acceptance.md, acceptance.png, " in done.out
    assert "missing: mtp gamma 7" in done.out
    assert "missing: dspark gamma 3, 2 layers" in done.out
    out = tmp_path / "out"
    document = json.loads((out / "study.json").read_text())
    names = [study["study"] for study in document["studies"]]
    assert names == ["acceptance", "gains", "length", "depth", "threshold", "reliability", "confidence"]
    for name in ("acceptance", "gains", "threshold", "reliability", "confidence"):
        with (out / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) > 0
        assert (out / f"{name}.md").read_text().startswith("| ")
        assert (out / f"{name}.png").stat().st_size > 5000
        assert b"<svg" in (out / f"{name}.svg").read_bytes()
    assert max(map(len, done.out.splitlines()[:-1])) <= 100
    again = command("study", "gains", "--trace", recorded, "--out", "other", "--json")
    assert [s["study"] for s in again.document["studies"]] == ["gains"]
    assert (out / "gains.csv").read_bytes() == (tmp_path / "other" / "gains.csv").read_bytes()
    assert command("study", "threshold", "--trace", recorded, "--out", "other").code == 0
    both = json.loads((tmp_path / "other" / "study.json").read_text())["studies"]
    assert both == [document["studies"][names.index(name)] for name in ("gains", "threshold")]


def test_bad_input_is_one_line(command, recorded: str):
    wrong = command("study", "gain", "--out", "o", "--trace", recorded).error
    assert "no study 'gain' (did you mean 'gains'?)" in wrong
    asked = ("study", "gains", "--out", "o", "--trace", recorded, "--drafter", "x")
    assert "need --texts" in command(*asked).error


def test_a_trace_without_confidences_is_said(command, trace: Trace, tmp_path: Path):
    bare = {name: d for name, d in trace.meta["drafters"].items() if name == "dflash"}
    path = tmp_path / "bare.parquet"
    write_trace(
        path,
        replace(trace, meta=trace.meta | {"drafters": bare}, drafters={"dflash": trace.drafter("dflash")}),
    )
    done = command("study", "threshold", "confidence", "--trace", path, "--out", "out")
    assert done.code == 1
    assert done.out.count("missing: a trace of a DSpark drafter with confidences") == 2
    assert done.out.endswith("in out: study.json\n")
