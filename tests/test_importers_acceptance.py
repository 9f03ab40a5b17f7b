"""Acceptance importers: every producer's names, the invariants, and the traps of meaning."""

import json

import numpy as np
import pytest
from importer_cases import SAMPLES, sample, written

from dspark_sim.errors import DataError, InputError
from dspark_sim.workload.acceptance import (
    AcceptanceRecords,
    read_acceptance,
    write_acceptance,
)
from dspark_sim.workload.importers.registry import import_file, importers

RECORD_SAMPLES = [
    ("vllm", "vllm_detailed.jsonl"),
    ("vllm", "vllm_summary.json"),
    ("aiperf", "aiperf.jsonl"),
    ("sglang", "sglang.jsonl"),
    ("tensorrt-llm", "tensorrt_llm.json"),
    ("vllm-bench", "vllm_bench.json"),
    ("sglang-bench:gamma=7", "sglang_bench.jsonl"),
]
#: vLLM's published example: 43 steps, 10 accepted of 129.
VLLM = json.loads((SAMPLES / "vllm_summary.json").read_text())["metrics"]["speculative_decoding"]
SGLANG = json.loads((SAMPLES / "sglang.jsonl").read_text().splitlines()[0])["meta_info"]
BENCH = json.loads((SAMPLES / "vllm_bench.json").read_text())


def refusal(tmp_path, spec, document):
    with pytest.raises(DataError) as caught:
        import_file(spec, written(tmp_path, "x.json", document))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("spec", "name"), RECORD_SAMPLES)
def test_every_sample_becomes_records_that_survive_a_round_trip(tmp_path, spec, name):
    records = sample(spec, name)
    assert isinstance(records, AcceptanceRecords)
    write_acceptance(tmp_path / "x.parquet", records)
    back = read_acceptance(tmp_path / "x.parquet")
    assert (back.summary, back.source) == (records.summary, records.source)
    if records.requests is None:
        assert back.requests is None
        return
    got, want = back.requests, records.requests
    assert got.request_id == want.request_id
    for field in ("completion_tokens_Q", "steps_Q", "drafted_Q", "accepted_Q", "histogram_QJ"):
        assert np.array_equal(getattr(got, field), getattr(want, field))
    assert (got.rounds is None) == (want.rounds is None)
    if want.rounds is not None:
        for field in ("offset_Q1", "accepted_M", "drafted_M"):
            assert np.array_equal(getattr(got.rounds, field), getattr(want.rounds, field))


def test_every_acceptance_format_has_a_sample():
    listed = {info.name for info in importers() if info.gives == "acceptance"}
    assert listed == {spec.partition(":")[0] for spec, _ in RECORD_SAMPLES}


def test_vllm_published_example():
    summary = sample("vllm", "vllm_summary.json").summary
    assert (summary.gamma, summary.rounds, summary.basis) == (3, 43, "histogram")
    assert summary.accepted_len == pytest.approx(1.2326, abs=5e-5)
    assert summary.conditional == (4 / 43, 3 / 4, 1.0)
    assert summary.survival == pytest.approx((4 / 43, 3 / 43, 3 / 43))
    assert summary.caveats == ()


def test_vllm_detailed_counts_a_position_only_where_it_was_verified():
    records = sample("vllm", "vllm_detailed.jsonl")
    # accepted 3 0 1 3 | 1 0 of drafted 3 3 1 3 | 2 3: position 2 was decided in rounds 1, 4 and 5 only.
    assert records.summary.reached == (6, 3, 2)
    assert records.summary.conditional == (4 / 6, 2 / 3, 1.0)
    assert records.summary.basis == "rounds"
    assert "83 %" in records.summary.caveats[0]
    assert records.requests.request_id == ["cmpl-1", "cmpl-2"]
    assert records.requests.completion_tokens_Q.tolist() == [12, 4]
    assert "requests without a round, skipped: 1" in records.source["notes"]


def test_a_histogram_of_trimmed_rounds_carries_the_warning_that_it_is_too_low(tmp_path):
    document = {**VLLM, "num_draft_tokens": 64, "draft_acceptance_rate": 10 / 64}
    summary = import_file("vllm", written(tmp_path, "x.json", document)).summary
    assert "only 50 % of full blocks" in summary.caveats[0]
    assert "too low" in summary.caveats[0]


def test_aiperf_reads_sparse_histograms_nested_or_flat_and_rates_in_percent():
    records = sample("aiperf", "aiperf.jsonl")
    assert records.requests.histogram_QJ.tolist() == [[39, 1, 0, 3], [2, 0, 1, 0]]
    assert records.requests.request_id == ["r-0", "r-1"]
    assert records.requests.completion_tokens_Q.tolist() == [54, -1]
    assert "records that print the rate in percent: 1" in records.source["notes"]
    assert "records that print the rate as a fraction: 1" in records.source["notes"]


def test_sglang_published_example_and_its_trap():
    records = sample("sglang", "sglang.jsonl")
    first = records.requests
    assert (first.accepted_Q[0], first.drafted_Q[0], first.steps_Q[0]) == (63, 215, 43)
    # 106 / 43 = 1 + 63 / 43 there; in the second record 10 / 4 = 2.5 is not 1 + 8 / 4 = 3.
    assert records.summary.accepted_len == pytest.approx(1 + (63 + 8 + 8) / (43 + 4 + 4))
    assert "records that print the length 1 + accepted / steps: 1" in records.source["notes"]
    assert "records that print the length completion tokens / steps: 2" in records.source["notes"]
    assert "proposed" in records.summary.caveats[0]


@pytest.mark.parametrize(
    ("ours", "names"),
    [
        ("spec_num_correct_drafts", ("spec_accepted_drafts", "spec_accept_token_num")),
        ("spec_num_proposed_drafts", ("spec_proposed_drafts", "spec_draft_token_num")),
        ("spec_correct_drafts_histogram", ("spec_accept_histogram",)),
    ],
)
def test_sglang_reads_every_alias_and_refuses_ones_that_differ(tmp_path, ours, names):
    want = import_file("sglang", written(tmp_path, "a.json", SGLANG)).summary
    for name in names:
        renamed = {name if key == ours else key: value for key, value in SGLANG.items()}
        assert import_file("sglang", written(tmp_path, "b.json", {"meta_info": renamed})).summary == want
        both = {**SGLANG, name: SGLANG[ours]}
        assert import_file("sglang", written(tmp_path, "c.json", both)).summary == want
        message = refusal(tmp_path, "sglang", {**SGLANG, name: 7})
        assert f"key '{name}': 7 differs from its alias '{ours}'" in message


def test_tensorrt_choices_are_requests():
    records = sample("tensorrt-llm", "tensorrt_llm.json")
    assert records.requests.steps_Q.tolist() == [43, 4]
    assert records.summary.gamma == 5
    assert "requests without a round, skipped: 1" in records.source["notes"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_spec_steps": 44}, "sum(histogram) = 43, but steps = 44"),
        ({"num_accepted_draft_tokens": 11}, "sum(j * histogram) = 10, but accepted = 11"),
        ({"num_draft_tokens": 9}, "accepted = 10 exceeds drafted = 9"),
        ({"acceptance_histogram": [39, 1, 0, 0, 3]}, "counts rounds of 4 accepted drafts, but a block has 3"),
        ({"acceptance_histogram": None}, "key 'acceptance_histogram': None: must be a list, or an object"),
        ({"acceptance_histogram": {"x": 1}}, "keys must be accepted drafts"),
        ({"acceptance_histogram": [39, 1, 0, -3]}, "-3: must be a whole number, at least 0"),
        ({"num_draft_tokens": None}, "key 'num_draft_tokens': None: must be a whole number"),
        ({"num_draft_tokens": "many"}, "key 'num_draft_tokens': 'many': must be a finite number"),
        ({"mean_acceptance_length": 1.5}, "mean length 1.5 matches no reading: 1.2326"),
        ({"draft_acceptance_rate": 0.2}, "acceptance rate 0.2 matches no reading: 0.0775"),
        ({"mean_acceptance_length": "long"}, "must be a finite number"),
        ({"per_step_accepted": [1], "per_step_drafted": [1]}, "per-step lists must be steps = 43 long"),
        ({"per_step_accepted": 3}, "3: must be a list, one a step"),
    ],
)
def test_records_that_contradict_themselves_are_refused(tmp_path, change, words):
    assert words in refusal(tmp_path, "vllm", {**VLLM, **change})


@pytest.mark.parametrize(
    ("accepted", "drafted", "words"),
    [
        ([3, 0, 1, 3], [3, 3, 0, 4], "a step accepted more than it drafted"),
        ([3, 0, 2, 2], [3, 3, 2, 2], "per-step accepted and histogram differ"),
        ([3, 0, 1, 3], [3, 3, 2, 3], "per-step drafted does not sum to drafted"),
    ],
)
def test_per_step_lists_must_agree_with_the_counts(tmp_path, accepted, drafted, words):
    first = json.loads((SAMPLES / "vllm_detailed.jsonl").read_text().splitlines()[0])
    first["metrics"]["speculative_decoding"] |= {"per_step_accepted": accepted, "per_step_drafted": drafted}
    assert words in refusal(tmp_path, "vllm", first)


def test_a_length_without_the_bonus_is_read_as_such(tmp_path):
    document = {**VLLM, "mean_acceptance_length": 0.2326}
    records = import_file("vllm", written(tmp_path, "x.json", document))
    assert records.summary.accepted_len == pytest.approx(1 + 10 / 43)
    assert "records that print the length without the bonus: 1" in records.source["notes"]


def test_files_without_a_record_say_what_was_looked_for(tmp_path):
    message = refusal(tmp_path, "vllm", {"choices": []})
    assert "no acceptance record with a round: looked for num_spec_steps" in message


def test_vllm_bench_reads_survivals_in_either_unit(tmp_path):
    summary = sample("vllm-bench", "vllm_bench.json").summary
    assert (summary.gamma, summary.rounds, summary.basis, summary.caveats) == (7, 10_000, "rates", ())
    assert summary.accepted_len == pytest.approx(3.4)
    assert summary.survival == pytest.approx((0.72, 0.54, 0.4, 0.3, 0.22, 0.14, 0.08))
    assert summary.conditional[1] == pytest.approx(0.75)
    percent = {**BENCH, "spec_decode_per_position_acceptance_rates": [72, 54, 40, 30, 22, 14, 8]}
    assert import_file("vllm-bench", written(tmp_path, "p.json", percent)).summary == summary


def test_vllm_bench_recognises_conditionals_by_their_sum(tmp_path):
    rates = BENCH["spec_decode_per_position_acceptance_rates"]
    conditional = [b / a for a, b in zip([1.0, *rates[:-1]], rates, strict=True)]
    document = {**BENCH, "spec_decode_per_position_acceptance_rates": conditional}
    records = import_file("vllm-bench", written(tmp_path, "c.json", document))
    assert records.summary.survival == pytest.approx(rates, abs=1e-3)
    assert (
        records.source["notes"][-1] == "per-position rates are survivals made from conditionals as fractions"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"spec_decode_acceptance_rate": 50.0},
            "50.0 is neither of: 0.3429 (a fraction), 34.2857 (in percent)",
        ),
        ({"spec_decode_acceptance_length": 5.0}, "5.0 is neither of: 3.4000 (with the bonus)"),
        (
            {"spec_decode_num_drafts": 0},
            "key 'spec_decode_num_drafts': 0: must be a whole number, at least 1",
        ),
        ({"spec_decode_accepted_tokens": 80_000}, "accepted 80000 exceeds drafted 70000"),
        ({"spec_decode_per_position_acceptance_rates": [0.9, 0.9]}, "sum to 1.8; survivals sum to"),
        (
            {"spec_decode_per_position_acceptance_rates": [0.54, 0.72, 0.4, 0.3, 0.22, 0.14, 0.08]},
            "never rise with the position",
        ),
        ({"spec_decode_per_position_acceptance_rates": []}, "must be a list of numbers"),
    ],
)
def test_vllm_bench_refusals(tmp_path, change, words):
    assert words in refusal(tmp_path, "vllm-bench", {**BENCH, **change})


def test_a_bench_of_trimmed_rounds_says_so(tmp_path):
    document = {**BENCH, "spec_decode_draft_tokens": 35_000, "spec_decode_acceptance_rate": None}
    summary = import_file("vllm-bench", written(tmp_path, "x.json", document)).summary
    assert summary.caveats == (
        "only 50 % of full blocks was drafted or verified: late positions count as rejected",
    )


def test_sglang_bench_has_one_mean_and_says_what_was_made_of_it():
    summary = sample("sglang-bench:gamma=7,run=1", "sglang_bench.jsonl").summary
    assert (summary.rounds, summary.reached, summary.basis) == (None, None, "geometric")
    assert 1 + sum(summary.survival) == pytest.approx(3.25)
    assert len(set(summary.conditional)) == 1
    assert "every position taken for alike" in summary.caveats[0]
    with pytest.raises(InputError, match="has 2 runs; run must be 0 to 1"):
        sample("sglang-bench:gamma=7,run=2", "sglang_bench.jsonl")
    with pytest.raises(DataError, match=r"3\.4: must be a mean accepted length in 1\.\.3"):
        sample("sglang-bench:gamma=2", "sglang_bench.jsonl")


def test_counts_that_cannot_be_are_refused(tmp_path):
    assert "at most" in refusal(tmp_path, "vllm", {**VLLM, "num_draft_tokens": 1e30})
    nothing = {"num_spec_steps": 3, "num_accepted_draft_tokens": 0, "num_draft_tokens": 0}
    assert "no record drafted a token" in refusal(tmp_path, "vllm", {**nothing, "acceptance_histogram": [3]})
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="nested too deeply"):
        import_file("vllm", tmp_path / "deep.json")


def test_an_empty_file_holds_nothing(tmp_path):
    (tmp_path / "empty.json").write_text("")
    for spec, words in {
        "vllm": "no acceptance record",
        "vllm-bench": "holds 0 documents",
        "sglang-bench:gamma=3": "holds no run",
        "sharegpt": "no conversation",
        "mooncake": "holds no request",
    }.items():
        with pytest.raises(DataError, match=words):
            import_file(spec, tmp_path / "empty.json")
