"""Tables and footnotes that people read."""

from __future__ import annotations

import copy

import pytest
from results_cases import ABOUT, make_point

from dspark_sim.results.frontier import frontier
from dspark_sim.results.notes import caption, footer, notes, same_model
from dspark_sim.results.tables import (
    WIDTH,
    fold_name,
    legend,
    matched_table,
    number,
    run_table,
    signed,
    sla_table,
    text_table,
)

SEEDS = (0, 1, 2)


def two_arms() -> list[dict]:
    """A baseline whose seeds differ, and an arm that is 25 % better in every seed."""
    base = {0: 100.0, 1: 110.0, 2: 90.0}
    return [
        *(make_point("off", 8, base[s], 10 * base[s], s) for s in SEEDS),
        *(
            make_point("dspark-async", 8, 1.25 * base[s], 12.5 * base[s], s, lossless="lossless-under-lag")
            for s in SEEDS
        ),
    ]


def test_the_run_table_shows_means_paired_changes_and_the_verdict():
    off, arm = run_table(two_arms(), "off").splitlines()[-2:]
    assert off.split()[:4] == ["8", "off", "1,000", "±248"]
    assert arm.split()[1:6] == ["dspark-async", "1,250", "±311", "+25.0%", "±0.0"]
    assert arm.split()[-1] == "lagged"


def test_one_seed_shows_no_interval():
    table = run_table([make_point("off", 8, 100.0, 1000.0)], "off")
    assert "±" not in table
    assert "±" not in legend([make_point("off", 8, 100.0, 1000.0)])[0]
    assert "3 replays" in legend(two_arms())[0]


def test_a_policy_that_is_not_lossless_cannot_be_overlooked():
    table = run_table([make_point("mine", 8, 100.0, 1000.0, lossless="not-lossless")], "mine")
    assert table.splitlines()[-1].endswith("NO")


def test_drafters_that_policies_tell_apart_get_a_note_and_no_column():
    points = [
        make_point(policy, 8, 100.0, 1000.0, drafter=drafter)
        for policy, drafter in (
            ("off", "dspark"),
            ("mtp:k=1", "eagle"),
            ("full", "dspark"),
            ("dspark", "dspark"),
        )
    ]
    words = "mtp:k=1 drafts with eagle, the others with dspark."
    assert "drafter" not in run_table(points, "off")
    assert words in notes(ABOUT, points)
    assert "mtp:k=1 drafts with eagle, full with dspark." in notes(ABOUT, points[:3])
    assert not any("drafts with" in line for line in notes(ABOUT, points[:2]))
    both = [*points, make_point("full", 8, 100.0, 1000.0, drafter="eagle")]
    assert "drafter" in run_table(both, "off")
    assert not any("drafts with" in line for line in notes(ABOUT, both))


def test_a_table_of_two_drafters_and_two_seeds_fits():
    points = [
        make_point(policy, 1024, 100.0, 12345.6 * (1 + seed), seed, drafter=drafter)
        for policy, drafter in (("off", "dspark"), ("mtp:k=1", "eagle"), ("dspark-async", "dspark"))
        for seed in (0, 1)
    ]
    assert max(map(len, run_table(points, "off").splitlines())) <= WIDTH


def test_two_drafters_get_a_column():
    points = [make_point("off", 8, 100.0, 1000.0), make_point("off", 8, 100.0, 1000.0, drafter="eagle")]
    assert "drafter" not in run_table(points[:1], "off")
    assert [line.split()[2] for line in run_table(points, "off").splitlines()[-2:]] == ["dspark", "eagle"]


def test_tables_stay_within_their_width():
    points = [
        make_point(policy, load, 100.0 - load / 10 + seed, 123456.0 + seed, seed)
        for policy in ("off", "mtp:k=1", "threshold:on=survival,at=0.4")
        for load in (1, 256)
        for seed in SEEDS
    ]
    document = frontier(points, "off", [50.0, 5000.0])
    for table in (run_table(points, "mtp:k=1"), sla_table(document), matched_table(document)):
        assert max(map(len, table.splitlines())) <= WIDTH + 10


def test_only_the_last_column_folds_and_no_cell_is_cut():
    rows = [{"a": "x" * 60, "b": "many words " * 8}]
    lines = text_table({"a": "<", "b": "<"}, rows).splitlines()
    assert "x" * 60 in lines[2]
    assert " ".join(line[60:].strip() for line in lines[2:]) == ("many words " * 8).strip()
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(None), "-"),
        (number(float("nan")), "-"),
        (number(12345.678), "12,346"),
        (number(0.5, 2), "0.50"),
        (signed(None), "-"),
        (signed(-3.14159), "-3.1%"),
        (signed(0.0, (-1.5, 1.5)), "+0.0% ±1.5"),
    ],
)
def test_numbers(shown, expected):
    assert shown == expected


def test_an_sla_that_is_not_met_is_said_in_words():
    points = [make_point(p, c, 100.0 / c, 100.0) for p in ("off", "full") for c in (1, 2)]
    document = frontier(points, "off", [500.0])
    assert "not met: fastest is 100.0" in sla_table(document)
    assert "baseline misses SLA" in matched_table(document)


def test_footnotes_say_what_is_synthetic_what_differs_and_what_mtp_means():
    found = notes(ABOUT, [make_point("off", 1, 1.0, 1.0), make_point("mtp:k=1", 1, 1.0, 1.0)])
    assert len(found) == 4
    assert found[0].startswith("SYNTHETIC trace")
    assert "acceptance comes from toy-1B, step cost from Box-8B" in found[1]
    assert "first k positions of the recorded block of dspark" in found[2]
    assert found[3] == "Assumed, not measured, in box: host.constant_ms."


def test_a_real_trace_of_the_profiles_model_needs_no_footnote():
    about = copy.deepcopy(ABOUT)
    about["trace"] |= {"synthetic": False, "target": "someone/box-8b"}
    about["profile"]["how"] = {"verify": "measured"}
    assert notes(about, two_arms()) == []
    assert "SYNTHETIC" not in " ".join([*caption(about), footer(about)])


def test_an_autoregressive_drafter_needs_no_word_about_mtp():
    points = [make_point("mtp:k=1", 1, 1.0, 1.0, drafter="eagle")]
    assert not any(note.startswith("mtp") for note in notes(ABOUT, points))


def test_captions_and_footers_say_synthetic():
    assert "SYNTHETIC toy" in caption(ABOUT)[0]
    assert footer(ABOUT).startswith("SYNTHETIC trace toy")


def test_models_are_the_same_but_for_case_organisation_and_punctuation():
    assert same_model("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2 135m instruct")
    assert not same_model("Qwen3-4B", "Qwen3-8B")


def test_long_names_fold_at_their_punctuation_so_that_the_table_fits():
    long = "./rules/of/my/team/mine.py:budget,on=survival,at=0.45,floor=2"
    cases = [make_point(policy, 256, 1000.5, 12345.0, seed) for policy in ("off", long) for seed in SEEDS]
    table = run_table(cases, "off")
    assert max(map(len, table.splitlines())) <= WIDTH
    assert "".join(line[7:].split("  ")[0] for line in table.splitlines()[4:]) == long
    assert fold_name("static:k=3", 12) == "static:k=3"
    assert "".join(fold_name(long, 12).split("\n")) == long


def test_a_change_known_badly_is_given_in_whole_percents():
    assert signed(138.31, (102.8, 173.8)) == "+138% ±36"
    assert signed(45.02, (44.3, 45.7)) == "+45.0% ±0.7"
    assert signed(145.02) == "+145.0%"


def test_headers_fold_at_their_spaces_where_a_table_is_too_wide():
    columns = {"trace": "<", "error of the survival": ">", "error after calibration": ">", "notes": "<"}
    rows = [
        {"trace": "chat", "error of the survival": "0.14", "error after calibration": "0.02", "notes": "-"}
    ]
    wide, narrow = text_table(columns, rows, 100), text_table(columns, rows, 50)
    assert "error of the survival" in wide
    assert max(map(len, narrow.splitlines())) <= 50
    for word in ("error", "survival", "calibration", "0.14"):
        assert word in narrow
