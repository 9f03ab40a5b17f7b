"""The shipped profiles: what they say, that they follow from their sources, and how they compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from dspark_sim.files import data_folder
from dspark_sim.hardware.cost import StepCost, verify_ms
from dspark_sim.hardware.dense_models import LLAMA31_8B, LLAMA31_70B, QWEN3_4B, QWEN3_8B, QWEN3_14B
from dspark_sim.hardware.library import RECIPES, composed_document
from dspark_sim.hardware.memory import kv_blocks
from dspark_sim.hardware.profile import load_profile
from dspark_sim.hardware.shipped import b300_document, engine_tables
from dspark_sim.hardware.tables import capture_sizes
from dspark_sim.hardware.units import odd_units

DATA = Path(__file__).parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "hardware").is_dir(), reason="the measured tables are not beside the project (../shared/data)"
)
SHIPPED = sorted(path.stem for path in data_folder("hw_profiles").glob("*.yaml"))
#: Tables of engines, which contain drafting.
WHOLE_STEPS = ("gb10x2-inkling", "trtllm-additive")
COMPOSED = [recipe.name for recipe in RECIPES]


def curve(profile, last: int) -> np.ndarray:
    return verify_ms(profile, last, capture_sizes(profile.capture, profile.verify.tokens))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_profile_loads_by_bare_name_and_costs_something(name):
    profile = load_profile(name)
    assert profile.name == name
    cost = StepCost(profile, 256, 2304)
    assert (curve(profile, 2304)[1:] > 0).all()
    for kind in profile.draft.kinds:
        few, many = cost.draft_s(kind, 1, 1), cost.draft_s(kind, 256, 7)
        assert few == many == 0 if name in WHOLE_STEPS else 0 < few < many


def test_h800_carries_the_118_measured_sizes_unsmoothed():
    profile = load_profile("h800")
    assert len(profile.verify.tokens) == 118
    assert profile.verify.tokens[0] == 1
    assert profile.verify.tokens[-1] == 1025
    assert sum(np.diff(profile.verify.ms) < 0) > 30
    # Tile steps of the GEMMs: one token more costs most of a millisecond.
    at = dict(zip(profile.verify.tokens, profile.verify.ms, strict=True))
    assert at[513] - at[512] == pytest.approx(0.7706)
    assert at[1025] - at[1024] == pytest.approx(1.1035)


def test_b300_falls_off_the_cliff_and_has_its_falls():
    verify = curve(load_profile("b300-tp4-dsv4-flash"), 2048)
    assert verify[1024] == pytest.approx(20.634)
    assert verify[1025] == verify[1536] == pytest.approx(104.489)
    assert verify[2048] == pytest.approx(103.6332)
    assert verify[121] == verify[128] == pytest.approx(9.4274)  # 121 tokens pay for 128
    assert verify[168] > verify[176]
    assert verify[480] > verify[512]
    assert verify[672] > verify[688]


def test_b300_as_vllm_believes_it():
    """Its planner reads a running maximum, and a line from the limit to the first eager sample."""
    profile = load_profile("b300-tp4-dsv4-flash", {"verify.monotone": "true", "eager.below": "ramp"})
    believed = curve(profile, 16384)
    assert (np.diff(believed[1:]) >= 0).all()
    assert believed[176] == believed[240] == pytest.approx(11.3904)
    assert believed[1280] == pytest.approx((20.634 + 104.489) / 2)
    assert believed[2048] == pytest.approx(104.489)


def test_raising_the_capture_limit_takes_the_cliff_away():
    verify = curve(load_profile("b300-tp4-dsv4-flash", {"capture.limit": "4096"}), 4608)
    assert verify[2048] < 40
    assert verify[4096] < 60
    assert verify[4097] > 100


def test_the_pipeline_bubble_is_what_was_published():
    for name in (*COMPOSED, "b300-tp4-dsv4-flash"):
        assert load_profile(name).host.bubble_ms == 1.7


def test_llama_keeps_every_token_count_and_its_stairs():
    profile = load_profile("h100-llama-3.1-8b")
    assert profile.verify.tokens == tuple(range(1, 2049))
    at = dict(zip(profile.verify.tokens, profile.verify.ms, strict=True))
    # 832 tokens are dearer than 833: measured, and left alone.
    assert at[832] - at[833] == pytest.approx(2.99, abs=0.01)


def test_the_same_model_is_faster_where_memory_is():
    """Few tokens are bound by reading the weights: 4.8 against 3.35 TB/s."""
    for size in ("4b", "8b", "14b"):
        h100, h200 = (load_profile(f"{gpu}-qwen3-{size}").verify.ms[0] for gpu in ("h100", "h200"))
        assert 1.15 < h100 / h200 < 1.45


def test_kv_memory_is_what_is_left_beside_the_weights():
    profile = load_profile("h100-qwen3-8b")
    assert profile.kv is not None
    assert profile.kv.bytes_per_token == 2 * 36 * 8 * 128 * 2
    weights_gib = 8.19e9 * 2 / 2**30
    assert 0.9 * 81_559 / 1024 - weights_gib - profile.kv.memory_gib == pytest.approx(4.1, abs=0.2)
    blocks = kv_blocks(profile, drafting=False)
    fewer = kv_blocks(load_profile("h100-qwen3-8b", {"capture.limit": "64"}), drafting=False)
    assert blocks is not None
    assert 350_000 < blocks * 16 < 400_000
    assert fewer > blocks


def test_weights_and_flops_of_the_models():
    assert QWEN3_4B.parameters == pytest.approx(4.02e9, rel=2e-3)
    assert QWEN3_8B.parameters == pytest.approx(8.19e9, rel=2e-3)
    assert QWEN3_14B.parameters == pytest.approx(14.77e9, rel=2e-3)
    assert LLAMA31_8B.parameters == pytest.approx(8.03e9, rel=2e-3)
    assert LLAMA31_70B.parameters == pytest.approx(70.55e9, rel=2e-3)
    assert QWEN3_8B.attention_flops_per_pair == 4 * 36 * 4096


@needs_data
@pytest.mark.parametrize("recipe", RECIPES, ids=COMPOSED)
def test_committed_profile_is_what_its_sources_give(recipe):
    committed = yaml.safe_load((data_folder("hw_profiles") / f"{recipe.name}.yaml").read_text())
    assert committed == composed_document(recipe, DATA / "hardware")


@needs_data
def test_committed_b300_is_what_its_sources_give():
    document = b300_document(DATA / "engines" / "vllm_dsv4flash_tp4_b300_cost.csv")
    assert yaml.safe_load((data_folder("hw_profiles") / "b300-tp4-dsv4-flash.yaml").read_text()) == document


@needs_data
def test_committed_engine_tables_are_what_was_published():
    for document in engine_tables(DATA / "hardware" / "published_sps_tables.json"):
        committed = (data_folder("hw_profiles") / f"{document['name']}.yaml").read_text()
        assert yaml.safe_load(committed) == document


@needs_data
def test_b300_with_running_maximum_is_the_engine_s_own_look_up_line():
    """The published figure also draws the line that vLLM reads; ours must lie on its treads."""
    import pandas as pd

    table = pd.read_csv(DATA / "engines" / "vllm_dsv4flash_tp4_b300_cost.csv")
    believed = curve(load_profile("b300-tp4-dsv4-flash", {"verify.monotone": "true"}), 1024)
    line = table[(table.curve == "verify") & (table.kind == "lookup_polyline") & (table["size"] <= 1024)]
    # At a riser the line has two points; the lower one ends the tread that the size belongs to.
    treads = line.groupby("size").ms.min()
    ours = believed[treads.index]
    assert np.abs(ours / treads.to_numpy() - 1).max() < 1e-3


@needs_data
def test_composed_costs_agree_with_independent_measurements():
    from dspark_sim.hardware.checks import comparisons

    worst: dict[str, float] = {}
    for c in comparisons(DATA / "hardware"):
        # One request of a few thousand tokens is bound by launches, which a captured graph does not pay.
        if not c.at.startswith("1 x"):
            worst[c.group] = max(worst.get(c.group, 0.0), abs(c.error_pct))
    bounds = {
        "attention, H800 FA3 kernel": 20,
        "1 GB of weights, H800 fp8 GEMM": 15,
        "GEMMs, LLMServingSim Llama-3.1-8B": 20,
        "GEMMs, LLMServingSim Llama-3.1-70B": 20,
        "verify, SGLang Qwen3-14B on H200": 3,
        "draft, SGLang Qwen3-14B on H200": 8,
    }
    assert worst.keys() == bounds.keys()
    assert all(worst[group] < bound for group, bound in bounds.items()), worst


@needs_data
def test_serial_loop_reproduces_figure_4():
    """DSpark minus DFlash per position at batch 128: 0.175 ms."""
    import pandas as pd

    figure = pd.read_csv(DATA / "paper" / "fig4.csv").query("metric == 'round_latency_ms'")
    by_gamma = figure.pivot_table(index="gamma", columns="drafter", values="value")
    per_position = np.polyfit(by_gamma.index, by_gamma["DSpark-markov"] - by_gamma["DFlash"], 1)[0]
    draft = load_profile("h800").draft.dspark
    assert draft is not None
    assert draft.serial_ms + 128 * draft.serial_ms_per_request == pytest.approx(per_position, abs=0.003)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_verify_table_in_seconds_is_seen_and_no_shipped_profile_is_taken_for_one(name):
    profile = load_profile(name)
    assert odd_units(profile) == ""
    in_s = replace(profile, verify=replace(profile.verify, ms=tuple(ms / 1e3 for ms in profile.verify.ms)))
    assert ("are these seconds?" in odd_units(in_s)) == (name not in WHOLE_STEPS)
