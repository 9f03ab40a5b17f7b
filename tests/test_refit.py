"""A confidence head fitted after the backbone: what it reads, that only it changes, that it tells more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra [model]")

from dspark_sim.errors import InputError  # noqa: E402
from dspark_sim.model.checkpoints import load_drafter, save_drafter  # noqa: E402
from dspark_sim.model.confidence import STATISTICS, draft_statistics  # noqa: E402
from dspark_sim.model.corpus import shards  # noqa: E402
from dspark_sim.model.drafting import BlockStep, teacher_forced  # noqa: E402
from dspark_sim.model.generate import generate_responses  # noqa: E402
from dspark_sim.model.prompts import TokenPrompt  # noqa: E402
from dspark_sim.model.refit import (  # noqa: E402
    collect,
    fit_head,
    head_logits,
    logistic,
    split_by_prompt,
    telling,
)
from dspark_sim.model.tiny import tiny_pair  # noqa: E402
from dspark_sim.model.trainer import TrainConfig, step_losses  # noqa: E402
from dspark_sim.model.trainset import all_anchors  # noqa: E402
from dspark_sim.workload.calibration import auc, weighted_auc  # noqa: E402


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tiny pair and texts of its target with features."""
    target, drafter = tiny_pair(3, gamma=3, vocab=17, sharpness=2.0)
    folder = tmp_path_factory.mktemp("corpus")
    prompts = [TokenPrompt(f"p{n}", "chat", (n % 17, (3 * n) % 17, 5)) for n in range(40)]
    generate_responses(
        target, prompts, folder, max_new_tokens=24, taps=drafter.config.target_layer_ids,
        normalize_taps=False, temperature=0.7, seed=1, slots=20, texts_per_shard=40,
    )  # fmt: skip
    texts = [shard.text(n) for shard in shards(folder) for n in range(len(shard))]
    return target, drafter, texts


@pytest.fixture(scope="module")
def examples(world):
    return collect(world[1], world[2], 0.7, anchors_per_text=24)


def test_statistics_are_those_of_the_distribution():
    logits = torch.tensor([[0.0, 0.0, -60.0], [2.0, 1.0, 0.0]])
    even, peaked = draft_statistics(logits).double()
    log_half = float(np.log(0.5))
    torch.testing.assert_close(even, torch.tensor([0.0, 0.5, log_half, -log_half, log_half]).double())
    q = np.exp([2.0, 1.0, 0.0]) / np.exp([2.0, 1.0, 0.0]).sum()
    expected = [np.log(q[0] / (1 - q[0])), q[0], np.log(q[1]), -(q * np.log(q)).sum(), np.log((q**2).sum())]
    np.testing.assert_allclose(peaked, expected, rtol=1e-5)
    certain = draft_statistics(torch.tensor([[200.0, 0.0, 0.0]]))
    assert bool(torch.isfinite(certain).all())


def test_the_logistic_fit_finds_the_coefficients_it_was_given():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 3, generator=random)
    truth, shift = torch.tensor([1.0, -2.0, 0.0]), 0.5
    label = torch.sigmoid(x @ truth + shift)
    slope, bias = logistic(x, label, torch.full((4000,), 1 / 4000), 0.0)
    torch.testing.assert_close(slope, truth, atol=2e-2, rtol=0)
    assert float(bias) == pytest.approx(shift, abs=2e-2)


def test_weighted_auc_is_the_auc_where_outcomes_are_certain():
    random = np.random.default_rng(0)
    score, hit = random.integers(0, 9, 500).astype(float), random.random(500) < 0.4
    assert weighted_auc(score, hit.astype(float), np.ones(500)) == pytest.approx(auc(score, hit))
    assert weighted_auc(score, np.full(500, 0.3), np.ones(500)) == pytest.approx(0.5)


def test_labels_and_reach_are_those_of_the_replay(world, examples):
    """Every position's label lies in 0..1, position 0 is always reached, and reach never rises."""
    assert bool(((examples.rate_N >= 0) & (examples.rate_N <= 1)).all())
    assert bool((examples.weight_N[examples.position_N == 0] == 1).all())
    means = [float(examples.weight_N[examples.position_N == j].mean()) for j in range(3)]
    assert means == sorted(means, reverse=True)
    rate = examples.rate_N[examples.position_N == 0].double().mean()
    reach = examples.weight_N[examples.position_N == 1].double().mean()
    # E[accept given the text] = 1 - TV: the text is a sample of the target.
    assert float(reach) == pytest.approx(float(rate), abs=0.05)


@pytest.mark.parametrize("statistics", [True, False])
def test_only_the_head_changes_and_it_tells_more(world, examples, statistics: bool):
    _, drafter, _ = world
    fits, scores = split_by_prompt(examples, 2 / 3, 0)
    assert not set(fits.prompts) & set(scores.prompts)
    fresh = fit_head(drafter, fits, statistics=statistics)
    old, new = drafter.state_dict(), fresh.state_dict()
    same = [name for name in old if "confidence" not in name]
    assert all(torch.equal(old[name], new[name]) for name in same)
    before, after = telling(drafter, scores), telling(fresh, scores)
    assert np.all(after.ceiling_G == before.ceiling_G)
    assert after.share_G[0] > before.share_G[0] + 0.1
    assert abs(after.confidence_G[0] - after.rate_G[0]) < 0.05
    if statistics:
        assert after.share_G[0] > telling(fit_head(drafter, fits, statistics=False), scores).share_G[0]


@torch.no_grad()
def test_drafting_gives_the_confidences_that_were_fitted(world, examples, tmp_path: Path):
    """What the recorder and live decoding ask the head equals what the fit saw, also from disk."""
    target, drafter, texts = world
    fresh = fit_head(drafter, examples)
    assert fresh.confidence.proj.weight.shape[1] == drafter.confidence.proj.weight.shape[1] + STATISTICS
    save_drafter(fresh, tmp_path / "d")
    loaded = load_drafter(tmp_path / "d", target)
    assert loaded.config == fresh.config
    text = texts[0]
    one = collect(loaded, [text], 0.7, anchors_per_text=999)
    wanted = head_logits(loaded, one)[one.position_N == 0]
    ids, anchors = torch.from_numpy(text.ids.astype(np.int64)), all_anchors(text)
    context = loaded.sequence_context(text.features.taps_Fmd.float(), torch.arange(len(ids) - 1))
    step = BlockStep(loaded, teacher_forced(loaded, anchors, ids, context), 0.7, 1.0)
    step(0, ids[anchors])
    torch.testing.assert_close(step._confidence[0], wanted, atol=2e-3, rtol=0)
    # A second fit starts from the same features.
    again = collect(loaded, [text], 0.7, anchors_per_text=999)
    assert again.features_NF.shape == one.features_NF.shape


def test_a_backbone_with_such_a_head_is_not_trained_further(world, examples):
    _, drafter, texts = world
    fresh = fit_head(drafter, examples)
    with pytest.raises(InputError, match="train without them, then refit"):
        step_losses(fresh, [(texts[0], all_anchors(texts[0])[:3])], 0.7, TrainConfig().loss)


def test_no_unseen_text_is_said(world):
    with pytest.raises(InputError, match="no text that the drafter has not seen"):
        collect(world[1], [], 0.7)
