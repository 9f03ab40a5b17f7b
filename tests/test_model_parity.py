"""The four tiny checkpoints: every tensor of the reference, and the on-disk formats around them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [model]")

from safetensors.torch import load_file, save_file  # noqa: E402

from dspark_sim.errors import InputError  # noqa: E402
from dspark_sim.model.checkpoints import load_drafter, save_drafter  # noqa: E402
from dspark_sim.model.parity import parity_report  # noqa: E402

PARITY = Path(__file__).parent / "data" / "parity"
FOLDERS = sorted(p.parent.name for p in PARITY.glob("*/expected.safetensors"))
GIVEN = ("prompt_ids", "verify_input_ids", "anchor_id", "anchor_position", "input_ids", "anchors")


@pytest.mark.parametrize("name", FOLDERS)
def test_every_tensor_of_the_reference_is_matched(name: str) -> None:
    """All tensors but the inputs are recomputed, each within 1e-5, and token ids exactly."""
    report = parity_report(PARITY / name)
    expected = load_file(PARITY / name / "expected.safetensors")
    inputs = {key for key in expected if key.split(".")[-1] in GIVEN}
    assert set(report["tensors"]) == set(expected) - inputs
    assert (report["ok"], report["missed"], report["unread"]) == (True, [], [])
    assert report["largest"] < 5e-6
    integers = [k for k in report["tensors"] if not expected[k].is_floating_point()]
    assert all(report["tensors"][k]["passes"] == "equal" for k in integers)


@pytest.mark.parametrize("name", FOLDERS)
def test_what_float32_leaves_is_the_rounding_of_the_reference(name: str) -> None:
    """Elements off by more than 1e-5 absolutely and relatively are near zero in sums of large terms.

    Exact arithmetic is no closer to the reference than float32 is, so no summation order could be.
    """
    single, double = (parity_report(PARITY / name, double=d) for d in (False, True))
    assert double["ok"]
    beyond_32, beyond_64 = (sum(row["beyond"] for row in r["tensors"].values()) for r in (single, double))
    elements = sum(row["elements"] for row in single["tensors"].values())
    assert beyond_32 < 1.5e-3 * elements
    assert beyond_64 > 0.5 * beyond_32


def parity_folder(tmp_path: Path, change) -> Path:
    """A copy of one folder with changed expected tensors."""
    folder = tmp_path / "parity"
    shutil.copytree(PARITY / "dspark_vanilla_b5", folder)
    expected = load_file(folder / "expected.safetensors")
    change(expected)
    save_file(expected, folder / "expected.safetensors")
    return folder


def test_the_command_prints_every_tensor_and_passes(command) -> None:
    done = command("parity", PARITY / "dspark_vanilla_b5")
    assert done.code == 0
    assert "all 37 pass" in done.out
    assert "tf.loss_total" in done.out


def test_a_tensor_that_is_off_fails_the_command_by_name(command, tmp_path: Path) -> None:
    def shift(expected: dict) -> None:
        expected["round1.confidence"] += 2e-5
        expected["round2.draft_tokens"][0, 0] += 1

    done = command("parity", parity_folder(tmp_path, shift), "--json")
    assert done.code == 1
    assert done.document["missed"] == ["round1.confidence", "round2.draft_tokens"]
    assert done.document["tensors"]["round1.confidence"]["absolute"] == pytest.approx(2e-5, rel=0.1)


def test_missing_and_misshapen_expected_tensors_are_one_line(command, tmp_path: Path) -> None:
    folder = parity_folder(tmp_path, lambda expected: expected.pop("tf.hidden"))
    assert "tf.hidden: tensor is missing" in command("parity", folder).error
    expected = load_file(PARITY / "dspark_vanilla_b5" / "expected.safetensors")
    expected["round0.base_logits"] = expected["round0.base_logits"][:, :2].contiguous()
    save_file(expected, folder / "expected.safetensors")
    assert "round0.base_logits: has 514 values, this checkpoint gives 1285" in command("parity", folder).error
    assert "no such file" in command("parity", tmp_path / "nowhere").error


@pytest.mark.parametrize("file", ["expected.safetensors", "drafter/model.safetensors"])
def test_a_truncated_file_is_one_line(command, tmp_path: Path, file: str) -> None:
    path = parity_folder(tmp_path, lambda expected: None) / file
    path.write_bytes(path.read_bytes()[:-100])
    assert f"{file}: not a safetensors file" in command("parity", tmp_path / "parity").error


@pytest.mark.parametrize("name", FOLDERS)
def test_a_saved_checkpoint_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    shutil.copytree(PARITY / name, tmp_path / name)
    drafter = load_drafter(PARITY / name / "drafter")
    save_drafter(drafter, tmp_path / name / "drafter")
    assert parity_report(tmp_path / name)["tensors"] == parity_report(PARITY / name)["tensors"]
    before = load_file(PARITY / name / "drafter" / "model.safetensors")
    after = load_file(tmp_path / name / "drafter" / "model.safetensors")
    assert {k: v.shape for k, v in before.items()} == {k: v.shape for k, v in after.items()}
    assert all(torch.equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize("name", FOLDERS)
def test_saved_config_keeps_the_keys_of_the_reference(name: str, tmp_path: Path) -> None:
    save_drafter(load_drafter(PARITY / name / "drafter"), tmp_path)
    before = json.loads((PARITY / name / "drafter" / "config.json").read_text())
    after = json.loads((tmp_path / "config.json").read_text())
    ours = ("block_size", "target_layer_ids", "markov_rank", "mask_token_id", "markov_head_type")
    ours += ("enable_confidence_head", "confidence_head_with_markov", "architectures", "vocab_size")
    assert {k: after.get(k) for k in ours} == {k: before.get(k) for k in ours}


def specforge(raw: dict) -> dict:
    """The same config in SpecForge's nesting."""
    inner = ("mask_token_id", "target_layer_ids", "markov_rank", "markov_head_type",
             "enable_confidence_head", "confidence_head_with_markov")  # fmt: skip
    nested = {k: raw.pop(k) for k in inner if k in raw}
    return raw | {
        "architectures": ["DSparkDraftModel"],
        "dflash_config": nested | {"projector_type": "dspark"},
    }


def speculators(raw: dict) -> dict:
    """The same config in the layout of speculators."""
    flat = ("block_size", "mask_token_id", "markov_rank", "markov_head_type",
            "enable_confidence_head", "confidence_head_with_markov", "num_target_layers")  # fmt: skip
    outer = {k: raw.pop(k) for k in flat if k in raw}
    outer["aux_hidden_state_layer_ids"] = raw.pop("target_layer_ids")
    outer |= {
        "speculators_model_type": "dspark",
        "architectures": ["DSparkSpeculator"],
        "sample_from_anchor": True,
    }
    return outer | {"draft_vocab_size": raw["vocab_size"], "transformer_layer_config": raw}


@pytest.mark.parametrize("layout", [specforge, speculators])
@pytest.mark.parametrize("name", FOLDERS)
def test_other_config_layouts_load_the_same_drafter(name: str, layout, tmp_path: Path) -> None:
    shutil.copytree(PARITY / name / "drafter", tmp_path / "drafter")
    path = tmp_path / "drafter" / "config.json"
    path.write_text(json.dumps(layout(json.loads(path.read_text()))))
    assert load_drafter(tmp_path / "drafter").config == load_drafter(PARITY / name / "drafter").config


def broken(tmp_path: Path, change) -> Path:
    folder = tmp_path / "drafter"
    shutil.copytree(PARITY / "dspark_gated_b7" / "drafter", folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = broken(tmp_path, lambda t: t.pop("markov_head.gate_proj.weight"))
    with pytest.raises(InputError, match=r"markov_head\.gate_proj\.weight: tensor is missing"):
        load_drafter(folder)


def test_a_misshapen_tensor_is_named(tmp_path: Path) -> None:
    folder = broken(tmp_path, lambda t: t.update({"fc.weight": t["fc.weight"][:, :48].contiguous()}))
    with pytest.raises(InputError, match=r"fc\.weight: tensor has shape \[48, 48\], must be \[48, 192\]"):
        load_drafter(folder)


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    folder = broken(tmp_path, lambda t: t.update({"layers.7.extra": torch.zeros(1)}))
    with pytest.raises(InputError, match=r"layers\.7\.extra: tensor is not part"):
        load_drafter(folder)


def test_a_missing_config_key_is_named(tmp_path: Path) -> None:
    folder = broken(tmp_path, lambda t: None)
    raw = json.loads((folder / "config.json").read_text())
    del raw["block_size"]
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(InputError, match="block_size: key is missing"):
        load_drafter(folder)


def test_a_file_that_is_no_checkpoint_is_one_line(tmp_path: Path) -> None:
    folder = broken(tmp_path, lambda t: None)
    (folder / "model.safetensors").write_bytes(b"not a safetensors file")
    with pytest.raises(InputError, match="not a safetensors file") as caught:
        load_drafter(folder)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no such drafter"):
        load_drafter(tmp_path / "nowhere")
