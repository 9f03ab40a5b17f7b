"""Generation into a corpus, training on it, and the exact replay that judges a drafter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra [model]")

from dspark_sim.errors import InputError  # noqa: E402
from dspark_sim.model.corpus import CorpusInfo, export_texts, read_texts, shards, texts  # noqa: E402
from dspark_sim.model.evaluate import evaluate_texts, replay_quality  # noqa: E402
from dspark_sim.model.features import recompute_features  # noqa: E402
from dspark_sim.model.generate import Generator, generate_responses  # noqa: E402
from dspark_sim.model.prompts import TokenPrompt, interleave, read_prompts  # noqa: E402
from dspark_sim.model.tiny import tiny_pair  # noqa: E402
from dspark_sim.model.train import train  # noqa: E402
from dspark_sim.model.trainer import TrainConfig, Trainer, checkpoints, init_from_target  # noqa: E402
from dspark_sim.model.trainset import (  # noqa: E402
    TrainSet,
    all_anchors,
    choose_draft_vocab,
    is_held_out,
    make_blocks,
    run_blocks,
)

PROMPTS = [
    TokenPrompt(f"p{n}", ("math", "chat")[n % 2], tuple((n * k) % 13 for k in range(2, 5 + n % 4)))
    for n in range(30)
]


@pytest.fixture(scope="module")
def pair():
    """A tiny target whose texts end on token 5."""
    target, drafter = tiny_pair(1, gamma=3)
    object.__setattr__(target.config, "eos_token_ids", (5,))
    return target, drafter


@pytest.fixture(scope="module")
def corpus(pair, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    target, drafter = pair
    generate_responses(
        target, PROMPTS, folder, max_new_tokens=14, samples=2, taps=drafter.config.target_layer_ids,
        normalize_taps=False, seed=3, slots=4, texts_per_shard=7,
    )  # fmt: skip
    return folder


def by_key(folder: Path) -> dict:
    return {t.key: t.ids.tolist() for t in texts(folder)}


def test_texts_do_not_depend_on_batch_or_worker(pair, corpus: Path, tmp_path: Path) -> None:
    """One random stream a request: other slots, two workers, a resumed run, and still the same texts."""
    for worker in (0, 1, 1):
        split = {"worker": worker, "workers": 2, "slots": 9, "texts_per_shard": 5}
        generate_responses(pair[0], PROMPTS, tmp_path, max_new_tokens=14, samples=2, seed=3, **split)
    assert by_key(tmp_path) == by_key(corpus)
    assert len(by_key(tmp_path)) == 60


def test_texts_end_on_the_end_token_or_the_limit(corpus: Path) -> None:
    for text in texts(corpus):
        response = text.ids[text.prompt_len :].tolist()
        assert 1 <= len(response) <= 14
        assert 5 not in response[:-1]
        assert len(response) == 14 or response[-1] == 5


def test_features_are_those_of_one_plain_pass(pair, corpus: Path) -> None:
    target, drafter = pair
    for shard in shards(corpus)[:2]:
        for n in range(len(shard)):
            text = shard.text(n)
            ids = torch.from_numpy(text.ids[:-1].astype(np.int64))
            positions = torch.arange(len(ids))[None]
            out = target(
                ids[None], positions, target.new_cache(1, len(ids)), torch.tensor([0]),
                drafter.config.target_layer_ids,
            )  # fmt: skip
            torch.testing.assert_close(text.features.taps_Fmd.float(), out.taps_RTmd[0], atol=5e-3, rtol=2e-3)
            torch.testing.assert_close(
                text.features.hidden_Fd.float(), out.hidden_RTd[0], atol=5e-3, rtol=2e-3
            )
            lse = (target.logits(out.hidden_RTd[0]) / 0.7).logsumexp(-1)
            start = text.prompt_len - 1
            assert bool(text.features.lse_F[:start].isnan().all())
            torch.testing.assert_close(text.features.lse_F[start:], lse[start:], atol=1e-4, rtol=1e-4)


def test_sampled_texts_follow_the_target(pair) -> None:
    """First tokens of 3,000 answers to one prompt against its next-token law (chi-square, z < 4)."""
    target, _ = pair
    prompt, count = PROMPTS[3], 3000
    info = CorpusInfo("tiny", 0.7, 11, 1)
    engine = Generator(target, info, slots=250, max_prompt_tokens=len(prompt.ids))
    first = [int(t.ids[-1]) for t in engine.run((prompt, n) for n in range(count))]
    ids = torch.tensor(prompt.ids)[None]
    out = target(ids, torch.arange(ids.shape[1])[None], target.new_cache(1, 16), torch.tensor([0]))
    p = (target.logits(out.hidden_RTd[0, -1]) / 0.7).softmax(-1).double().numpy()
    counts = np.bincount(first, minlength=13)
    chi2 = ((counts - count * p) ** 2 / (count * p)).sum()
    assert (chi2 - 12) / np.sqrt(24) < 4


def test_exported_texts_come_back(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    assert export_texts(corpus, path) == 60
    info, found = read_texts(path)
    assert {t.key: t.ids.tolist() for t in found} == by_key(corpus)
    assert (info.seed, info.temperature) == (3, 0.7)
    path.write_bytes(b"junk")
    with pytest.raises(InputError, match="not a parquet of generated texts"):
        read_texts(path)


def test_features_come_back_from_token_ids(pair, corpus: Path, tmp_path: Path) -> None:
    """Token ids alone are kept; the recomputed corpus equals the generated one."""
    target, drafter = pair
    export_texts(corpus, tmp_path / "texts.parquet")
    info, found = read_texts(tmp_path / "texts.parquet")
    taps = drafter.config.target_layer_ids
    assert recompute_features(target, info, found, tmp_path / "again", taps=taps, texts_per_shard=7) == 60
    assert recompute_features(target, info, found, tmp_path / "again", taps=taps) == 0
    again = {t.key: t for s in shards(tmp_path / "again") for t in (s.text(n) for n in range(len(s)))}
    for shard in shards(corpus):
        for n in range(len(shard)):
            one, two = shard.text(n), again[shard.text(n).key]
            assert one.ids.tolist() == two.ids.tolist()
            for name in ("taps_Fmd", "hidden_Fd", "lse_F"):
                pair_of = (getattr(one.features, name), getattr(two.features, name))
                torch.testing.assert_close(*pair_of, atol=2e-3, rtol=2e-3, equal_nan=True)


def test_bad_prompt_files_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    good = '{"id": "a/1", "domain": "math", "turns": ["one", "two"]}\n'
    cases = {
        "{": "line 2: not JSON",
        '{"id": 1}': "line 2: needs the keys",
        '{"id": 1, "domain": "x", "turns": []}': "line 2: 'turns'",
    }
    for bad, message in cases.items():
        path.write_text(good + bad)
        with pytest.raises(InputError, match=message):
            read_prompts(path)
    path.write_text(good)
    assert read_prompts(path)[0].text == "one"
    with pytest.raises(InputError, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")


def test_interleave_keeps_any_beginning_balanced() -> None:
    groups = [PROMPTS[:3], PROMPTS[3:5], PROMPTS[5:6]]
    assert [p.prompt_id for p in interleave(groups)] == ["p0", "p3", "p5", "p1", "p4", "p2"]


def test_held_out_prompts_are_never_trained_on(corpus: Path) -> None:
    data = TrainSet(corpus, held_out_percent=30)
    trained = {shard.keys[n][0] for shard, n in data.train}
    kept = {shard.keys[n][0] for shard, n in data.held_out}
    assert trained
    assert kept
    assert not trained & kept
    assert kept == {p for p in trained | kept if is_held_out(p, 30)}
    with pytest.raises(InputError, match="holds no corpus shard"):
        TrainSet(corpus / "none")


def test_draft_vocabulary_takes_the_frequent(corpus: Path) -> None:
    seen = [t.ids[t.prompt_len :] for t in texts(corpus) if not is_held_out(t.prompt_id, 30)]
    counts = np.bincount(np.concatenate(seen), minlength=13)
    chosen = choose_draft_vocab(corpus, 6, always=(5,), held_out_percent=30)
    assert 5 in chosen
    assert int(counts.argmax()) in chosen
    assert list(chosen) == sorted(chosen)
    with pytest.raises(InputError, match="only"):
        choose_draft_vocab(corpus, 500)


def learner(pair):
    """A drafter of the same shape that starts from the target."""
    target, drafter = pair
    return init_from_target(drafter.config, target, seed=2)


CONFIG = TrainConfig(total_anchors=400, anchors_per_text=6, lr=3e-3, held_out_percent=20, validate_every=200,
                     checkpoint_s=1e9, bf16=False)  # fmt: skip


@pytest.mark.parametrize("serial", [False, True])
def test_texts_packed_together_do_not_see_each_other(pair, corpus: Path, serial: bool) -> None:
    """Blocks of three texts in one pack equal those of each text alone; so do labels and targets."""
    target, drafter = pair
    if serial:
        drafter = tiny_pair(8, head="none", serial=True, gamma=3)[1]
        drafter.bind_target(target.embed, target.lm_head)
    found = [t for t in TrainSet(corpus, 20).validation(9) if t.response_len > 4][:3]
    chosen = [(text, all_anchors(text)) for text in found]
    packed, alone = make_blocks(drafter, chosen), [make_blocks(drafter, [one]) for one in chosen]
    hidden = run_blocks(drafter, packed)[packed.valid_KG]
    each = torch.cat([run_blocks(drafter, blocks)[blocks.valid_KG] for blocks in alone])
    torch.testing.assert_close(hidden, each, atol=1e-5, rtol=1e-5)
    for name in ("valid_KG", "previous_KG", "labels_N", "target_Nd", "lse_N"):
        assert torch.equal(getattr(packed, name), torch.cat([getattr(blocks, name) for blocks in alone]))


@pytest.mark.parametrize("serial", [False, True])
def test_the_backbone_is_one_graph_for_texts_of_any_length(pair, corpus: Path, serial: bool) -> None:
    """What ``compiled`` hands to the compiler has no break, is traced once, and computes the same."""
    target, drafter = pair
    if serial:
        drafter = tiny_pair(8, head="none", serial=True, gamma=3)[1]
        drafter.bind_target(target.embed, target.lm_head)
    traced = []

    def backend(graph, _):
        traced.append(graph)
        return graph.forward

    compiled = torch.compile(run_blocks, dynamic=True, fullgraph=True, backend=backend)
    long_texts = [t for t in TrainSet(corpus, 20).validation(9) if t.response_len > 4]
    for first in range(3):
        blocks = make_blocks(drafter, [(t, all_anchors(t)) for t in long_texts[first : first + 2]])
        torch.testing.assert_close(compiled(drafter, blocks), run_blocks(drafter, blocks))
    assert len(traced) == 1


@pytest.mark.slow
def test_a_compiled_run_learns_what_a_plain_one_does(pair, corpus: Path, tmp_path: Path) -> None:
    plain = train(learner(pair), corpus, tmp_path / "plain", CONFIG)
    compiled = train(learner(pair), corpus, tmp_path / "compiled", replace(CONFIG, compiled=True))
    for (name, one), two in zip(plain.state_dict().items(), compiled.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-3, msg=name)


def test_training_improves_the_drafter(pair, corpus: Path, tmp_path: Path) -> None:
    seen = []
    data = TrainSet(corpus, 20).validation(20)
    before = evaluate_texts(learner(pair), data, 0.7)["all"].accepted_len
    longer = TrainConfig(total_anchors=3000, anchors_per_text=12, lr=1e-2, held_out_percent=20, bf16=False)
    trained = train(learner(pair), corpus, tmp_path, longer, on_progress=seen.append)
    after = evaluate_texts(trained, data, 0.7)["all"].accepted_len
    assert after > before + 0.1
    assert seen[-1].loss < seen[5].loss
    assert seen[-1].anchors >= 3000
    assert (tmp_path / "curve.csv").read_text().count("\n") >= 2


def test_a_stopped_run_continues_to_the_same_weights(pair, corpus: Path, tmp_path: Path) -> None:
    whole = train(learner(pair), corpus, tmp_path / "whole", CONFIG)
    train(learner(pair), corpus, tmp_path / "cut", CONFIG, stop_after_s=0.05)
    assert 0 < int(checkpoints(tmp_path / "cut")[-1].name[5:]) < 400
    cut = train(learner(pair), corpus, tmp_path / "cut", CONFIG)
    for (name, one), two in zip(whole.state_dict().items(), cut.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, msg=name)
    assert len(checkpoints(tmp_path / "cut")) <= 2


def test_moments_of_tokens_that_are_never_drawn_fade_to_zero(pair, corpus: Path, tmp_path: Path) -> None:
    """Floats below 1e-38 would stay in the optimizer for good, and slow every step down."""
    trainer = Trainer(learner(pair), TrainSet(corpus, 20), CONFIG, tmp_path)
    trainer.drafter.train().requires_grad_(True)
    trainer.train_step()
    smallest = torch.finfo(torch.float32).tiny
    moments = [state["exp_avg"] for state in trainer.optimizer.state.values()]
    unused = [moment == 0 for moment in moments]
    assert sum(int(rows.sum()) for rows in unused) > 0
    for moment, rows in zip(moments, unused, strict=True):
        moment[rows] = 1.05 * smallest  # times 0.9 it is too small for a normal float
    trainer.train_step()
    for moment in moments:
        assert not ((moment != 0) & (moment.abs() < smallest)).any()
    assert float(torch.tensor(smallest) * 0.5) > 0  # elsewhere tiny values stay what they are


def test_a_run_folder_of_another_drafter_is_refused(pair, corpus: Path, tmp_path: Path) -> None:
    train(learner(pair), corpus, tmp_path, CONFIG, stop_after_s=0.0)
    other = tiny_pair(1, gamma=2)[1]
    with pytest.raises(InputError, match="holds a drafter of another configuration"):
        train(other, corpus, tmp_path, CONFIG)


def test_replay_expectation_equals_simulation() -> None:
    """Visited rounds, reached and accepted positions against 20,000 simulated replays."""
    random = np.random.default_rng(0)
    anchors, gamma, runs = 9, 3, 20_000
    accept = random.uniform(0.2, 0.95, (anchors, gamma))
    valid = np.arange(anchors)[:, None] + 1 + np.arange(gamma) <= anchors
    rounds, reached, accepted = 0, np.zeros(gamma), np.zeros(gamma)
    for _ in range(runs):
        i = 0
        while i < anchors:
            rounds += 1
            j = 0
            while j < gamma and valid[i, j]:
                reached[j] += 1
                if random.random() >= accept[i, j]:
                    break
                accepted[j] += 1
                j += 1
            i += j + 1
    found = replay_quality(accept, valid)
    assert found.rounds == pytest.approx(rounds / runs, rel=0.02)
    np.testing.assert_allclose(found.reached_G, reached / runs, rtol=0.04)
    np.testing.assert_allclose(found.accepted_G, accepted / runs, rtol=0.04)
    assert found.accepted_len == pytest.approx(anchors / found.rounds)
