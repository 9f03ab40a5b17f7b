"""Every rule on every committed trace and profile, the bound above them, and what was published of B300."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

from dspark_sim.bounds import bound
from dspark_sim.engine.simulator import simulate
from dspark_sim.errors import InputError
from dspark_sim.files import data_folder
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy, policies
from dspark_sim.results.metrics import tok_per_s
from dspark_sim.workload.trace_io import read_trace

TRACES = sorted(path.name for path in data_folder("traces").glob("*.parquet"))
PROFILES = sorted(path.stem for path in data_folder("hw_profiles").glob("*.yaml"))
LOADS = (1, 4, 16, 64, 256)
#: The strongest, and those that stand nearest to the bound where speculation does not pay.
STRONG = ("off", "static:k=1", "full", "dspark-async", "vllm-adaptive", "draft-length", "draft-skip")

read, profile_of = cache(read_trace), cache(load_profile)


def speed(trace, profile, spec, load, **settings: float):
    texts = read(trace) if isinstance(trace, str) else trace
    run = simulate(texts, profile_of(profile), parse_policy(spec), concurrency=load, seed=0, **settings)
    return tok_per_s(run)


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("trace", TRACES)
def test_every_rule_runs_in_every_cell(trace, profile):
    """A rule whose own kind of drafter the profile has no cost for is refused by name, and no other."""
    for info in policies():
        for load in LOADS:
            run = partial(
                speed, trace, profile, info.example, load, output_tokens=load, warmup_fraction=0
            )  # fmt: skip
            if info.draft_kind in ("none", None, *profile_of(profile).draft.kinds):
                assert run() > 0
            else:
                with pytest.raises(InputError, match="no draft cost for a 'mtp' drafter"):
                    run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("trace", TRACES)
def test_the_bound_is_above_every_policy_in_every_cell(trace, profile):
    """At one user some texts, each once, to the letter; at more a window, which may meet easier texts.

    Where a step costs the same whatever it verifies (the tables of gb10 and trtllm, in places), whole
    blocks reach the bound, and the window decides.
    """
    every_21st = np.arange(0, len(read(trace).request_id), 21)[:12]
    few, hw = read(trace).take(every_21st), profile_of(profile)
    limit = bound(few, hw, concurrency=1).tok_per_s
    for spec in STRONG:
        found = speed(few, profile, spec, 1, output_tokens=1, requests=len(few.request_id))
        assert found <= limit * (1 + 1e-12), (spec, 1)
    for load in LOADS[2::2]:
        limit = bound(read(trace), hw, concurrency=load).tok_per_s
        tokens = max(16_000, 40 * load)
        for spec in STRONG:
            assert speed(trace, profile, spec, load, output_tokens=tokens) < 1.01 * limit, (spec, load)


B300 = [name for name in PROFILES if name.startswith("b300")]


def test_there_is_a_profile_of_b300():
    assert B300


@pytest.mark.parametrize("profile", B300)
def test_full_blocks_collapse_past_the_capture_limit(profile):
    """As in the sweeps of vLLM's blog of 2026-08-14: whole blocks pay below the limit, k7 falls past it."""
    trace, limit = "qwen3-4b-chat.synth.parquet", profile_of(profile).capture_limit
    inside, past = limit // 8 // 2, limit // 8 * 2
    speeds = {
        (spec, load): speed(trace, profile, spec, load, output_tokens=15 * load)
        for spec in ("off", "full")
        for load in (inside, past)
    }
    assert speeds["full", inside] > 1.2 * speeds["off", inside]
    assert speeds["full", past] < 0.6 * speeds["off", past]


@pytest.mark.parametrize("profile", B300)
@pytest.mark.parametrize("load", [1, 16, 64, 128, 256])
def test_adaptive_is_within_three_percent_of_the_best_static_length(profile, load):
    tokens = max(6000, 25 * load)
    rules = ("off", *(f"static:k={k}" for k in range(1, 8)), "vllm-adaptive")
    found = {s: speed("qwen3-4b-chat.synth.parquet", profile, s, load, output_tokens=tokens) for s in rules}
    adaptive = found.pop("vllm-adaptive")
    assert adaptive > 0.97 * max(found.values()), found
