"""The dense recorder: what it stores is what the pair does, whatever the order and the chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_pair import end_on, tiny_prompts, tiny_texts

from dspark_sim.errors import DataError, InputError
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.drafting import BlockStep, ParallelBackbone, cached, draft_freely
from dspark_sim.model.record import DrafterRecord, Recorder, request_id
from dspark_sim.model.record_store import RecordingFolder, build_trace
from dspark_sim.model.tiny import tiny_pair
from dspark_sim.model.verify import PAST_END, TextAhead, draft_blocks
from dspark_sim.rng import stream
from dspark_sim.workload.trace_io import read_trace, write_trace

FIELDS = ("accepted_N", "confidence_logit_NG", "confidence_logit_free_NG", "accept_rate_NG")
VOCAB, GAMMA, SEED = 13, 4, 9


@pytest.fixture(scope="module")
def pair():
    target, drafter = tiny_pair(3, vocab=VOCAB, gamma=GAMMA, draft_vocab=10)
    return end_on(target, 5), drafter


@pytest.fixture(scope="module")
def texts(pair):
    return tiny_texts(pair[0], tiny_prompts(30, VOCAB), samples=4, max_new=24, temperature=1.0)


@pytest.fixture(scope="module")
def records(pair, texts):
    recorder = Recorder(pair[0], {"dspark": pair[1]}, temperature=1.0, seed=SEED)
    return [recorder.record(text)["dspark"] for text in texts]


def equal(left: DrafterRecord, right: DrafterRecord) -> None:
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(left, field), getattr(right, field))


def test_shapes_ends_and_types(texts, records):
    for text, record in zip(texts, records, strict=True):
        count = text.response_len
        remaining = count - 1 - np.arange(count)
        assert record.accepted_N.dtype == np.uint8
        assert (record.accepted_N <= np.minimum(remaining, GAMMA)).all()
        for field in FIELDS[1:]:
            assert getattr(record, field).shape == (count, GAMMA)
            assert getattr(record, field).dtype == np.float16
            assert np.isfinite(getattr(record, field)).all()


def test_the_target_is_asked_up_to_the_first_rejection(texts, records):
    """1 - TV is positive through position accepted + 1 (inside the text), and 0 past it."""
    for text, record in zip(texts, records, strict=True):
        remaining = text.response_len - 1 - np.arange(text.response_len)
        asked = np.arange(GAMMA) < np.minimum(record.accepted_N[:, None] + 1, remaining[:, None])
        assert (record.accept_rate_NG[asked] > 0).all()
        assert (record.accept_rate_NG[~asked] == 0).all()


def test_acceptance_happens_at_its_analytic_rate(texts, records):
    """Over all anchors, position 1 is accepted as often as 1 - TV says (four standard errors)."""
    inside = np.concatenate([np.arange(t.response_len) < t.response_len - 1 for t in texts])
    rate = np.concatenate([r.accept_rate_NG[:, 0] for r in records])[inside].astype(float)
    hit = np.concatenate([r.accepted_N >= 1 for r in records])[inside]
    error = np.sqrt((rate * (1 - rate)).sum()) / len(rate)
    assert abs(hit.mean() - rate.mean()) < 4 * error


@pytest.mark.parametrize("kind", ["none", "vanilla", "rnn", "serial"])
def test_teacher_forced_free_blocks_equal_live_drafting(kind):
    """Drafting step by step, with caches as in live decoding, gives the recorder's free confidences."""
    head = {"serial": "none"}.get(kind, kind)
    target, drafter = tiny_pair(
        3, vocab=VOCAB, gamma=GAMMA, draft_vocab=10, head=head, serial=kind == "serial"
    )
    recorder = Recorder(target, {"d": drafter}, temperature=1.0, seed=SEED)
    taps, row = list(drafter.config.target_layer_ids), torch.zeros(1, dtype=torch.long)
    for text in tiny_texts(target, tiny_prompts(3, VOCAB), samples=1, max_new=12, temperature=1.0):
        record = recorder.record(text)["d"]
        count, start, fed = text.response_len, text.prompt_len, 0
        ids = torch.from_numpy(text.ids.astype(np.int64))
        cache, context = target.new_cache(1, len(ids)), drafter.new_cache(1, len(ids) + GAMMA)
        uniform = stream(SEED, "record", request_id(text)).random((count, GAMMA, 3), dtype=np.float32)
        for i in range(count):
            positions = torch.arange(fed, start + i)[None]
            if positions.numel():
                out = target(ids[None, fed : start + i], positions, cache, row, taps)
                drafter.extend_context(out.taps_RTmd, positions, context, row)
                fed = start + i
            anchor = ids[start + i][None]
            backbone = cached(drafter, anchor, torch.tensor([start + i]), context, row)
            step = BlockStep(drafter, backbone, 1.0, 1.0)
            block = draft_freely(step, anchor, torch.from_numpy(uniform[i, :, 2])[None])
            live = block.confidence_logit_RG[0].numpy()
            np.testing.assert_allclose(record.confidence_logit_free_NG[i], live, rtol=2e-3, atol=2e-3)


def test_position_one_of_both_blocks_reads_the_anchor_alone(records):
    for record in records:
        np.testing.assert_array_equal(record.confidence_logit_NG[:, 0], record.confidence_logit_free_NG[:, 0])
    coupled = np.concatenate([r.confidence_logit_NG[:, 2] for r in records])
    free = np.concatenate([r.confidence_logit_free_NG[:, 2] for r in records])
    assert (coupled != free).mean() > 0.3


def test_neither_chunks_nor_order_nor_company_change_a_record(pair, texts, records):
    target, drafter = pair
    other = tiny_pair(8, vocab=VOCAB, gamma=3, head="none")[1].bind_target(target.embed, target.lm_head)
    other.config = replace(other.config, target_layer_ids=(0, 2))
    drafters = {"other": other, "dspark": drafter}
    both = Recorder(target, drafters, temperature=1.0, seed=SEED, anchors_at_once=5)
    for n in np.random.default_rng(0).permutation(len(texts))[:20]:
        got = both.record(texts[n])
        np.testing.assert_array_equal(got["dspark"].accepted_N, records[n].accepted_N)
        for field in FIELDS[1:]:
            np.testing.assert_allclose(
                getattr(got["dspark"], field), getattr(records[n], field), rtol=2e-3, atol=2e-3
            )
        assert got["other"].accept_rate_NG.shape == (texts[n].response_len, 3)


def greedy_block(drafter: Drafter, hidden_Gd: torch.Tensor, anchor: int) -> list[int]:
    tokens, state = [anchor], None
    for j in range(GAMMA):
        bias, state = drafter.head_bias(j, torch.tensor([tokens[-1]]), hidden_Gd[j][None], state)
        tokens.append(int(drafter.to_full((drafter.base_logits(hidden_Gd[j]) + bias[0]).argmax())))
    return tokens[1:]


def test_at_temperature_zero_accepted_is_the_run_of_equal_argmaxes(pair):
    target, drafter = pair
    texts = tiny_texts(target, tiny_prompts(8, VOCAB), samples=1, max_new=24, temperature=0.0)
    recorder = Recorder(target, {"dspark": drafter}, temperature=0.0, seed=SEED)
    lengths = []
    for text in texts:
        record = recorder.record(text)["dspark"]
        ids, taps = torch.from_numpy(text.ids.astype(np.int64)), list(drafter.config.target_layer_ids)
        positions = torch.arange(len(ids) - 1)[None]
        cache = target.new_cache(1, len(ids))
        out = target(ids[None, :-1], positions, cache, torch.zeros(1, dtype=torch.long), taps)
        context = drafter.sequence_context(out.taps_RTmd[0], positions[0])
        for i in range(text.response_len):
            at = text.prompt_len + i
            hidden = drafter.block_hidden_at(torch.tensor([at]), ids, context)[0]
            block, after = greedy_block(drafter, hidden, int(ids[at])), ids[at + 1 :].tolist()
            equal_run = [drafted == token for drafted, token in zip(block, after, strict=False)]
            expected = [*equal_run, False].index(False)
            assert record.accepted_N[i] == expected
            lengths.append(expected)
    assert len(set(lengths)) > 2


def test_a_text_of_one_token_has_one_anchor_and_no_outcome(pair, texts):
    whole = texts[0]
    one = replace(whole, ids=whole.ids[: whole.prompt_len + 1])
    record = Recorder(pair[0], {"dspark": pair[1]}, temperature=1.0).record(one)["dspark"]
    assert record.accepted_N.tolist() == [0]
    assert np.isfinite(record.confidence_logit_NG).all()


def test_a_text_without_output_is_an_error(pair, texts):
    empty = replace(texts[0], ids=texts[0].ids[: texts[0].prompt_len])
    with pytest.raises(InputError, match="p0#0 has no output token"):
        Recorder(pair[0], {"dspark": pair[1]}, temperature=1.0).record(empty)


META = {
    "format": 1, "target": "tiny", "synthetic": False, "made": "recorded by the tests", "temperature": 1.0,
    "seed": SEED, "drafters": {"dspark": {"kind": "dspark", "gamma": GAMMA}},
}  # fmt: skip


def test_a_folder_keeps_what_is_done_and_becomes_a_trace(tmp_path, texts, records):
    folder = RecordingFolder(tmp_path / "parts", {"seed": SEED})
    for text, record in zip(texts, records, strict=True):
        assert not folder.has(text)
        folder.write(text, {"dspark": record})
    again = RecordingFolder(tmp_path / "parts", {"seed": SEED})
    assert all(again.has(text) for text in texts)
    read = [again.read(text, ["dspark"]) for text in texts]
    for got, record in zip(read, records, strict=True):
        equal(got["dspark"], record)
    write_trace(tmp_path / "tiny.parquet", build_trace("tiny", META, texts, read))
    trace = read_trace(tmp_path / "tiny.parquet")
    assert trace.request_id == [request_id(text) for text in texts]
    np.testing.assert_array_equal(trace.output_tokens_Q, [text.response_len for text in texts])
    np.testing.assert_array_equal(
        trace.drafter("dspark").accepted_N, np.concatenate([record.accepted_N for record in records])
    )


def test_a_folder_begun_otherwise_or_damaged_is_refused(tmp_path, texts, records):
    folder = RecordingFolder(tmp_path, {"seed": 1, "drafters": {"dspark": "abc"}})
    with pytest.raises(InputError, match="begun with seed = 1, now 2"):
        RecordingFolder(tmp_path, {"seed": 2, "drafters": {"dspark": "abc"}})
    folder.write(texts[0], {"dspark": records[0]})
    other = replace(texts[0], ids=texts[0].ids[::-1].copy())
    with pytest.raises(DataError, match="another text"):
        folder.read(other, ["dspark"])
    folder.path(texts[0]).write_bytes(b"PK nonsense")
    with pytest.raises(DataError, match="damaged"):
        folder.read(texts[0], ["dspark"])


@pytest.mark.parametrize("head", ["none", "vanilla", "gated", "rnn"])
def test_both_copies_of_a_block_keep_their_own_state(head):
    """Past the end of a text both blocks are free: each equals free drafting with its own numbers."""
    _, drafter = tiny_pair(6, vocab=VOCAB, gamma=GAMMA, draft_vocab=10, head=head)
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(50, GAMMA, drafter.config.block.hidden_size, generator=random)
    anchor = torch.randint(VOCAB, (50,), generator=random)
    uniform = torch.rand(50, GAMMA, 3, generator=random)
    ended = TextAhead(
        torch.full((50, GAMMA), PAST_END), torch.zeros(50, GAMMA), torch.zeros(50).long(), torch.zeros(1, 10)
    )
    step = BlockStep(drafter, ParallelBackbone(drafter, hidden), 1.0, 1.0)
    blocks = draft_blocks(step, anchor, ended, drafter.draft_ids, uniform)
    assert blocks.accepted_N.sum() == 0
    for tokens, column in ((blocks.coupled_NG, 1), (blocks.free_NG, 2)):
        fresh = BlockStep(drafter, ParallelBackbone(drafter, hidden), 1.0, 1.0)
        alone = draft_freely(fresh, anchor, uniform[..., column])
        assert torch.equal(tokens, drafter.to_full(alone.index_RG))
    assert not torch.equal(blocks.coupled_NG, blocks.free_NG)
