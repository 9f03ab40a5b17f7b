"""Cost tables of engines: written and read back, and what each form keeps of a staircase."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hardware_cases import small_profile, with_attention
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.cli.app import dispatch
from dspark_sim.errors import DataError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.exchange import FORMATS, Described, choose_table, export_table, import_document
from dspark_sim.hardware.profile import load_profile
from dspark_sim.hardware.reading import parse_profile

#: Published: a deployment of 2 x GB10 (SGLang), and the table of TensorRT-LLM's planner test (ms).
GB10 = {
    "sample_batch_tokens": [8, 16, 32, 64, 96, 128],
    "sample_steps_per_sec": [10.280408, 7.814942, 5.422338, 3.799450, 3.095334, 2.527452],
    "max_batch_tokens": 128,
}
TRTLLM = {
    "fixed_overhead_ms": 25.244443,
    "batch_sizes": [32, 64, 128, 256],
    "batch_overhead_ms": [0.0, 2.177477, 11.462212, 19.342661],
    "token_counts": [64, 96, 128, 192, 384, 512, 768, 1536],
    "step_time_ms": [9.68, 11.08, 11.95, 13.95, 22.09, 23.85, 35.61, 105.64],
    "minimum_predicted_gain": 0.04,
}
SGLANG_ADDITIVE = {
    "bias_seconds": 0.025244443,
    "bs_probes": TRTLLM["batch_sizes"],
    "alpha_seconds": [0.0, 0.002177477, 0.011462212, 0.019342661],
    "m_probes": TRTLLM["token_counts"],
    "theta_seconds": [0.00968, 0.01108, 0.01195, 0.01395, 0.02209, 0.02385, 0.03561, 0.10564],
}
TABLES = {"sglang": GB10, "trtllm": TRTLLM, "sglang-additive": SGLANG_ADDITIVE}
PUBLISHED = Path(__file__).parents[2] / "shared" / "data" / "hardware" / "published_sps_tables.json"


def imported(table):
    described = Described("mine", "a device", "a model", 1, "a test")
    return parse_profile(import_document(table, described, "t.json"), "t.json")


@pytest.mark.parametrize("form", FORMATS)
def test_an_engine_s_table_comes_back_as_it_was(form):
    written = export_table(imported(TABLES[form]), form, kind="dspark", gamma=7, context_tokens=1024)
    assert written.keys() == TABLES[form].keys()
    for key, value in TABLES[form].items():
        assert written[key] == pytest.approx(value, rel=1e-11), key


def test_floor_table_is_read_by_floor_and_held_past_its_end():
    cost = StepCost(imported(GB10), 64, 512)
    for tokens, rate in [(8, 10.280408), (15, 10.280408), (16, 7.814942), (128, 2.527452), (512, 2.527452)]:
        assert 1 / cost.step_s(tokens, 4, 4000, 0.0, True) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("requests", "tokens", "expected"),
    [
        (32, 64, 25.244443 + 9.68),
        (48, 160, 25.244443 + 2.177477 / 2 + 12.95),
        (256, 1536, 25.244443 + 19.342661 + 105.64),
        (300, 4000, 25.244443 + 19.342661 + 105.64),
        (1, 1, 25.244443 + 9.68),
    ],
)
def test_additive_table_is_linear_and_clamped(requests, tokens, expected):
    for table in (TRTLLM, SGLANG_ADDITIVE):
        cost = StepCost(imported(table), 300, 4000)
        assert cost.step_s(tokens, requests, 0, 0.0, False) == pytest.approx(expected * 1e-3)


def test_drafting_is_in_the_table_whatever_the_drafter():
    cost = StepCost(imported(GB10), 8, 64)
    assert {cost.draft_s(kind, 8, 7) for kind in ("dspark", "dflash", "mtp", "eagle")} == {0.0}


@given(st.integers(1, 8), st.sampled_from([small_profile(), with_attention()]), st.data())
def test_additive_export_is_exact_at_its_probes(running, profile, data):
    """Bias, alpha and theta add up to the step wherever requests and tokens are both in the table."""
    table = export_table(profile, "trtllm", kind="mtp", gamma=4, context_tokens=150)
    there, back = StepCost(profile, 8, 64), StepCost(imported(table), 8, 64)
    requests = data.draw(st.sampled_from(table["batch_sizes"]))
    tokens = data.draw(st.sampled_from(table["token_counts"]))
    draft_s = there.draft_s("mtp", requests, 4)
    assert back.step_s(tokens, requests, 0, 0.0, False) == pytest.approx(
        there.step_s(tokens, requests, requests * 150, draft_s, False), rel=1e-9
    )


def test_what_each_form_makes_of_a_staircase():
    """The truth pays for 128 at 121 tokens; a floor table believes 120; an additive one lies between."""
    true = load_profile("b300-tp4-dsv4-flash")

    def believed(form):
        return StepCost(imported(export_table(true, form, kind="none", gamma=7, context_tokens=1)), 16, 1536)

    truth = StepCost(true, 16, 1536).step_s(185, 16, 0, 0.0, False)
    floor, additive = (believed(form).step_s(185, 16, 0, 0.0, False) for form in ("sglang", "trtllm"))
    at = dict(zip(true.verify.tokens, true.verify.ms, strict=True))
    assert truth == pytest.approx((at[192] + 0.74) * 1e-3)
    assert floor == pytest.approx((at[184] + 0.74) * 1e-3)
    assert additive == pytest.approx((at[184] + (at[192] - at[184]) / 8 + 0.74) * 1e-3)
    # Past the capture limit: a cliff in truth, a slope in an additive table.
    assert believed("trtllm").step_s(1280, 16, 0, 0.0, False) < 0.07


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="the published tables are not beside the project")
def test_the_published_file_is_what_is_written_here():
    document = json.loads(PUBLISHED.read_text())
    gb10 = imported(choose_table(document, "gb10_2x_inkling_sglang_dspark_block7", "p"))
    assert gb10.verify.ms == pytest.approx(imported(GB10).verify.ms, rel=1e-6)
    quoted = imported(choose_table(document, "trtllm_dspark_certified_table_shape", "p"))
    assert quoted.verify == imported(TRTLLM).verify


# The command


@pytest.fixture
def write(tmp_path):
    def _write(document):
        path = tmp_path / "table.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return _write


@pytest.mark.parametrize("form", FORMATS)
def test_import_and_export_on_the_command_line(form, write, tmp_path, capsys):
    profile, table = tmp_path / "mine.yaml", tmp_path / "back.json"
    assert dispatch(["hw", "import", write(TABLES[form]), "-o", str(profile), "--device", "GB10"]) == 0
    assert yaml.safe_load(profile.read_text())["device"] == "GB10"
    assert dispatch(["hw", "check", str(profile)]) == 0
    assert dispatch(["hw", "show", str(profile)]) == 0
    assert "at a context that is not stated" in capsys.readouterr().out
    assert dispatch(["hw", "export", str(profile), "--format", form, "-o", str(table)]) == 0
    assert json.loads(table.read_text()).keys() == TABLES[form].keys()


def test_one_table_of_several_is_chosen_by_name(write, tmp_path, capsys):
    several, out = write({"one": GB10, "two": TRTLLM, "note": "x"}), str(tmp_path / "x.yaml")
    assert dispatch(["hw", "import", several, "-o", out]) == 2
    assert "name one of its tables (--table): one, two" in capsys.readouterr().err
    assert dispatch(["hw", "import", several, "-o", out, "--table", "tow"]) == 2
    assert "no table 'tow' (did you mean 'two'?)" in capsys.readouterr().err
    assert dispatch(["hw", "import", several, "-o", out, "--table", "two", "--context", "900"]) == 0
    assert load_profile(out).verify.context_tokens == 900


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "line 1: not valid JSON"),
        ([1], "must be a JSON object"),
        (
            {"sample_batch_tokens": [1]},
            "no cost table in it; a table has the keys sample_batch",
        ),
        (
            GB10 | {"sample_steps_per_sec": [1, 2, 0, 4, 5, 6]},
            "per_sec[2]: must be above 0, got 0",
        ),
        (
            GB10 | {"sample_steps_per_sec": [1, 2, "x", 4, 5, 6]},
            "per_sec[2]: must be a finite num",
        ),
        (GB10 | {"sample_steps_per_sec": 3}, "sample_steps_per_sec: must be a list of numbers, got int"),
        (GB10 | {"sample_steps_per_sec": [1.0]}, "tokens has 6 entries but ms has 1"),
        (GB10 | {"sample_batch_tokens": [8, 16, 12, 64, 96, 128]}, "must rise strictly, but 12 follows 16"),
        (TRTLLM | {"fixed_overhead_ms": None}, "fixed_overhead_ms: must be a finite number, got None"),
        (
            TRTLLM | {"batch_overhead_ms": [-1, 0, 0, 0]},
            "additive.ms[0]: must be at least 0.0, got -1",
        ),
    ],
)
def test_a_broken_table_is_one_line(document, said, write, tmp_path, capsys):
    assert dispatch(["hw", "import", write(document), "-o", str(tmp_path / "x.yaml")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "h800", "--format", "sglan"], "sglan: not one of sglang, sglang-additive, trtllm"),
        (["export", "b300-tp4-dsv4-flash", "--format", "trtllm", "--drafter", "eagle"],
         "--drafter eagle: b300-tp4-dsv4-flash has none, dspark, mtp"),
        (["import", "nowhere.json"], "nowhere.json: no such file"),
    ],
)  # fmt: skip
def test_bad_words(words, said, tmp_path, capsys):
    assert dispatch(["hw", *words, "-o", str(tmp_path / "x")]) == 2
    assert said in capsys.readouterr().err


def test_a_table_without_a_name_is_refused_in_the_library_too():
    with pytest.raises(DataError, match="no cost table"):
        choose_table({"a": {"b": 1}}, None, "x.json")
