"""The Python door: a dozen names, light to import, frames with units, the same numbers as the commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dspark_sim as ds
from dspark_sim import api
from dspark_sim.errors import InputError

PACKAGE = Path(ds.__file__).parent
SMALL = {"concurrency": [1, 6], "output_tokens": 150}
#: Columns that count or name, or are shares of one.
BARE = {
    "policy",
    "drafter",
    "seed",
    "accept_rate",
    "steps",
    "output_tokens",
    "requests",
    "lossless",
    "feasible",
}
UNIT = re.compile(
    r"(_users|_per_s|_per_gpu|_per_user|_per_round|_ms|_pct|_steps|_mean|_median_tpot)(_low|_high)?$"
)


@pytest.fixture
def small(toy_trace):
    return ds.run(toy_trace, "h800", policies=["off", "static:k=2", "dspark-async"], seeds=2, **SMALL)


def test_the_public_names_are_those_of_the_api_and_of_the_stub():
    assert set(ds.__all__) - {"__version__"} == set(api.__all__)
    stub = (PACKAGE / "__init__.pyi").read_text()
    assert set(re.findall(r"import (\w+) as \1", stub)) == set(api.__all__)
    assert len([name for name in api.__all__ if name[0].islower()]) <= 14
    assert set(dir(ds)) == set(ds.__all__)


def test_no_public_name_is_that_of_a_module():
    """Importing a submodule sets an attribute of its name on the package, over a function of that name."""
    modules = {path.stem for path in PACKAGE.iterdir()}
    assert not modules & set(api.__all__)


def test_importing_it_is_light():
    script = "import sys, dspark_sim; print({'pandas', 'numpy', 'scipy', 'simpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_public_name_is_documented():
    for name in api.__all__:
        assert len(getattr(ds, name).__doc__ or "") > 60, name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sweeep'"):
        ds.sweeep  # noqa: B018


def test_every_column_names_its_unit(small, toy_trace):
    frames = [
        small.points,
        ds.frontier(small),
        ds.bound(toy_trace, "h800", concurrency=[2]),
        ds.best_setting(toy_trace, "h800", sla=20, max_users=2, seeds=1, output_tokens=60).ranking,
    ]
    for frame in frames:
        assert [name for name in frame.columns if name not in BARE and not UNIT.search(name)] == []


def test_points_are_those_of_the_command(command, small, toy_trace):
    done = command(
        "run", "--trace", toy_trace, "--hw", "h800", "--concurrency", "1,6", "--output-tokens", 150,
        "--seeds", 2, "--policy", "off", "--policy", "static:k=2", "--policy", "dspark-async", "--json",
    )  # fmt: skip
    rows = done.document["points"]
    assert [row["tok_per_s_per_gpu"] for row in rows] == small.points.tok_per_s_per_gpu.tolist()
    assert [row["accepted_len"] for row in rows] == small.points.accepted_len_tok_per_round.tolist()


def test_names_and_loaded_things_give_the_same_points(toy_trace):
    trace, profile = ds.load_trace(toy_trace), ds.load_hardware("h800", {"capture.limit": 16})
    held = ds.run(trace, profile, policies=["full"], **SMALL)
    named = ds.run(toy_trace, "h800", overrides={"capture.limit": 16}, policies=["full"], **SMALL)
    pd.testing.assert_frame_equal(held.points, named.points)
    assert held.about["trace"] == named.about["trace"]
    assert held.about["profile"]["sha256"] == named.about["profile"]["sha256"]
    other = ds.run(trace, "h800", policies=["full"], **SMALL)
    assert (other.points.step_ms != held.points.step_ms).any()


def test_two_loaded_traces_are_not_taken_for_one_another(toy_trace):
    whole = ds.load_trace(toy_trace)
    half = whole.take(np.arange(4))
    runs = [ds.run(trace, "h800", policies=["full"], believed="flat", **SMALL) for trace in (whole, half)]
    assert runs[0].about["trace"]["sha256"] != runs[1].about["trace"]["sha256"]
    assert not runs[0].points.equals(runs[1].points)


def test_what_was_computed_is_kept(toy_trace, tmp_path, monkeypatch):
    asked = {"policies": ["off"], "keep": tmp_path, **SMALL}
    first = ds.run(toy_trace, "h800", **asked)
    monkeypatch.setattr("dspark_sim.sweeps.running.simulate", None)
    pd.testing.assert_frame_equal(ds.run(toy_trace, "h800", **asked).points, first.points)


def test_a_run_is_written_and_read_again(small, tmp_path):
    small.write(tmp_path / "r")
    again = ds.read_run(tmp_path / "r")
    pd.testing.assert_frame_equal(again.points, small.points)
    assert "<table" in again._repr_html_()


def test_a_frontier_reads_intervals_and_what_is_not_reached(small):
    frame = ds.frontier(small, sla=[10, 1e6], baseline="static:k=2").set_index(
        ["sla_tok_per_s_per_user", "policy"]
    )
    there = frame.loc[(10.0, "off")]
    assert there.feasible
    assert there.tok_per_s_per_gpu_low <= there.tok_per_s_per_gpu <= there.tok_per_s_per_gpu_high
    assert frame.loc[(10.0, "static:k=2"), "vs_baseline_pct"] == 0
    beyond = frame.loc[(1e6, "off")]
    assert not beyond.feasible
    assert np.isnan(beyond.tok_per_s_per_gpu)


def test_policies_are_listed_with_specs_that_run():
    frame = ds.list_policies().set_index("policy")
    assert frame.loc["dspark-async", "lossless"] == "lossless-under-lag"
    assert frame.loc["static", "options"] == {"k": None}
    assert frame.example.str.len().min() > 0


def test_an_audit_finds_what_peeks():
    found = ds.audit_policy("dspark-async", lag=0, effort=0.2)
    assert found.verdict == "not-lossless"
    assert found.counterexample is not None
    assert ds.audit_policy("dspark", effort=0.1).verdict == "lossless"


def test_no_policy_passes_the_bound(small, toy_trace):
    limit = ds.bound(toy_trace, "h800", concurrency=6).bound_tok_per_s.item()
    assert small.points[small.points.concurrency_users == 6].tok_per_s.max() < limit


def test_the_best_setting_comes_in_words_and_as_a_frame(toy_trace):
    found = ds.best_setting(toy_trace, "h800", sla=20, max_users=4, seeds=1, output_tokens=100)
    assert str(found).startswith("For 20 tok/s/user: ")
    best = found.ranking.iloc[0]
    assert best.tok_per_s_per_user >= 20
    assert found.speculate == (best.policy != "off")
    assert f"more than {found.break_even_tok_per_round:.2f} tokens" in found.words


def test_pictures_are_figures(small):
    for figure in (ds.plot_frontier(small, sla=[50]), ds.plot_load(small), ds.plot_hardware("h800")):
        assert type(figure).__name__ == "Figure"
        assert figure.axes


def test_a_report_is_one_file(small, tmp_path):
    ds.write_report(small, tmp_path / "page.html", sla=[50])
    assert "Throughput against the speed of each user" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"policies": "off"}, "give a list of specs"),
        ({"policies": ["of"]}, "did you mean 'off'"),
        ({"concurrency": 0}, "concurrency=0: must be at least 1"),
        ({"concurrency": []}, "concurrency=0"),
        ({"seeds": 0}, "seeds=0"),
        ({"output_tokens": 0}, "output_tokens=0"),
        ({"drafter": "nobody"}, "nobody"),
        ({"overrides": {"capture.limitt": 3}}, "capture.limit"),
    ],
)
def test_bad_input_says_what_is_wrong(toy_trace, more, message):
    with pytest.raises(InputError, match=re.escape(message)):
        ds.run(toy_trace, "h800", **({"concurrency": 1, "output_tokens": 50} | more))


def test_bad_questions_say_what_is_wrong(small, toy_trace):
    with pytest.raises(InputError, match="not among the policies"):
        ds.frontier(small, baseline="full")
    with pytest.raises(InputError, match="sla=0"):
        ds.best_setting(toy_trace, "h800", sla=0)
    with pytest.raises(InputError, match="at least one result folder"):
        ds.read_run()
    with pytest.raises(InputError, match="load_hardware first"):
        ds.run(toy_trace, ds.load_hardware("h800"), overrides={"capture.limit": 16})
