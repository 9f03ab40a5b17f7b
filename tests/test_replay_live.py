"""A replay of the dense trace has the law of live decoding: same toy pair, same prompts, permutation test.

The recorder that uses the forward rule, and the trace without a free block (a lagged budget that
peeks at the future), must both be refused by the same test.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_lossless import forward_rule
from tiny_pair import end_on, tiny_prompts, tiny_texts

from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import load_profile
from dspark_sim.model import verify
from dspark_sim.model.live import LiveDecoder, LiveSettings, decode_live
from dspark_sim.model.record import Recorder
from dspark_sim.model.record_store import build_trace
from dspark_sim.model.tiny import tiny_pair
from dspark_sim.policies.registry import parse_policy
from dspark_sim.replay_check import compare, one_text_a_prompt, replay_rounds
from dspark_sim.workload.rounds import Rounds, merge, read_rounds, write_rounds
from dspark_sim.workload.traces import Trace

TEMPERATURE = 1.0
MAX_NEW = 32
PROMPTS = tiny_prompts(100, vocab=13)
IDS = [prompt.prompt_id for prompt in PROMPTS]


@pytest.fixture(scope="module")
def pair():
    target, drafter = tiny_pair(3, vocab=13, gamma=4, draft_vocab=10)
    return end_on(target, 5), drafter


@pytest.fixture(scope="module")
def texts(pair):
    return tiny_texts(pair[0], PROMPTS, samples=4, max_new=MAX_NEW, temperature=TEMPERATURE)


@pytest.fixture(scope="module")
def trace(pair, texts) -> Trace:
    return recorded(pair, texts)


@pytest.fixture(scope="module")
def profile():
    """Every verified token costs something, so that budgets lie between nothing and everything."""
    found = load_profile("h800.yaml", None)
    verify_table = replace(found.verify, tokens=(1, 256), ms=(4.0, 93.0), lookup="linear", beyond="last_two")
    return replace(found, verify=verify_table, capture=replace(found.capture, sizes="table"))


def recorded(pair, texts) -> Trace:
    target, drafter = pair
    recorder = Recorder(target, {"dspark": drafter}, temperature=TEMPERATURE, seed=1)
    meta = {
        "format": 1, "target": "tiny", "synthetic": False, "made": "recorded by the tests",
        "temperature": TEMPERATURE, "seed": 1, "drafters": {"dspark": {"kind": "dspark", "gamma": 4}},
    }  # fmt: skip
    return build_trace("tiny", meta, texts, [recorder.record(text) for text in texts])


def lived(pair, profile, policy: str, concurrency: int, passes: int) -> Rounds:
    """Each prompt once a pass, in shuffled order, decoded live."""
    logs = []
    settings = LiveSettings(
        parse_policy(policy), profile, concurrency, temperature=TEMPERATURE, max_new_tokens=MAX_NEW, seed=10
    )
    for sample in range(passes):
        order = np.random.default_rng(sample).permutation(len(PROMPTS))
        decoder = LiveDecoder(*pair, settings, max_prompt_tokens=5)
        logs.append(decode_live(decoder, [(PROMPTS[n], sample) for n in order], meta={"policy": policy}))
    return merge(logs)


def replayed(trace: Trace, profile, policy: str, concurrency: int) -> Rounds:
    parts = one_text_a_prompt(trace, IDS)
    return merge([
        replay_rounds(part, profile, parse_policy(policy), concurrency=concurrency, seed=seed)
        for seed, part in enumerate(parts)
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "concurrency", "passes"),
    [("full", 16, 6), ("dspark", 16, 6), ("dspark-async:lag=2", 16, 6), ("dspark-async:lag=2", 4, 3),
     ("dspark-async:lag=2", 1, 1)],
)  # fmt: skip
def test_replay_agrees_with_live(pair, trace, profile, policy, concurrency, passes):
    live = lived(pair, profile, policy, concurrency, passes)
    result = compare(live, replayed(trace, profile, policy, concurrency))
    assert result.agrees, result.findings
    lengths = np.unique(live.verify_len_M)
    assert policy == "full" or len(lengths) > 2, "a policy that never varies tests nothing"


@pytest.fixture(scope="module")
def live_full(pair, profile):
    return lived(pair, profile, "full", 16, 6)


def test_a_trace_drawn_with_the_forward_rule_is_refused(pair, texts, profile, live_full, monkeypatch):
    monkeypatch.setattr(verify, "posterior_step", forward_rule)
    result = compare(live_full, replayed(recorded(pair, texts), profile, "full", 16))
    assert not result.agrees
    p_value = {finding.name: finding.p_value for finding in result.findings}
    assert p_value["accepted draft tokens"] < 0.001


def test_two_halves_of_the_same_live_log_agree(live_full):
    halves = [
        live_full.take(np.array([int(name.rpartition("#")[2]) % 2 == half for name in live_full.request_id]))
        for half in (0, 1)
    ]
    assert compare(*halves).agrees


def test_p_values_are_uniform_where_both_sides_are_alike(trace, profile):
    """Halves of a replay, split at random within prompts: the test may not refuse more often than it says."""
    rounds = replayed(trace, profile, "full", 16)
    p_values = []
    for seed in range(60):
        chosen = np.random.default_rng(seed).random((100, 4)).argsort(1).ravel() < 2
        side = dict(zip(trace.request_id, chosen, strict=True))
        rows = np.array([side[name] for name in rounds.request_id])
        result = compare(rounds.take(rows), rounds.take(~rows), permutations=99, seed=seed)
        p_values.append([finding.p_value for finding in result.findings if finding.name != "verify length"])
    share = np.mean(np.array(p_values) <= 0.2, axis=0)
    assert (share < 0.42).all(), share  # 0.2 expected of 60; 0.42 is more than four standard errors away


def test_no_common_prompt_is_an_error(live_full):
    other = replace(live_full, request_id=["x" + name for name in live_full.request_id])
    with pytest.raises(InputError, match="no prompt in common"):
        compare(live_full, other)


def test_a_trace_without_a_prompt_is_an_error(trace):
    with pytest.raises(InputError, match="no text of prompt 'nowhere'"):
        one_text_a_prompt(trace, ["p0", "nowhere"])


def test_a_log_survives_the_file(live_full, tmp_path):
    write_rounds(tmp_path / "live.parquet", live_full)
    again = read_rounds(tmp_path / "live.parquet")
    assert again.meta == live_full.meta
    assert again.request_id == live_full.request_id
    for name in ("anchor_M", "verify_len_M", "accepted_M", "confidence_logit_MG"):
        np.testing.assert_array_equal(getattr(again, name), getattr(live_full, name))


def test_live_rounds_tile_their_texts(pair, profile):
    """Each round starts where the last one ended: accepted + 1 tokens on, or at the end of the text."""
    settings = LiveSettings(
        parse_policy("dspark"), profile, 8, temperature=1.0, max_new_tokens=MAX_NEW, seed=4
    )
    decoder = LiveDecoder(*pair, settings, max_prompt_tokens=5)
    log = decode_live(decoder, [(prompt, 0) for prompt in PROMPTS[:30]], meta={})
    assert set(decoder.texts) == {f"p{n}#0" for n in range(30)}
    for name, text in decoder.texts.items():
        assert len(text) <= MAX_NEW
        assert 5 not in text[:-1]
        assert text[-1] == 5 or len(text) == MAX_NEW
        at = 0
        for row in [n for n, other in enumerate(log.request_id) if other == name]:
            assert log.anchor_M[row] == at
            assert log.accepted_M[row] <= min(log.verify_len_M[row], len(text) - 1 - at)
            at = min(at + log.accepted_M[row] + 1, len(text) - 1)
        assert at == len(text) - 1


def test_a_live_text_does_not_depend_on_its_batch(pair, profile):
    """Every request has its own stream: full-block texts are the same whatever runs beside them."""
    found = []
    for concurrency in (1, 8):
        settings = LiveSettings(
            parse_policy("full"), profile, concurrency, temperature=1.0, max_new_tokens=MAX_NEW, seed=4
        )
        decoder = LiveDecoder(*pair, settings, max_prompt_tokens=5)
        decode_live(decoder, [(prompt, 0) for prompt in PROMPTS[:12]], meta={})
        found.append(decoder.texts)
    assert found[0] == found[1]


def test_a_policy_that_needs_confidences_refuses_a_drafter_without_them(pair, profile):
    target, drafter = pair
    bare = type(drafter)(replace(drafter.config, confidence=False)).bind_target(target.embed, target.lm_head)
    with pytest.raises(InputError, match="needs confidences"):
        LiveDecoder(target, bare, LiveSettings(parse_policy("dspark"), profile, 2), max_prompt_tokens=5)
    assert LiveDecoder(target, bare, LiveSettings(parse_policy("full"), profile, 2), max_prompt_tokens=5)


def test_at_temperature_zero_live_text_is_greedy(pair, profile):
    target, _ = pair
    greedy = tiny_texts(target, PROMPTS[:20], samples=1, max_new=MAX_NEW, temperature=0.0)
    settings = LiveSettings(parse_policy("full"), profile, 8, temperature=0.0, max_new_tokens=MAX_NEW)
    decoder = LiveDecoder(*pair, settings, max_prompt_tokens=5)
    decode_live(decoder, [(prompt, 0) for prompt in PROMPTS[:20]], meta={})
    for text in greedy:
        assert decoder.texts[f"{text.prompt_id}#0"] == text.ids[text.prompt_len :].tolist()
