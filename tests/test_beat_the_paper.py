"""``draft-length`` stands above ``dspark-async`` on prompts and profiles that it was not tuned on."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.workload.trace_io import read_trace


def gain(trace, profile, load, seed=0):
    """One cell of docs/beat-the-paper.md: prompts of the reporting half, both rules on the same requests."""
    part, hw = read_trace(trace).share_of_prompts(1, 2), load_profile(profile)
    dspark, ours = (
        tok_per_s(
            simulate(part, hw, parse_policy(spec), concurrency=load, output_tokens=100 * load, seed=seed)
        )
        for spec in ("dspark-async", "draft-length")
    )
    return ours / dspark - 1.0


def test_it_wins_by_more_than_was_asked_for():
    cells = [("math.parquet", "h200-qwen3-8b"), ("qwen3-4b-chat.synth.parquet", "b300-tp4-dsv4-flash")]
    gains = [gain(*cell, load) for cell in cells for load in (16, 64, 128)]
    assert np.mean(gains) > 0.03
    assert min(gains) > -0.02, "a single short run; the mean of eight is held to -1% in the docs"


@pytest.mark.parametrize("profile", ["gb10x2-inkling", "trtllm-additive"])
def test_where_drafting_is_in_the_table_it_ties(profile):
    assert gain("math.parquet", profile, 32) == pytest.approx(0.0, abs=0.02)
