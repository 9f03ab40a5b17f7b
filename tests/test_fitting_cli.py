"""The commands fit and predict, on a benchmark small enough for a test; the numbers of the vLLM cases."""

from __future__ import annotations

import json
import math

import pytest

from dspark_sim.cli.app import dispatch
from dspark_sim.fitting.arms import parse_arms
from dspark_sim.fitting.predict import Predicted
from dspark_sim.measured import Measured, read_measured
from dspark_sim.validation.priors_vllm import UNKNOWNS
from dspark_sim.validation.tables import path_of
from dspark_sim.validation.vllm import FLASH, PRO, best_right, collapses

QUICK = [
    *("--set", "workload.requests=24", "--set", "workload.requests_at_one=6"),
    *("--set", "workload.max_output_tokens=60", "--set", "workload.output_tokens=50"),
]
HELD = [f"{u.name}={u.mode}:0" for u in UNKNOWNS["V4-Pro"] if u.name not in {"verify_scale", "first_odds"}]
FIT = [word for prior in HELD for word in ("--unknown", prior)]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "sweep.csv"
    rows = ["nospec,1,100,101.0", "nospec,4,320,85.0", "k7,1,263,270.5", "k7,4,700,190.0", "adaptive,4,720,"]
    path.write_text("arm,concurrency,output_tok_per_s,tok_per_s_per_user\n" + "\n".join(rows))
    return path


@pytest.fixture(scope="module")
def fitted(sweep, tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "fitted.yaml"
    words = ["fit", "--sweep", str(sweep), "--arms", "nospec,k7", "--out", str(path), *FIT, *QUICK]
    assert dispatch(words) == 0
    return path


def test_fit_writes_a_file_and_a_picture(fitted):
    assert fitted.with_suffix(".png").stat().st_size > 5000
    text = fitted.read_text()
    assert "dspark-sim/fitted/1" in text
    assert "sha256" in text


def test_predict_says_what_was_used(fitted, sweep, capsys):
    assert dispatch(["predict", "--hw", str(fitted), "--sweep", str(sweep), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["arm"], row["concurrency"], row["used"]) for row in rows] == [
        ("nospec", 1, True),
        ("nospec", 4, True),
        ("k7", 1, True),
        ("k7", 4, True),
        ("adaptive", 4, False),
    ]
    assert rows[4]["measured_tok_per_s_per_user"] is None
    assert all(row["predicted_tok_per_s"] > 0 for row in rows)


def test_one_thing_changed_is_another_system(fitted, sweep, capsys):
    words = ["predict", "--hw", str(fitted), "--sweep", str(sweep), "--json", "--draws", "3"]
    assert dispatch([*words, "--set", "capture.limit=16"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert changed["set"] == {"capture.limit": "16"}
    assert not any(row["used"] for row in changed["rows"])
    assert all(
        row["low_tok_per_s"] < row["predicted_tok_per_s"] < row["high_tok_per_s"] for row in changed["rows"]
    )
    k7 = changed["rows"][3]
    assert k7["predicted_tok_per_s"] < 0.6 * k7["measured_tok_per_s"]  # 32 tokens a step are eager now


def test_an_unknown_of_another_name_is_refused(fitted, sweep, tmp_path, capsys):
    changed = tmp_path / "fitted.yaml"
    changed.write_text(fitted.read_text().replace("host_constant_ms", "host_constnt_ms"))
    assert dispatch(["predict", "--hw", str(changed), "--sweep", str(sweep)]) == 2
    error = capsys.readouterr().err
    assert "fit.unknowns: no unknown 'host_constnt_ms' (did you mean 'host_constant_ms'?)" in error
    assert error.count("\n") == 1


def test_the_table_gives_both_sides(fitted, sweep, capsys):
    assert dispatch(["predict", "--hw", str(fitted), "--sweep", str(sweep)]) == 0
    out = capsys.readouterr().out
    assert "adaptive (predicted): tok/s" in out
    assert "nospec (fitted): tok/s" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "--sweep", "nowhere.csv", "--arms", "nospec", "--out", "x.yaml"], "no such file"),
        (["fit", "--sweep", "SWEEP", "--arms", "k8", "--out", "x.yaml"], "no such arm"),
        (["fit", "--sweep", "SWEEP", "--arms", "k7", "--experts", "6", "--out", "x.yaml"], "ACTIVE/TOTAL"),
        (["fit", "--sweep", "SWEEP", "--arms", "k7", "--arm", "k7", "--out", "x.yaml"], "NAME=POLICY"),
        (["predict", "--hw", "SWEEP", "--sweep", "SWEEP"], "format"),
        (["predict", "--hw", "nowhere.yaml", "--sweep", "SWEEP"], "dspark-sim fit writes one"),
        (["predict", "--hw", "h800", "--sweep", "SWEEP"], "h800: is a hardware profile, not a fitted system"),
        (["predict", "--hw", ".", "--sweep", "SWEEP"], ".: is a folder; name a file"),
    ],
)
def test_bad_input_is_one_line(words, message, sweep, capsys):
    assert dispatch([str(sweep) if word == "SWEEP" else word for word in words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


# The cases


def rows(simulated):
    return [
        Predicted(Measured(arm, load, measured, math.nan), found, math.nan)
        for arm, load, measured, found in simulated
    ]


ARMS = parse_arms(["nospec", "k3", "k7", "adaptive"], {})


def test_a_collapse_that_is_not_simulated_is_counted():
    falls = rows(
        [
            ("k7", 64, 100, 100),
            ("k7", 128, 80, 90),
            ("k7", 256, 60, 95),
            ("k3", 64, 100, 1),
            ("k3", 128, 98, 2),
        ]
    )
    assert collapses(falls, ARMS) == (1, 2)


def test_the_best_arm_is_sought_among_valid_ones():
    both = rows(
        [
            *[("nospec", 1, 50, 50), ("k3", 1, 200, 10), ("k7", 1, 100, 110), ("adaptive", 1, 99, 109)],
            *[("nospec", 2, 50, 120), ("k7", 2, 100, 110)],
        ]
    )
    assert best_right(both, ARMS) == 1


@pytest.mark.parametrize("case", [FLASH, PRO])
def test_the_cases_use_two_arms_and_hold_the_others(case):
    published = read_measured(path_of(case.data))
    assert {row.arm for row in published} > {"nospec", "k7", "adaptive"}
    assert case.frame().base.num_gpus == case.gpus
    assert case.frame().base.eager.lookup == "ceil"
    assert len({unknown.name for unknown in case.unknowns()}) == len(case.unknowns())
