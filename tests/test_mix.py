"""Mixed traces as demand: every request gets its tokens, from the right texts, in flat arrays."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dspark_sim.errors import InputError
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.join import join_traces
from dspark_sim.workload.mix import demand_of_mix, demand_of_workload, make_mix, parse_mix, read_mix
from dspark_sim.workload.synthetic import SynthDrafter, SynthSpec, synthesise
from dspark_sim.workload.trace_io import read_trace, write_trace
from dspark_sim.workload.workloads import Workload

LEVEL = 0.001


def synth(name, domain, seed, requests=30, output_tokens=20.0, gammas=(4, 3)):
    drafters = (
        SynthDrafter("dspark", "dspark", (0.8,) * gammas[0]),
        SynthDrafter("mtp", "mtp", (0.7,) * gammas[1]),
    )
    spec = SynthSpec(drafters, "a target", "a test", domain, requests, output_tokens, 50.0, seed=seed)
    return synthesise(spec, name)


CHAT, CODE = synth("chat", "chat", 1), synth("code", "code", 2, requests=50, output_tokens=40.0)


def lengths(output, domains=(), domain=None, prompt=None):
    output = np.array(output)
    index = None if domain is None else np.array(domain)
    prompt = np.full(len(output), 7) if prompt is None else np.array(prompt)
    return Workload("w", {}, None, prompt, output, None, index, domains)


def walk(mix, demand, q, drafter="dspark"):
    """Commit request q to its end as an engine would, one round at a time; return what was committed."""
    accepted_N = mix.trace.drafter(drafter).accepted_N
    stretch, end = demand.stretch_Q1[q : q + 2]
    committed, row = [], demand.first_S[stretch]
    while stretch < end:
        last = demand.last_S[stretch]
        while row < last:
            step = min(int(accepted_N[row]) + 1, last - row)
            committed.append(step)
            row += step
        stretch += 1
        row = demand.first_S[stretch] if stretch < end else row
    return committed


def test_specs_are_weights_that_sum_to_one():
    assert parse_mix(["chat.parquet=0.6", "a=b/code.parquet=0.6"]) == [
        ("chat.parquet", 0.5),
        ("a=b/code.parquet", 0.5),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chat.parquet"], "expected FILE=weight, as in --mix chat.parquet=0.6"),
        (["=0.5"], "expected FILE=weight"),
        (["chat.parquet=much"], "expected FILE=weight"),
        (["chat.parquet=0"], "must be a finite number above 0"),
        (["chat.parquet=-1"], "must be a finite number above 0"),
        (["chat.parquet=nan"], "must be a finite number above 0"),
        (["chat.parquet=inf"], "must be a finite number above 0"),
        (["chat.parquet=1", "chat.parquet=2"], "given twice; say it once"),
    ],
)
def test_bad_specs_are_refused(words, message):
    with pytest.raises(InputError) as caught:
        parse_mix(words)
    assert message in str(caught.value)


def test_a_mix_of_files(tmp_path):
    for trace in (CHAT, CODE):
        write_trace(tmp_path / f"{trace.name}.parquet", trace)
    mix = read_mix([f"{tmp_path / 'chat.parquet'}=3", f"{tmp_path / 'code.parquet'}=1"])
    assert (mix.labels, mix.weights) == (("chat", "code"), (0.75, 0.25))
    with pytest.raises(InputError, match="no such file"):
        read_mix([f"{tmp_path / 'nowhere.parquet'}=1"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.integers(0, 2**31))
def test_every_request_commits_exactly_its_tokens(output, seed):
    mix = make_mix([CHAT, CODE], [0.6, 0.4])
    demand = demand_of_workload(mix, lengths(output), seed)
    assert len(demand) == len(output)
    assert demand.output_tokens_Q.tolist() == output
    decode_S = demand.last_S - demand.first_S
    assert (demand.stretch_Q1[1:] > demand.stretch_Q1[:-1]).all()
    assert (np.add.reduceat(decode_S, demand.stretch_Q1[:-1]) == np.array(output) - 1).all()
    for q in range(len(output)):
        assert sum(walk(mix, demand, q)) == output[q] - 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.integers(0, 2**31))
def test_stretches_are_whole_texts_of_one_trace_and_only_the_last_is_cut(output, seed):
    mix = make_mix([CHAT, CODE], [0.6, 0.4])
    demand, trace = demand_of_workload(mix, lengths(output), seed), mix.trace
    request_S = np.repeat(np.arange(len(output)), np.diff(demand.stretch_Q1))
    text_S = trace.request_N[demand.first_S]
    assert (demand.first_S == trace.offset_Q1[text_S]).all()
    assert (demand.last_S < trace.offset_Q1[text_S + 1]).all()
    inner = np.ones(len(text_S), dtype=bool)
    inner[demand.stretch_Q1[1:] - 1] = False
    assert (demand.last_S == trace.offset_Q1[text_S + 1] - 1)[inner].all()
    source_S = np.searchsorted(mix.text_T1, text_S, side="right") - 1
    assert (source_S == demand.source_Q[request_S]).all()
    assert (text_S[demand.stretch_Q1[:-1]] == demand.text_Q).all()


def test_a_whole_text_commits_as_a_replay_of_the_trace_does():
    mix = make_mix([CHAT])
    demand = demand_of_mix(mix, 200, seed=4)
    assert (demand.output_tokens_Q == CHAT.output_tokens_Q[demand.text_Q]).all()
    assert (demand.prompt_tokens_Q == CHAT.prompt_tokens_Q[demand.text_Q]).all()
    assert (np.diff(demand.stretch_Q1) == 1).all()
    accepted, remaining = CHAT.drafter("dspark").accepted_N, CHAT.remaining_N
    for q in range(20):
        row, end = CHAT.offset_Q1[demand.text_Q[q] : demand.text_Q[q] + 2]
        rounds = []
        while row < end - 1:
            rounds.append(min(int(accepted[row]) + 1, remaining[row]))
            row += rounds[-1]
        assert walk(mix, demand, q) == rounds


def test_a_cut_shortens_every_output():
    mix = make_mix([CHAT, CODE])
    cut = demand_of_workload(mix, lengths([1, 5, 500]), 0, max_output_tokens=5)
    assert cut.output_tokens_Q.tolist() == [1, 5, 5]
    assert demand_of_mix(mix, 50, 0, max_output_tokens=3).output_tokens_Q.max() == 3
    with pytest.raises(InputError, match="max_output_tokens is 0"):
        demand_of_mix(mix, 5, 0, max_output_tokens=0)
    with pytest.raises(InputError, match="0 requests; must be at least 1"):
        demand_of_mix(mix, 0, 0)


def test_weights_and_texts_are_drawn_with_their_chances():
    mix = make_mix([CHAT, CODE], [3, 1])
    demand = demand_of_mix(mix, 20_000, seed=6)
    assert stats.binomtest(int((demand.source_Q == 0).sum()), 20_000, 0.75).pvalue > LEVEL
    counts = np.bincount(demand.text_Q[demand.source_Q == 1] - mix.text_T1[1], minlength=50)
    usable = (CODE.output_tokens_Q > 1).sum()
    assert usable == 50
    assert stats.chisquare(counts).pvalue > LEVEL


def test_texts_that_a_request_goes_on_with_are_drawn_afresh_by_place_and_by_seed():
    mix = make_mix([CODE])
    demand = demand_of_workload(mix, lengths([200] * 4000), 0)
    text_S = mix.trace.request_N[demand.first_S]
    second, third = text_S[demand.stretch_Q1[:-1] + 1], text_S[demand.stretch_Q1[:-1] + 2]
    assert stats.chisquare(np.bincount(second, minlength=50)).pvalue > LEVEL
    assert (second == third).mean() < 0.05
    other = demand_of_workload(mix, lengths([200] * 4000), 1)
    again = mix.trace.request_N[other.first_S][other.stretch_Q1[:-1] + 1]
    assert (second == again).mean() < 0.05


def test_a_known_domain_replays_its_own_texts_and_an_unknown_one_any():
    mix = make_mix([CHAT, CODE], [0.5, 0.5])
    domain = np.arange(6000) % 3
    demand = demand_of_workload(mix, lengths([90] * 6000, ("chat", "code", "poetry"), domain), 1)
    assert demand.unknown_domains == ("poetry",)
    label = np.array(mix.trace.domain)
    request_S = np.repeat(np.arange(6000), np.diff(demand.stretch_Q1))
    text_S = mix.trace.request_N[demand.first_S]
    for index, name in enumerate(("chat", "code")):
        assert set(label[text_S[domain[request_S] == index]]) == {name}
    assert stats.binomtest(int((demand.source_Q[domain == 2] == 0).sum()), 2000, 0.5).pvalue > LEVEL


def test_the_same_seed_gives_the_same_demand_and_a_longer_run_begins_with_it():
    mix = make_mix([CHAT, CODE])
    few, many = demand_of_mix(mix, 50, 3), demand_of_mix(mix, 80, 3)
    assert np.array_equal(few.text_Q, many.text_Q[:50])
    assert np.array_equal(few.first_S, demand_of_mix(mix, 50, 3).first_S)
    assert not np.array_equal(few.text_Q, demand_of_mix(mix, 50, 4).text_Q)


def test_a_million_requests_are_a_second_of_work_and_a_few_arrays():
    random = np.random.default_rng(0)
    mix = make_mix([CHAT, CODE])
    demand = demand_of_workload(mix, lengths(random.integers(1, 100, 1_000_000)), 0)
    assert np.sum(demand.last_S - demand.first_S) == demand.output_tokens_Q.sum() - 10**6
    arrays = [value for value in vars(demand).values() if isinstance(value, np.ndarray)]
    assert len(arrays) == 7
    assert sum(array.nbytes for array in arrays) < 150e6


def test_texts_of_one_token_cannot_carry_a_mix():
    short = replace(CHAT, output_tokens_Q=np.ones_like(CHAT.output_tokens_Q))
    with pytest.raises(InputError, match="no text is longer than the one token of prefill"):
        make_mix([short])


def test_texts_far_too_short_are_refused_not_walked_for_ever():
    tiny = synth("tiny", "tiny", 3, requests=1, output_tokens=2.0)
    decode = int(tiny.output_tokens_Q[0]) - 1
    most = decode * 10_000 + 1
    assert len(demand_of_workload(make_mix([tiny]), lengths([most]), 0).first_S) == 10_000
    with pytest.raises(InputError, match=f"texts are too short for an output of {most + 1} tokens"):
        demand_of_workload(make_mix([tiny]), lengths([most + 1]), 0)


def test_a_joint_trace_is_a_valid_trace_with_the_columns_of_its_parts(tmp_path):
    joint = join_traces([CHAT, CODE])
    assert joint.name == "chat+code"
    assert joint.synthetic
    write_trace(tmp_path / "joint.parquet", joint)
    assert read_trace(tmp_path / "joint.parquet").content_hash == joint.content_hash
    rows = len(CHAT.request_N)
    for name in ("dspark", "mtp"):
        assert np.array_equal(joint.drafter(name).accepted_N[:rows], CHAT.drafter(name).accepted_N)
        assert np.array_equal(joint.drafter(name).accepted_N[rows:], CODE.drafter(name).accepted_N)
    for free in (False, True):
        survival = joint.drafter("dspark").survival_NG(free)
        assert np.array_equal(survival[:rows], CHAT.drafter("dspark").survival_NG(free))
        assert np.array_equal(survival[rows:], CODE.drafter("dspark").survival_NG(free))
    assert join_traces([CHAT]) is CHAT


def test_differing_calibrations_are_applied_to_the_joint_logits():
    fitted = CODE.with_calibration("dspark", Calibration((2.0,) * 4, (0.5,) * 4, "bias"))
    joint = join_traces([fitted, CHAT]).drafter("dspark")
    parts = [trace.drafter("dspark") for trace in (fitted, CHAT)]
    for free in (False, True):
        want = np.concatenate([part.confidence_NG(free) for part in parts])
        assert np.abs(joint.confidence_NG(free) - want).max() < 2e-4
    assert joint.calibration == Calibration.identity(4)


def test_only_common_drafters_remain_and_what_differs_is_refused():
    less = replace(CODE, drafters={"dspark": CODE.drafter("dspark")})
    assert list(join_traces([CHAT, less]).drafters) == ["dspark"]
    other = replace(CODE, drafters={"eagle": CODE.drafter("mtp")})
    with pytest.raises(InputError, match=r"no drafter in common \(chat: dspark, mtp; code: eagle\)"):
        join_traces([CHAT, other])
    with pytest.raises(InputError, match=r"differ in gamma of drafter 'mtp' \(chat: 3, code: 2\)"):
        join_traces([CHAT, synth("code", "code", 2, gammas=(4, 2))])
    warm = replace(CODE, meta={**CODE.meta, "temperature": 0.0})
    with pytest.raises(InputError, match=r"differ in temperature \(chat: 1\.0, code: 0\.0\)"):
        join_traces([CHAT, warm])
