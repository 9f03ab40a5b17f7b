"""The frame of the cases, their published numbers, D-Cut's rule, and the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.cli.app import dispatch
from dspark_sim.errors import InputError
from dspark_sim.policies.base import BatchView
from dspark_sim.policies.dcut import budgets, dcut
from dspark_sim.validation import cases, tables
from dspark_sim.validation.cases import CASES, CaseResult, Check, Line, Panel, Row, run_case
from dspark_sim.workload.traces import quantise

RESULT = CaseResult(
    name="made-up",
    title="A case of two rows",
    sources=["nowhere"],
    rows=[
        Row("speed", 100.0, 103.0, "tok/s", "predicted", (90.0, 110.0)),
        Row("ratio", 0.5, 0.45, "ratio", "fitted", points=True),
        Row("unmeasured", None, 2.0, "times", "predicted"),
    ],
    checks=[Check("error [%]", 3.0, 5.0), Check("gain", 2.0, 1.5, at_least=True)],
    panels=[
        Panel(
            "a",
            "x",
            "y",
            [
                Line("s", "full", np.arange(3.0), np.arange(3.0), band=(np.zeros(3), np.full(3, 4.0))),
                Line("m", "full", np.arange(3.0), np.ones(3), measured=True),
            ],
        )
    ],
    notes=["one note"],
    extra={"series": [{"tok_per_s_per_gpu": np.float64(1.0)}]},
)


def broken():
    return CaseResult(
        **{name: getattr(RESULT, name) for name in RESULT.__slots__} | {"checks": [Check("e", 2, 1)]}
    )


def test_errors_are_relative_or_in_points():
    assert [row.error for row in RESULT.rows] == [pytest.approx(3.0), pytest.approx(-0.05), None]


def test_tolerances_hold_both_ways():
    assert RESULT.passed
    assert not broken().passed
    assert not Check("gain", 1.0, 1.5, at_least=True).passed
    assert [check.rule for check in RESULT.checks] == ["at most 5", "at least 1.5"]


@pytest.mark.parametrize(
    ("value", "at_least", "known", "verdict"),
    [
        (9, False, 15, "ok"),
        (14, False, 15, "known miss"),
        (16, False, 15, "broken"),
        (14, False, None, "broken"),
        (12, True, 5, "ok"),
        (6, True, 5, "known miss"),
        (4, True, 5, "broken"),
    ],
)
def test_a_known_miss_may_not_widen(value, at_least, known, verdict):
    check = Check("error", value, 10, at_least=at_least, known=known)
    assert check.verdict == verdict
    assert check.passed == (verdict != "broken")


def test_an_unknown_case_is_named_with_the_nearest():
    with pytest.raises(InputError, match=r"no validation case 'figure6'.*figure5"):
        run_case("figure6")


@pytest.mark.parametrize("path", sorted(tables._FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_every_published_table_names_its_source(path):
    assert len(tables.source_of(path.stem)) > 30
    assert path.read_text().startswith("# source: ")
    rows = tables.read_rows(path.stem)
    assert rows
    assert all(None not in row and None not in row.values() for row in rows)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32))
def test_dcut_keeps_the_ratio_with_the_best_score(running, gamma, seed):
    random = np.random.default_rng(seed)
    survival = quantise(np.cumprod(random.random((running, gamma)), axis=1))
    step_s = random.uniform(1, 3, running * gamma + 1)
    view = BatchView(survival, survival, survival, step_s, gamma=gamma, lag=0)
    ordered = sorted(survival.ravel().tolist(), reverse=True)
    scores = {int(m): sum(ordered[: int(m)]) / step_s[int(m)] for m in budgets(running, gamma)}
    assert scores[int(dcut(view).sum())] == pytest.approx(max(scores.values()))


def test_dcut_budgets_round_up():
    assert budgets(4, 15).tolist() == [15, 30, 45, 60]
    assert budgets(1, 7).tolist() == [2, 4, 6, 7]


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(cases, "run_case", lambda name, seed=0: RESULT)


def test_the_command_prints_both_sides(made_up, capsys):
    assert dispatch(["validate", "paper"]) == 0
    text = capsys.readouterr().out
    assert "+3.0%" in text
    assert "103.0 (90 to 110)" in text
    assert "at least 1.5" in text


def test_the_command_writes_pictures_and_json(made_up, capsys, tmp_path):
    assert dispatch(["validate", "all", "--json", "--out", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [case["case"] for case in document["cases"]] == ["made-up"] * len(CASES)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"made-up.{kind}" for kind in ("json", "png", "svg")
    }
    one = json.loads((tmp_path / "made-up.json").read_text())
    assert one["series"] == [{"tok_per_s_per_gpu": 1.0}]
    assert one["rows"][0]["low"] == 90


def test_a_broken_tolerance_exits_1(monkeypatch, capsys):
    monkeypatch.setattr(cases, "run_case", lambda name, seed=0: broken())
    assert dispatch(["validate", "dcut"]) == 1
    assert "BROKEN" in capsys.readouterr().out


def test_a_known_miss_is_printed_with_its_number(monkeypatch, capsys):
    missed = replace(RESULT, checks=[Check("error [%]", 13.5, 12.0, known=14.0)])
    monkeypatch.setattr(cases, "run_case", lambda name, seed=0: missed)
    assert dispatch(["validate", "dcut"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "error [%] 13.5 at most 12 (known miss: 14) known miss" in words
    assert dispatch(["validate", "dcut", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["checks"][0]["verdict"] == "known miss"
    assert document["known_misses"] == ["error [%]"]
    assert dispatch(["validate", "all"]) == 0
    last = capsys.readouterr().out.split("known misses:\n")[1].splitlines()
    assert last == ["  made-up: error [%] 13.5, at most 12 (known miss: 14)"] * len(CASES)


def test_an_unknown_case_exits_2(capsys):
    assert dispatch(["validate", "papr"]) == 2
    assert "did you mean" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_keeps_its_tolerances(name):
    result = run_case(name)
    assert result.passed, [check for check in result.checks if not check.passed]


@pytest.mark.slow
def test_the_paper_case_has_the_promised_columns_and_repeats():
    first, second = run_case("paper").document(), run_case("paper").document()
    assert json.dumps(first) == json.dumps(second)
    keys = {"model", "policy", "concurrency", "tok_per_s_per_gpu", "tok_per_s_per_user"}
    assert all(keys | {"verification_budget", "low", "high"} <= row.keys() for row in first["series"])
    assert {row["policy"] for row in first["series"]} == {"mtp:k=1", "mtp:k=3", "mtp:k=5", "dspark-async"}
    promised = {"model", "sla", "throughput_gain_pct", "speedup_pct", "published"}
    assert all(promised <= row.keys() for row in first["anchors"])
