"""Steps that are written as they come: the same rows and figures, and nothing kept."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from worlds import random_profile, random_trace

from dspark_sim.engine import recorder
from dspark_sim.engine.serving import Serving
from dspark_sim.engine.simulator import serve
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results import step_file
from dspark_sim.results.serving import serving_figures
from dspark_sim.results.step_file import StepFile
from dspark_sim.workload.mix import demand_of_mix, make_mix


@pytest.fixture
def world():
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
        "serving": Serving("mixed:budget=64"),
    }


def test_figures_are_those_of_a_run_that_is_kept(world, tmp_path, monkeypatch):
    whole = serve(**world)
    monkeypatch.setattr(recorder, "_CHUNK_VALUES", 13 * 20)
    monkeypatch.setattr(step_file, "GROUP", 50)
    with StepFile(tmp_path / "steps.parquet") as steps:
        streamed = serve(**world, sink=steps)
    ours, theirs = steps.figures(streamed), serving_figures(whole)
    gaps, known = ours.pop("itl_ms"), theirs.pop("itl_ms")
    assert ours == theirs
    assert gaps["mean"] == pytest.approx(known["mean"], rel=1e-12)
    for name in step_file.QUANTILES:
        assert gaps[name] == pytest.approx(known[name], rel=1e-3)
    assert len(streamed.steps.step_s) == 0
    assert streamed.rounds == whole.rounds

    file = pq.ParquetFile(tmp_path / "steps.parquet")
    assert file.num_row_groups > 2
    table = file.read()
    for name in ("start_s", "step_s", "num_running", "batch_tokens", "prefill_tokens", "accepted_tokens"):
        np.testing.assert_array_equal(table[name].to_numpy(), getattr(whole.steps, name))


def test_a_run_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(RuntimeError, match="enough"), StepFile(tmp_path / "steps.parquet"):
        raise RuntimeError("enough")
    assert list(tmp_path.iterdir()) == []
