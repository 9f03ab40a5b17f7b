"""Comparisons: exact factors, paired intervals, reasons in words, one page."""

from __future__ import annotations

import re

import pytest
from results_cases import ABOUT, make_point
from test_report import made_detail

from dspark_sim.errors import InputError
from dspark_sim.results.compare import compare_document, differences
from dspark_sim.results.compare_words import compare_sentences, compare_table
from dspark_sim.results.details import DETAIL
from dspark_sim.results.page_compare import compare_page
from dspark_sim.results.store import Results

NAMES = ("before", "after")


def run(
    policy="static:k=3",
    scale=1.0,
    tau=2.5,
    step=10.0,
    eager=0.0,
    seeds=(0, 1, 2),
    loads=(8, 64),
    **about: object,
):
    """A run in which throughput is R tau / step, and seeds differ."""
    found = []
    for load in loads:
        for seed in seeds:
            gpu = scale * load * tau / step * (1 + 0.1 * seed)
            case = make_point(policy, load, gpu / load, gpu, seed, accepted_len=tau, step_ms=step)
            more = made_detail(policy, load) | {"eager": eager, "verify_ms": step - 3.0}
            found.append(case | {DETAIL: more})
    return Results(found, ABOUT | about)


def test_changes_are_paired_by_seed_and_multiply():
    row = compare_document(run(), run(tau=3.0, step=11.0), NAMES)["rows"][0]
    factors = {name: 1 + triple[0] / 100 for name, triple in row["change"].items()}
    assert factors["gpu"] == pytest.approx(factors["tau"] / factors["step"])
    mean, low, high = row["change"]["gpu"]
    assert (
        low == pytest.approx(mean, abs=1e-9) == pytest.approx(high, abs=1e-9)
    )  # pairs differ by nothing else
    assert (row["a"]["tau"][0], row["b"]["tau"][0]) == (2.5, 3.0)


def test_the_reasons_are_said_largest_first():
    a, b = run(), run(tau=3.0, step=40.0, eager=0.6)
    first = compare_sentences(compare_document(a, b, NAMES))[0]
    assert first.startswith("static:k=3, 8 users: throughput -70")
    assert "accepted length +20.0% (2.50 → 3.00)" in first
    assert "step time +300.0% (10.00 → 40.00 ms: forward pass +30.00, all else +0.00)" in first
    assert "past the capture limit in 0.0 → 60.0 % of steps" in first


def test_intervals_are_spoken_of_only_where_there_are_some():
    for seeds, there in (((0,), False), ((0, 1, 2), True)):
        page = compare_page(compare_document(run(seeds=seeds), run(tau=3.0, seeds=seeds), NAMES))
        assert ("± half the 95% interval" in page) is there


def test_the_largest_change_of_throughput_is_said_first():
    a, b = run(loads=(8, 64, 128)), run(loads=(8, 64, 128))
    for p in b.points:
        p["tok_per_s_per_gpu"] *= {8: 1.1, 64: 0.5, 128: 1.3}[p["concurrency"]]
    found = compare_document(a, b, NAMES)
    assert [re.findall(r"(\d+) users: throughput (\S+)%", s)[0] for s in compare_sentences(found)] == [
        ("64", "-50.0"), ("128", "+30.0"), ("8", "+10.0"),
    ]  # fmt: skip
    page = compare_page(found)
    assert "largest change of throughput first" in page


def test_what_did_not_change_is_counted_and_what_is_uncertain_says_so():
    assert compare_sentences(compare_document(run(), run(), NAMES)) == [
        "2 of 2 points are the same to the last digit."
    ]
    noisy = run()
    for p in noisy.points:
        p["tok_per_s_per_gpu"] *= {0: 0.9, 1: 1.0, 2: 1.1}[p["seed"]]
    sentences = compare_sentences(compare_document(run(), noisy, NAMES))
    assert all("the interval contains no change" in sentence for sentence in sentences)


def test_what_was_asked_differently_is_named_without_hashes():
    profile = ABOUT["profile"] | {"overrides": {"capture.limit": "512"}, "sha256": "cc"}
    [line] = differences(ABOUT, ABOUT | {"profile": profile})
    assert line == "profile: none → overrides capture.limit 512"
    other = ABOUT["trace"] | {"sha256": "dd"}
    assert differences(ABOUT, ABOUT | {"trace": other}) == ["trace: other content"]
    assert differences(ABOUT, ABOUT) == []
    document = compare_document(run(), run(trace=other), NAMES)
    assert document["same_texts"] is False
    assert "DIFFERENT traces" in compare_page(document)


def test_policies_that_differ_are_named():
    document = compare_document(run(), run("dspark"), NAMES)
    assert document["differs"] == ["policy: static:k=3 → dspark"]
    assert "nothing that was asked" not in compare_page(document)
    more = Results([*run("dspark").points, *run("off").points], ABOUT)
    assert compare_document(run("off"), more, NAMES)["differs"] == ["policy: none → dspark"]
    paired = compare_document(more, more, NAMES, [("off", "dspark")])
    assert paired["differs"] == ["policy: off → dspark"]
    assert compare_document(more, more, NAMES)["differs"] == []


def test_only_shared_loads_and_seeds_are_compared():
    document = compare_document(run(loads=(1, 8)), run(loads=(8, 64), seeds=(1, 2, 3)), NAMES)
    assert [(row["load"], row["seeds"]) for row in document["rows"]] == [(8, 2)]
    with pytest.raises(InputError, match="share no load and seed"):
        compare_document(run(loads=(1,)), run(loads=(8,)), NAMES)


def test_two_single_policies_are_compared_and_others_must_be_paired():
    assert compare_document(run(), run("dspark"), NAMES)["arms"][0]["name"] == "dspark against static:k=3"
    two = Results([*run("off").points, *run("full").points], ABOUT)
    with pytest.raises(InputError, match="share no policy"):
        compare_document(two, run("dspark"), NAMES)
    document = compare_document(two, run("dspark"), NAMES, [("off", "dspark")])
    assert [arm["name"] for arm in document["arms"]] == ["dspark against off"]
    with pytest.raises(InputError, match="B holds no full; it holds dspark"):
        compare_document(two, run("dspark"), NAMES, [("off", "full")])


def test_the_table_fits_and_shows_both_sides():
    table = compare_table(compare_document(run(), run(tau=3.0), NAMES))
    assert max(map(len, table.splitlines())) <= 100
    assert "2.50→3.00" in table
    assert "+20.0% ±0.0" in table


def test_folders_without_details_are_compared_by_what_they_have():
    bare = [{k: v for k, v in p.items() if k != DETAIL} for p in run().points]
    document = compare_document(Results(bare, ABOUT), run(tau=3.0), NAMES)
    assert [side["id"] for side in document["sides"]] == ["gpu", "tau", "budget", "step"]
    assert "past" not in compare_table(document)
    assert "accepted length +20.0%" in compare_sentences(document)[0]


def test_the_command_compares_folders_and_policies(command, toy_trace, tmp_path):
    base = ("--trace", toy_trace, "--hw", "h800.yaml", "--policy", "off", "--policy", "static:k=2")
    small = ("--concurrency", "1,8", "--output-tokens", 100)
    assert command("run", *base, *small, "--out", "a").code == 0
    assert command("run", *base, *small, "--set", "host.constant_ms=9", "--out", "b").code == 0
    done = command("compare", "a", "b", "--out", "c.html")
    assert done.code == 0
    assert "asked differently: profile" in done.out
    assert "step time" in done.out
    assert (tmp_path / "c.html").is_file()
    pair = command("compare", "a", "a", "--pair", "off=static:k=2", "--json").document
    assert pair["schema"] == "dspark-sim/compare/1"
    assert [arm["name"] for arm in pair["arms"]] == ["static:k=2 against off"]
    assert "expected POLICY=POLICY" in command("compare", "a", "b", "--pair", "offstatic").error
    assert "no such result folder" in command("compare", "a", "nowhere").error
