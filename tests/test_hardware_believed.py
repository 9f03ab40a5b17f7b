"""Believed cost: the conventions of engines, and what is said of a wrong table."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hardware_cases import small, small_profile, with_attention, with_serving

from dspark_sim.cli.app import dispatch
from dspark_sim.errors import InputError
from dspark_sim.hardware.believed import CONVENTIONS, Block, believe
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.doubts import doubts
from dspark_sim.hardware.profile import load_profile

B300, H800 = load_profile("b300-tp4-dsv4-flash"), load_profile("h800")
DSPARK = Block("dspark", 7)
SMALL = Block("dspark", 4)


def steps_ms(profile, requests, tokens, context=1024):
    return StepCost(profile, requests, tokens).step_s(tokens, requests, requests * context, 0.0, False) * 1e3


@pytest.mark.parametrize("spec", CONVENTIONS)
@pytest.mark.parametrize("true", [B300, H800, small_profile(), with_attention(), with_serving()])
def test_every_convention_believes_something_of_every_profile(spec, true):
    block = Block("dspark", true.draft.dspark.gamma)
    cost = StepCost(believe(spec, true, block), 64, 512)
    step_s_M = cost.step_s_M(64, 64 * 500, 448, cost.draft_s("dspark", 64, block.gamma), True)
    assert (step_s_M > 0).all()
    assert np.isfinite(step_s_M).all()


# vLLM


def test_vllm_reads_its_measured_table_as_published():
    believed = believe("vllm", B300, DSPARK)
    # 121 tokens pay for 128; the dip at 176 is under the running maximum; a ramp, not a cliff; no host.
    assert steps_ms(believed, 1, 121) == pytest.approx(9.4663)
    assert steps_ms(believed, 1, 176) == pytest.approx(11.3904)
    assert steps_ms(believed, 1, 1280) == pytest.approx((20.634 + 104.489) / 2)
    assert steps_ms(believed, 1, 4096) == pytest.approx(133.4517)
    assert believed.draft == B300.draft


def test_vllm_freezes_the_context_and_knows_neither_host_nor_experts():
    true = with_serving()
    believed = believe("vllm", true, SMALL)
    assert steps_ms(believed, 4, 4, context=10) == steps_ms(believed, 4, 4, context=9000)
    assert steps_ms(believed, 1, 4) == pytest.approx(5.5 + 1.0)  # an additive part is of the table
    attended = believe("vllm:context=400", with_attention(), SMALL)
    # 4 tokens are one request of 5; 8 tokens two: attention of 4 and 7 ms at 400 tokens of context.
    assert steps_ms(attended, 4, 4) == pytest.approx(max(5.5, 5.25) + 4.0)
    assert steps_ms(attended, 4, 8) == pytest.approx(6.0 + 7.0)


# SGLang, TensorRT-LLM, ATOM, none


def test_sglang_floors_whole_steps():
    believed = believe("sglang", B300, DSPARK)
    draft_ms = StepCost(B300, 16, 1).draft_s("dspark", 15, 7) * 1e3
    assert steps_ms(believed, 9, 127) == pytest.approx(9.4663 + 0.74 + draft_ms)
    assert StepCost(believed, 8, 64).draft_s("dspark", 8, 7) == 0.0


def test_captured_graphs_are_additive_read_on_lines_and_without_host_time():
    believed = believe("sglang-captured", B300, DSPARK)
    draft_ms = StepCost(B300, 16, 1).draft_s("dspark", 16, 7) * 1e3
    assert steps_ms(believed, 16, 128) == pytest.approx(9.4278 + draft_ms, abs=1e-3)
    assert steps_ms(believed, 16, 188) == pytest.approx((10.5344 + 10.5128) / 2 + draft_ms)
    assert steps_ms(believed, 128, 1100) == steps_ms(believed, 128, 1024)  # clamped: no cliff
    with pytest.raises(InputError, match=r"'sglang-captured': h100-llama-3.1-8b captures no graphs"):
        believe("sglang-captured", replace(load_profile("h100-llama-3.1-8b"), capture=None), DSPARK)


@pytest.mark.parametrize("spec", ["trtllm", "sglang-additive"])
def test_additive_tables_do_not_see_the_cliff(spec):
    believed = believe(spec, B300, DSPARK)
    assert steps_ms(B300, 128, 1025) > 100
    assert steps_ms(believed, 128, 1025) < 30


def test_linear_neither_pads_nor_falls_off():
    believed = believe("linear", B300, DSPARK)
    assert steps_ms(believed, 1, 188) == pytest.approx((10.5344 + 10.5128) / 2 + 0.74)
    assert 0.7 < steps_ms(believed, 1, 1025) - steps_ms(believed, 1, 1024) + 0.74 < 1.0


def test_flat_verifies_everything():
    cost = StepCost(believe("flat", H800, DSPARK), 64, 512)
    assert np.ptp(cost.step_s_M(64, 64_000, 448, cost.draft_s("dspark", 64, 7), True)) == 0.0


def test_a_file_or_a_shipped_name():
    assert believe("h200-qwen3-8b", H800, DSPARK).name == "h200-qwen3-8b"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("vlm", r"vlm: no such file.*; conventions \(did you mean 'vllm'\?\): vllm, sglang"),
        ("vllm:ctx=3", r"believed cost 'vllm:ctx=3': no option 'ctx' \(did you mean 'context'\?\)"),
        ("vllm:context=0", r"context = 0: must be at least 1"),
        ("linear:context=3", r"no option 'context'; linear takes: no option"),
    ],
)
def test_bad_specs(spec, said):
    with pytest.raises(InputError, match=said):
        believe(spec, B300, DSPARK)


# Doubts


def test_the_truth_leaves_no_doubt():
    for true in (B300, H800):
        assert doubts(true, true, DSPARK, 128) == []


def test_a_flat_table_is_said_to_be_flat_and_nothing_else():
    (line,) = doubts(believe("flat", B300, DSPARK), B300, DSPARK, 256)
    assert line.startswith("flat: at 256 requests it rises by 0.0% from verifying nothing to everything")


def test_a_flat_truth_may_be_believed_flat():
    true = small_profile(verify__ms=[5.0] * 5, eager__ms=[5.0, 5.0])
    assert doubts(believe("flat", true, SMALL), true, SMALL, 4) == []


def test_stale_by_device_model_gpus_and_versions():
    true = replace(small_profile(), versions={"vllm": "0.24.0", "torch": "2.9"})
    other = replace(true, device="b", model="c", num_gpus=1, versions={"vllm": "0.23.1", "cuda": "13"})
    assert doubts(other, true, SMALL, 4) == [
        "stale: taken with device b, the run is on a device",
        "stale: taken with model c, the run is on a model",
        "stale: taken with num_gpus 1, the run is on 2",
        "stale: taken with vllm 0.23.1, the profile of the run with 0.24.0",
    ]


def test_unstated():
    unstated = replace(small_profile(), device="not stated")
    assert doubts(unstated, small_profile(), SMALL, 4) == [
        "unstated: the table does not say on what device or for what model it was taken"
    ]


def test_truncated_is_about_the_largest_batch_of_the_run():
    short = small_profile(eager={"overhead_ms": 4.0})
    assert doubts(short, short, SMALL, 3) == []
    (line,) = doubts(short, short, SMALL, 4)
    assert line == (
        "truncated: the table ends at 16 tokens, a full batch has 20; extrapolated by its last_octave beyond"
    )
    reaches = small_profile()
    assert doubts(reaches, reaches, SMALL, 12) == []
    (line,) = doubts(reaches, reaches, SMALL, 13)
    assert (
        line == "truncated: the table ends at 64 tokens, a full batch has 65; held at its last value beyond"
    )


def test_misshaped_names_the_place():
    # Believed twice as dear at 16 tokens as it is, in relation to verifying nothing.
    wrong = small_profile(verify__ms=[5.0, 5.5, 5.25, 6.0, 18.0])
    (line,) = doubts(wrong, small_profile(), SMALL, 3)
    assert line.startswith("mis-shaped: at 2 requests and 9 tokens a step is believed to cost 2.")


def test_a_scale_alone_is_not_a_shape():
    document = {"verify__ms": [10.0, 11.0, 10.5, 12.0, 18.0], "eager__ms": [200.0, 180.0]}
    doubled = small_profile(**document, host__constant_ms=1.4, host__per_request_ms=0.02,
                            draft__dspark__pass_ms=[2.0, 3.2, 4.0], draft__dspark__serial_ms=0.2,
                            draft__dspark__serial_ms_per_request=0.02)  # fmt: skip
    assert doubts(doubled, small_profile(), SMALL, 12) == []


def test_a_table_without_the_drafter_is_refused():
    document = small()
    del document["draft"]["dspark"], document["sources"]["draft.dspark"]
    from dspark_sim.hardware.reading import parse_profile

    with pytest.raises(InputError, match="no draft cost for a 'dspark' drafter"):
        doubts(parse_profile(document, "x.yaml"), small_profile(), SMALL, 4)


# The command


def test_run_with_a_believed_cost(capsys):
    words = [
        "run",
        "--trace",
        "qwen3-4b-chat.synth.parquet",
        "--hw",
        "b300-tp4-dsv4-flash",
        "--concurrency",
        "200",
    ]
    words += ["--output-tokens", "4000", "--policy", "full", "--policy", "dspark-async", "--json"]
    assert dispatch([*words, "--believed", "flat"]) == 0
    out, err = capsys.readouterr()
    assert "dspark-sim: --believed flat: flat: at 200 requests" in err
    document = json.loads(out)
    full, planned = document["points"]
    assert full["verify_len"] == 7
    assert planned["verify_len"] > 6.95  # all but tokens whose survival is nil
    assert document["about"]["believed"]["spec"] == "flat"
    assert any("Planners believe" in note for note in document["notes"])
    assert dispatch(words) == 0
    out, err = capsys.readouterr()
    assert "believed" not in err
    assert json.loads(out)["points"][1]["verify_len"] < 4


def test_a_point_is_kept_by_what_its_planner_believed(tmp_path):
    from dspark_sim.sweeps.running import PointStore, Setup, Task

    store = PointStore(tmp_path)
    tasks = [
        Task(Setup("qwen3-4b-chat.synth.parquet", "h800", believed=believed), "dspark", "dspark", 4, 0)
        for believed in (None, "vllm", "vllm:context=4096")
    ]
    assert len({store._path(task) for task in tasks}) == 3
