"""The yardstick does the work that it is a yardstick of, and ratios are what they say."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from dspark_sim.engine.simulator import simulate
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.workload.trace_io import read_trace

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring import interleaved
from benchmarks.raw_loop import RawLoop
from benchmarks.tables import tables


@pytest.mark.parametrize(("rule", "spec"), [("static", "static:k=3"), ("dspark-async", "dspark-async")])
def test_the_raw_loop_replays_what_the_engine_replays(rule, spec):
    """Tokens a step and seconds a step agree; the raw loop starts elsewhere, so not to the last token."""
    trace, profile = read_trace("qwen3-4b-chat.synth"), load_profile("b300-tp4-dsv4-flash")
    raw = RawLoop(trace, profile, rule, 32)
    raw.run(300)
    tokens, clock_s, steps = raw.tokens, raw.clock_s, raw.steps
    raw.run(1500)
    ours = simulate(trace, profile, parse_policy(spec), concurrency=32, output_tokens=150_000, seed=0).steps
    assert (raw.tokens - tokens) / (raw.steps - steps) == pytest.approx(
        ours.committed_tokens.mean(), rel=0.04
    )
    assert (raw.clock_s - clock_s) / (raw.steps - steps) == pytest.approx(ours.step_s.mean(), rel=0.02)


def test_a_ratio_is_speed_over_speed_of_the_yardstick():
    def spin(seconds):
        until_s = time.thread_time() + seconds
        while time.thread_time() < until_s:
            pass
        return 10

    figures = interleaved({"raw": lambda: spin(0.01), "half": lambda: spin(0.02)}, "raw", rounds=3)
    assert figures["raw"]["ratio"] == 1.0
    assert figures["half"]["ratio"] == pytest.approx(0.5, rel=0.2)
    assert figures["half"]["ratio_low"] <= figures["half"]["ratio"] <= figures["half"]["ratio_high"]


def test_what_was_not_measured_is_not_shown():
    assert tables({}) == ""
