"""Comparisons of served requests: paired by rate and seed, reasons in words, one page."""

from __future__ import annotations

import copy
import re

import pytest
from served_cases import POLICIES, SERVED_ABOUT, served

from dspark_sim.errors import InputError
from dspark_sim.results.compare_served import compare_served_document
from dspark_sim.results.compare_served_words import (
    served_compare_question,
    served_compare_table,
    served_sentences,
)
from dspark_sim.results.page_compare import compare_served_page

NAMES = ("before", "after")
PAIR = [("off", "dspark-async")]


def changed(**changes: object):
    """The same runs with every figure of a name times a factor."""
    found = served()
    for run in found.runs:
        for name, factor in changes.items():
            run[name] = (
                {q: factor * v for q, v in run[name].items()}
                if isinstance(run[name], dict)
                else factor * run[name]
            )
    return found


def test_changes_are_paired_by_rate_and_seed():
    document = compare_served_document(served(), changed(tpot_ms=1.5), NAMES)
    assert len(document["rows"]) == 9
    for row in document["rows"]:
        assert row["change"]["tpot50"] == pytest.approx([50.0, 50.0, 50.0])
        assert row["change"]["within"] == [0.0, 0.0, 0.0]
        assert row["seeds"] == 2
    assert [row["x"] for row in document["rows"][:3]] == [10.5, 20.5, 30.5]


def test_shares_are_compared_by_difference():
    document = compare_served_document(served(), served(), NAMES, PAIR)
    row = document["rows"][1]
    assert (row["a"]["within"][0], row["b"]["within"][0]) == (60.0, 100.0)
    assert row["change"]["within"][0] == pytest.approx(40.0)
    assert document["points"] == ["within"]
    assert row["met"] == [False, True]


def test_the_reasons_are_said():
    sentences = served_sentences(compare_served_document(served(), served(), NAMES, PAIR))
    first = next(s for s in sentences if "20.5 requests/s" in s)
    assert first.startswith(
        "dspark-async against off, 20.5 requests/s: TPOT p50 -40.0% ±0.0 (10.1 → 6.0 ms), because"
    )
    assert "accepted length +200.0% (1.00 → 3.00)" in first
    assert "step time -40.0%" in first
    assert "TTFT p99 -66.7% ±0.0 (21 → 7 ms, of it queue 10 → 4)" in first
    assert "Within all SLOs 60.0 → 100.0 %, the objectives are now met" in first


def test_sentences_are_sorted_by_the_number_that_they_start_with():
    other = served()
    for run in other.runs:
        factor = {1.0: 1.1, 2.0: 1.5, 3.0: 1.2}[run["rate_scale"]]
        run["tpot_ms"] = {name: factor * ms for name, ms in run["tpot_ms"].items()}
        run["ttft_ms"] = {name: ms * (9.0 if factor < 1.2 else 1.0) for name, ms in run["ttft_ms"].items()}
    sentences = served_sentences(compare_served_document(served(), other, NAMES))
    shown = [float(re.search(r"TPOT p50 \+([0-9.]+)%", s)[1]) for s in sentences]
    assert len(shown) == 9
    assert shown == sorted(shown, reverse=True)
    assert (shown[0], shown[-1]) == (50.0, 10.0)


def test_what_did_not_change_is_counted():
    document = compare_served_document(served(), served(), NAMES)
    assert served_sentences(document) == ["9 of 9 runs are the same to the last digit."]
    assert document["differs"] == []


def test_what_was_asked_differently_is_named_and_other_traffic_is_said_loudly():
    about = copy.deepcopy(SERVED_ABOUT)
    about["serving"]["prefill"] = "separate"
    about["traffic"]["requests"] = 9
    document = compare_served_document(served(), served(about=about), NAMES)
    assert document["differs"] == [
        "serving: prefill mixed → prefill separate",
        "traffic: requests 2000 → requests 9",
    ]
    assert "DIFFERENT requests arrive" in served_compare_question(document)
    assert "serving: prefill mixed" in compare_served_page(document)


def test_goodput_is_compared_within_the_same_objectives_only():
    other = served(about=SERVED_ABOUT | {"slos": ["tpot_p99=9ms"]})
    document = compare_served_document(served(), other, NAMES)
    assert {"good", "within"}.isdisjoint(document["changes"])
    assert "objectives: tpot_p99=20ms, ttft_p99=500ms → tpot_p99=9ms" in document["differs"]
    assert 'id="within"' not in compare_served_page(document)


def test_what_shares_nothing_is_refused():
    with pytest.raises(InputError, match="share no rate scale and seed"):
        compare_served_document(served(scales=(1.0,)), served(scales=(2.0,)), NAMES)
    with pytest.raises(InputError, match="share no policy"):
        compare_served_document(served(POLICIES[:2]), served(POLICIES[2:]), NAMES)


def test_the_table_fits_a_terminal():
    table = served_compare_table(compare_served_document(served(), served(), NAMES, PAIR))
    assert max(map(len, table.splitlines())) <= 100
    assert "-40.0% ±0.0" in table


def test_the_command_compares_two_services(command, toy_trace, tmp_path):
    base = ("run", "--trace", toy_trace, "--hw", "h800.yaml", "--policy", "off", "--policy", "full",
            "--arrivals", "poisson:rate=20", "--requests", "24", "--seeds", "2")  # fmt: skip
    assert command(*base, "--out", "a").code == 0
    assert command(*base, "--set", "host.constant_ms=9", "--out", "b").code == 0
    done = command("compare", "a", "b", "--out", "c.html")
    assert done.code == 0
    assert "asked differently: profile" in done.out
    assert "TPOT p50 +" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert "b against a" in (tmp_path / "c.html").read_text()
    pair = command("compare", "a", "a", "--pair", "off=full", "--json").document
    assert (pair["schema"], pair["title"]) == ("dspark-sim/compare-served/1", "full against off")
