"""The drafter: one block live and many blocks teacher-forced are the same thing; vocabularies; losses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [model]")

from dspark_sim.errors import InputError  # noqa: E402
from dspark_sim.model.checkpoints import load_drafter, save_drafter  # noqa: E402
from dspark_sim.model.drafter_config import DrafterConfig, target_tap_layers  # noqa: E402
from dspark_sim.model.losses import IGNORE, LossWeights, draft_losses, log_normalizer  # noqa: E402
from dspark_sim.model.serial import CachedPasses, SharedPasses  # noqa: E402
from dspark_sim.model.tiny import tiny_pair  # noqa: E402

CASES = [("none", None), ("vanilla", None), ("vanilla", 9), ("gated", 9), ("rnn", None), ("rnn", 9)]


@pytest.mark.parametrize(("head", "draft_vocab"), CASES)
def test_live_block_equals_teacher_forced_block(head: str, draft_vocab: int | None) -> None:
    """Two requests in a batch, context grown in pieces over stale entries, against one pass per text."""
    target, drafter = tiny_pair(4, head=head, draft_vocab=draft_vocab, gamma=4, normalize_taps=True)
    texts = torch.randint(0, 13, (2, 30), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(30).expand(2, -1)
    taps = target(texts, positions, target.new_cache(2, 30), torch.arange(2), drafter.config.target_layer_ids)
    cache, rows = drafter.new_cache(3, 40), torch.tensor([2, 0])
    done = torch.tensor([0, 0])
    for anchors in ([5, 3], [6, 8], [11, 9], [17, 20]):
        anchor_R = torch.tensor(anchors)
        valid = (positions >= done[:, None]) & (positions < anchor_R[:, None])
        drafter.extend_context(taps.taps_RTmd, positions, cache, rows, valid)
        done = anchor_R
        live = drafter.block_hidden(texts[torch.arange(2), anchor_R], anchor_R, cache, rows)
        for r in range(2):
            context = drafter.sequence_context(taps.taps_RTmd[r], positions[r])
            all_K = torch.tensor([2, anchors[r], 25])
            forced = drafter.block_hidden_at(all_K, texts[r], context)[1]
            torch.testing.assert_close(live[r], forced, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("head", "draft_vocab"), CASES)
def test_stepwise_head_equals_whole_block(head: str, draft_vocab: int | None) -> None:
    _, drafter = tiny_pair(5, head=head, draft_vocab=draft_vocab, gamma=5)
    hidden = torch.randn(7, 5, 16)
    previous = torch.randint(0, 13, (7, 5))
    state, steps = None, []
    for j in range(5):
        bias, state = drafter.head_bias(j, previous[:, j], hidden[:, j], state)
        steps.append(drafter.base_logits(hidden[:, j]) + bias)
    torch.testing.assert_close(torch.stack(steps, 1), drafter.block_logits(hidden, previous))


def test_heads_react_to_the_token_before_and_no_head_does_not() -> None:
    hidden = torch.randn(1, 3, 16)
    for head in ("none", "vanilla", "gated", "rnn"):
        _, drafter = tiny_pair(6, head=head)
        one, two = (drafter.block_logits(hidden, torch.full((1, 3), token)) for token in (1, 2))
        assert torch.equal(one, two) == (head == "none")


def test_reduced_vocabulary_maps_both_ways() -> None:
    target, drafter = tiny_pair(7, draft_vocab=6)
    ids = torch.tensor(drafter.config.draft_vocab_ids)
    assert torch.equal(drafter.to_full(torch.arange(6)), ids)
    assert torch.equal(drafter.to_draft(ids), torch.arange(6))
    outside = [t for t in range(13) if t not in ids.tolist()]
    assert drafter.to_draft(torch.tensor(outside)).tolist() == [6] * 7
    q = torch.rand(2, 6)
    spread = drafter.spread(q)
    assert torch.equal(spread[:, ids], q)
    assert float(spread[:, outside].sum()) == 0
    hidden = torch.randn(3, 16)
    torch.testing.assert_close(drafter.base_logits(hidden), target.logits(hidden)[:, ids])


def test_bad_drafters_are_refused() -> None:
    _, drafter = tiny_pair(0)
    with pytest.raises(InputError, match="exceeds capacity 6"):
        drafter.block_hidden(torch.tensor([1]), torch.tensor([4]), drafter.new_cache(1, 6), torch.tensor([0]))
    with pytest.raises(InputError, match="made for a target with embedding"):
        drafter.bind_target(torch.zeros(5, 16), torch.zeros(5, 16))
    shape = drafter.config.block
    with pytest.raises(InputError, match="head 'vanilla' with markov_rank 0"):
        DrafterConfig(3, (0,), 1, shape, 13, head="vanilla", markov_rank=0)
    with pytest.raises(InputError, match="draft_vocab_ids must ascend"):
        DrafterConfig(3, (0,), 1, shape, 13, draft_vocab_ids=(3, 2))


def test_taps_follow_the_reference_spacing() -> None:
    assert target_tap_layers(36) == (1, 9, 17, 25, 33)
    assert target_tap_layers(30) == (1, 8, 14, 21, 27)


def naive_losses(
    hidden, latent, w2, lm_head, draft_ids, target_hidden, labels, weights, confidence, temperature
):
    """The three losses written out over the full vocabulary."""
    logits = hidden @ lm_head[draft_ids].T + (latent @ w2.T if latent is not None else 0)
    q_draft = (logits / temperature).softmax(-1)
    p = (target_hidden @ lm_head.T / temperature).softmax(-1)
    q = torch.zeros_like(p).index_copy(1, draft_ids, q_draft)
    share = weights / (weights.sum() + 1e-6)
    known = labels != IGNORE
    ce = -(q_draft.gather(1, labels.clamp_min(0)[:, None])[:, 0].log() * known * share).sum()
    l1 = ((q - p).abs().sum(-1) * share).sum()
    accept = torch.minimum(p, q).sum(-1).detach()
    c = confidence.sigmoid()
    bce = -((accept * c.log() + (1 - accept) * (1 - c).log()) * share).sum()
    return 0.1 * ce + 0.9 * l1 + bce, ce, l1, bce, accept


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("rank", [0, 3])
def test_fused_losses_and_gradients_equal_the_formulas(temperature: float, rank: int) -> None:
    random = torch.Generator().manual_seed(2)

    def normal(*size: int):
        return torch.randn(*size, generator=random, dtype=torch.float64)

    lm_head, draft_ids = normal(11, 5), torch.tensor([0, 2, 3, 7, 8, 10])
    leaves = {"hidden": normal(9, 5), "confidence": normal(9)}
    leaves |= {"latent": normal(9, rank), "w2": normal(6, rank)} if rank else {}
    labels = torch.tensor([0, 5, IGNORE, 2, 3, 1, IGNORE, 4, 0])
    weights, target_hidden = torch.rand(9, generator=random, dtype=torch.float64), normal(9, 5)
    grads = []
    for fused in (True, False):
        x = {name: value.clone().requires_grad_() for name, value in leaves.items()}
        if fused:
            lse = (target_hidden @ lm_head.T / temperature).logsumexp(-1)
            losses = draft_losses(
                hidden_Nd=x["hidden"], latent_Nr=x.get("latent"), w2_Vr=x.get("w2"),
                lm_head_Vd=lm_head[draft_ids], target_Nd=target_hidden, lse_N=lse, labels_N=labels,
                weights_N=weights, confidence_N=x["confidence"], temperature=temperature,
            )  # fmt: skip
            found = (losses.total, losses.ce, losses.l1, losses.confidence, losses.accept_N)
        else:
            found = naive_losses(
                x["hidden"], x.get("latent"), x.get("w2"), lm_head, draft_ids, target_hidden, labels, weights,
                x["confidence"], temperature,
            )  # fmt: skip
        found[0].backward()
        grads.append(([x[name].grad for name in leaves], found))
    for one, two in zip(grads[0][0], grads[1][0], strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=1e-10)
    for one, two in zip(grads[0][1], grads[1][1], strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=1e-10)


def test_bfloat16_products_keep_losses_and_gradients() -> None:
    """What a CPU with AVX512-BF16 trains with, against float32: a wide vocabulary, several chunks of rows."""
    random = torch.Generator().manual_seed(4)
    lm_head, w2 = torch.randn(8192, 64, generator=random), torch.randn(8192, 16, generator=random)
    lm_head, w2 = 0.4 * lm_head, 0.1 * w2
    target, labels = torch.randn(80, 64, generator=random), torch.randint(0, 8192, (80,), generator=random)
    hidden, latent = target + torch.randn(80, 64, generator=random), torch.randn(80, 16, generator=random)
    results = []
    for fast in (False, True):
        leaves = [x.clone().requires_grad_() for x in (hidden, latent, w2)]
        losses = draft_losses(
            hidden_Nd=leaves[0], latent_Nr=leaves[1], w2_Vr=leaves[2], lm_head_Vd=lm_head, target_Nd=target,
            lse_N=log_normalizer(target, lm_head, 0.7), labels_N=labels, weights_N=torch.ones(80),
            confidence_N=None, temperature=0.7, fast=fast,
        )  # fmt: skip
        losses.total.backward()
        results.append((losses, [x.grad for x in leaves]))
    (exact, exact_grads), (rounded, rounded_grads) = results
    torch.testing.assert_close(rounded.total, exact.total, rtol=5e-3, atol=0)
    torch.testing.assert_close(rounded.accept_N, exact.accept_N, rtol=0, atol=0.03)
    for one, two in zip(exact_grads, rounded_grads, strict=True):
        # L1 pulls by the sign of q - p, which flips where rounding is larger than the difference.
        assert float((one - two).norm() / one.norm()) < 0.08


def test_weights_of_the_parts_and_log_normaliser() -> None:
    assert LossWeights() == LossWeights(ce=0.1, l1=0.9, confidence=1.0, decay=4.0)
    hidden, lm_head = torch.randn(4, 8), torch.randn(20, 8)
    total = ((hidden @ lm_head.T / 0.7) - log_normalizer(hidden, lm_head, 0.7)[:, None]).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(4))


def test_serial_passes_live_equal_teacher_forced_ones() -> None:
    """The autoregressive drafter fed with the text's tokens, on a cache and without one."""
    target, drafter = tiny_pair(8, head="none", serial=True, gamma=4, normalize_taps=True)
    ids, positions = torch.randint(0, 13, (1, 30)), torch.arange(30)[None]
    taps = target(ids, positions, target.new_cache(1, 30), torch.tensor([0]), drafter.config.target_layer_ids)
    forced = drafter.block_hidden_at(
        torch.tensor([4, 11, 20]), ids[0], drafter.sequence_context(taps.taps_RTmd[0], positions[0])
    )
    cache, rows, done = drafter.new_cache(2, 40), torch.tensor([1]), 0
    for n, anchor in enumerate((4, 11, 20)):
        drafter.extend_context(taps.taps_RTmd[:, done:anchor], positions[:, done:anchor], cache, rows)
        done = anchor
        passes = CachedPasses(drafter, torch.tensor([anchor]), cache, rows)
        live = torch.stack([passes.run(j, ids[:, anchor + j]) for j in range(4)], 1)
        torch.testing.assert_close(live[0], forced[n], atol=1e-5, rtol=1e-5)


def test_serial_copies_of_a_block_share_its_start() -> None:
    """Two copies with different tokens after the anchor equal two separate blocks."""
    target, drafter = tiny_pair(9, head="none", serial=True, gamma=3)
    ids, positions = torch.randint(0, 13, (1, 12)), torch.arange(12)[None]
    taps = target(ids, positions, target.new_cache(1, 12), torch.tensor([0]), drafter.config.target_layer_ids)
    context, anchors = drafter.sequence_context(taps.taps_RTmd[0], positions[0]), torch.tensor([3, 7])
    tokens = torch.randint(0, 13, (2, 2, 2))  # copy, anchor, position
    joint = SharedPasses(drafter, anchors, context)
    joint.run(0, ids[0, anchors])
    both = [joint.run(j, tokens[:, :, j - 1].flatten()) for j in (1, 2)]
    for copy in range(2):
        alone = SharedPasses(drafter, anchors, context)
        alone.run(0, ids[0, anchors])
        for j in (1, 2):
            hidden = alone.run(j, tokens[copy, :, j - 1])
            torch.testing.assert_close(both[j - 1][2 * copy : 2 * copy + 2], hidden)


def test_serial_drafter_saves_and_loads(tmp_path) -> None:
    target, drafter = tiny_pair(9, head="none", serial=True, gamma=3, draft_vocab=7)
    save_drafter(drafter, tmp_path, with_target=False)
    again = load_drafter(tmp_path, target)
    assert again.config == drafter.config
    assert again.config.kind == "mtp"
    assert all(torch.equal(a, b) for a, b in zip(drafter.parameters(), again.parameters(), strict=True))
    with pytest.raises(InputError, match="step through it"):
        again.block_hidden(torch.tensor([1]), torch.tensor([4]), again.new_cache(1, 9), torch.tensor([0]))
