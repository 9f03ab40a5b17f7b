"""Pictures: deterministic, honest axes, one look per policy, names that hide nothing."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_cases import ABOUT, make_point

from dspark_sim import __version__
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import policies
from dspark_sim.results import plots, plots_hw, plots_sensitivity, plots_study, plots_validation
from dspark_sim.results.frontier import frontier
from dspark_sim.results.labels import overlap, spread_out, text_box
from dspark_sim.results.style import LOOKS, look, looks
from dspark_sim.validation.cases import Line, Panel

POLICIES = ("off", "mtp:k=1", "static:k=3", "full", "dspark", "dspark-async")


def points(seeds=(0,), loads=(1, 8, 64, 256)) -> list[dict]:
    """Curves of six policies that cross; `full` falls off a cliff at the last load."""
    return [
        make_point(
            policy,
            load,
            user=(speed := (80 + 40 * i) / (1 + load / (150 - 15 * i)) * (0.3 if cliff else 1) + seed),
            gpu=speed * load,
            seed=seed,
            verification_budget=1.0 + i,
        )
        for i, policy in enumerate(POLICIES)
        for load in loads
        for seed in seeds
        for cliff in [policy == "full" and load == 256]
    ]


def both(cases) -> list:
    document = frontier(cases, "off", [60.0, 75.0])
    return [plots.frontier_figure(cases, ABOUT, document), plots.load_figure(cases, ABOUT)]


@pytest.mark.parametrize("loads", [(1, 8, 64, 256), (64,)])
def test_the_same_points_are_the_same_bytes(tmp_path, loads):
    paths = [
        [
            path
            for i, figure in enumerate(both(points(loads=loads)))
            for path in plots.save(figure, tmp_path / run, f"f{i}")
        ]
        for run in ("a", "b")
    ]
    for first, second in zip(*paths, strict=True):
        assert first.read_bytes() == second.read_bytes()
        assert first.stat().st_size > 5000


def texts(figure) -> list:
    return [text for axes in figure.axes for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("loads", [(1, 8, 64, 256), (64,)])
def test_no_two_words_overlap_and_every_policy_is_named(seeds, loads):
    for figure in both(points(seeds, loads)):
        figure.draw_without_rendering()
        words = texts(figure)
        names = {text.get_text() for text in words} | {
            tick.get_text() for axes in figure.axes for tick in axes.get_yticklabels()
        }
        assert set(POLICIES) <= names
        boxes = [text_box(text) for text in words]
        for i, box in enumerate(boxes):
            assert not any(overlap(box, other) for other in boxes[:i]), words[i].get_text()
        assert all(box[0] >= 0 and box[2] <= figure.bbox.width for box in boxes)


def test_both_axes_of_the_frontier_and_all_lengths_start_at_zero():
    curve, load = both(points())
    [axes] = curve.axes
    assert axes.get_xlim()[0] == axes.get_ylim()[0] == 0
    assert all(axes.get_ylim()[0] == 0 for axes in load.axes)
    _, bars = both(points(loads=(64,)))
    assert all(axes.get_xlim()[0] == 0 for axes in bars.axes)


def test_anchors_are_vertical_lines_that_name_the_best_policy_there():
    curve, _ = both(points())
    [axes] = curve.axes
    upright = [
        line.get_xdata()[0]
        for line in axes.lines
        if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    ]
    assert {60.0, 75.0} <= set(upright)
    words = [text.get_text() for text in axes.texts if text.get_text().startswith("SLA")]
    assert len(words) == 2
    assert all("dspark-async +" in word for word in words)


def test_an_anchor_that_nothing_meets_says_so():
    cases = points()
    figure = plots.frontier_figure(cases, ABOUT, frontier(cases, "off", [295.0]))
    assert "SLA 295: not met" in [text.get_text() for text in texts(figure)]


def test_an_anchor_beyond_the_axes_is_written_at_the_edge_not_dropped():
    cases = points()
    figure = plots.frontier_figure(cases, ABOUT, frontier(cases, "off", [60.0, 9999.0]))
    assert "SLA 9999: not met →" in [text.get_text() for text in texts(figure)]


@pytest.mark.parametrize("slas", [[60.0, 75.0], [60.0, 62.0, 64.0, 66.0, 68.0, 200.0, 250.0]])
@pytest.mark.parametrize("loads", [(1, 8, 64, 256), (64,)])
def test_anchors_are_written_above_the_data_and_names_hide_no_point(slas, loads):
    cases = points((0, 1), loads)
    figure = plots.frontier_figure(cases, ABOUT, frontier(cases, "off", slas))
    figure.draw_without_rendering()
    [axes] = figure.axes
    words = {text.get_text(): text_box(text) for text in texts(figure)}
    above = [box for word, box in words.items() if word.startswith("SLA")]
    assert len(above) == len(slas)
    assert all(box[1] >= axes.bbox.y1 for box in above)
    assert not any(overlap(a, b) for i, a in enumerate(above) for b in above[:i])
    for line in axes.lines:
        for x, y in axes.transData.transform(np.column_stack(line.get_data())):
            for word, (left, bottom, right, top) in words.items():
                covered = left < x < right and bottom < y < top
                assert not covered or word.startswith("SLA"), word


def test_a_synthetic_trace_is_said_loudly_and_the_footer_names_sources():
    for figure in both(points()):
        words = [text.get_text() for text in figure.texts]
        assert "SYNTHETIC TRACE" in words
        assert any("toy-1B" in word and "Box-8B" in word and "dspark-sim" in word for word in words)
    real = ABOUT | {"trace": ABOUT["trace"] | {"synthetic": False}}
    assert "SYNTHETIC TRACE" not in [text.get_text() for text in plots.load_figure(points(), real).texts]


def test_a_policys_look_depends_on_its_spec_alone_and_rules_differ():
    assert len(set(LOOKS.values())) == len(LOOKS)
    assert len({look(f"static:k={k}").colour for k in range(1, 8)}) == 7
    assert look("dspark-async:lag=1") != look("dspark-async")
    assert look("./mine.py:rule,at=1").marker
    assert look("dspark") == look("dspark")


def test_every_shipped_rule_has_a_look_of_its_own():
    """A new rule gets a line in results/style.py: a colour of its family and a free shape."""
    assert [info.name for info in policies() if info.name not in LOOKS] == []


#: Machado, Oliveira and Fernandes (2009), severity 1: what linear RGB looks like without one kind of cone.
CONES = {
    "none missing": np.eye(3),
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}  # fmt: skip


def oklab(colour: str, cones) -> np.ndarray:
    """Return a colour as it is seen, in Oklab: distances there are about as large as they look."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(cones) @ linear, 0, 1)
    lms = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]] @ seen
    return [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]] @ np.cbrt(lms)


@pytest.mark.parametrize("cones", CONES)
def test_two_rules_that_look_alike_in_colour_differ_in_shape(cones):
    seen = {rule: oklab(colour, CONES[cones]) for rule, (colour, _) in LOOKS.items()}
    for one, other in itertools.combinations(LOOKS, 2):
        apart = float(np.linalg.norm(seen[one] - seen[other]))
        assert apart > 0.06 or LOOKS[one][1] != LOOKS[other][1], (one, other, apart)


def test_the_page_can_draw_every_shape():
    script = (Path(plots.__file__).parent / "page" / "dom.js").read_text()
    shapes = re.search(r"const MARKERS = {(.*?)};", script, re.DOTALL)[1]
    assert {marker for _, marker in LOOKS.values()} <= set(
        re.findall(r'^  "?([^":]+)"?:', shapes, re.MULTILINE)
    )


def test_a_frontier_names_its_baseline():
    cases = points()
    figure = plots.frontier_figure(cases, ABOUT, frontier(cases, "full", [60.0]))
    assert any("percentages against full" in text.get_text() for text in figure.texts)


def test_what_an_interval_is_stands_under_the_title():
    several, one = both(points((0, 1, 2))), both(points())
    words = [[text.get_text() for text in figure.texts] for figure in (*several, *one)]
    assert ["95 % intervals over 3 seeds" in " ".join(each) for each in words] == [True, True, False, False]


def drawn() -> dict:
    """Return pictures of the other commands."""
    rows = [
        {"value": value, "policy": policy, "point": {"tok_per_s": 1000.0 + 9 * i + value}}
        for i, policy in enumerate(("off", "static:k=3", "dspark-async"))
        for value in (0.5, 1, 2)
    ]
    steps = [("dspark-async", 2400.0), ("lag: none", 2390.0), ("foresight: bound", 2900.0)]
    x = np.array([1.0, 8.0, 64.0])
    lines = [
        Line("off", "off", x, 90 * x),
        Line("dspark-async", "dspark-async", x, 130 * x, band=(120 * x, 140 * x)),
        Line("paper", "dspark-async", x, 131 * x, measured=True),
    ]
    panels = [Panel("one", "users", "tok/s", lines), Panel("two", "users", "tok/s", lines[:1])]
    return {
        "sensitivity": plots_sensitivity.sensitivity_figure(
            rows, "noise", "Sensitivity", "a pair", synthetic=True
        ),
        "waterfall": plots_sensitivity.waterfall_figure(steps, "a pair on a box"),
        "case": plots_validation.case_figure(
            "Somebody's curves, predicted from " + "something else " * 7,
            panels,
            "arXiv 1234.5678, " + "figure and table " * 40,
        ),
        "hardware": plots_hw.profile_figure(load_profile("b300-tp4-dsv4-flash")),
    }


def test_every_picture_names_source_and_version_and_no_two_words_overlap():
    for name, figure in drawn().items():
        figure.draw_without_rendering()
        assert any(f"dspark-sim {__version__}" in text.get_text() for text in figure.texts), name
        words = [text for text in (*figure.texts, *texts(figure)) if text.get_text().strip()]
        boxes = [text_box(text) for text in words]
        for i, box in enumerate(boxes):
            covered = [words[j].get_text() for j in range(i) if overlap(box, boxes[j])]
            assert not covered, (name, words[i].get_text(), covered)
            assert 0 <= box[0] < box[2] <= figure.bbox.width, (name, words[i].get_text())
    labels = {name: [text.get_text() for text in texts(figure)] for name, figure in drawn().items()}
    assert {"off", "static:k=3", "dspark-async"} <= set(labels["sensitivity"])
    assert {"off", "dspark-async"} <= set(labels["case"])
    assert {"dspark, k=7", "mtp, k=1", "capture limit 1,024"} <= set(labels["hardware"])
    assert "SYNTHETIC TRACE" in [text.get_text() for text in drawn()["sensitivity"].texts]


def test_the_lengths_of_one_rule_are_told_apart():
    arms = [f"static:k={k}" for k in (1, 3, 5, 6)]
    found = looks(["off", *arms, "full"])
    assert len({found[arm].marker for arm in arms}) == len(arms)
    light = [sum(int(found[arm].colour[i : i + 2], 16) for i in (1, 3, 5)) for arm in arms]
    assert all(before - after > 60 for before, after in itertools.pairwise(light)), light
    assert found["off"] == look("off")
    assert looks(arms[:1]) == {arms[0]: look(arms[0])}


def test_the_same_picture_is_the_same_bytes(tmp_path):
    for kind in ("png", "svg"):
        paths = [tmp_path / f"{i}.{kind}" for i in (0, 1)]
        for path in paths:
            plots_hw.draw_profile(load_profile("h800"), path)
        assert paths[0].read_bytes() == paths[1].read_bytes()


@given(st.lists(st.floats(0, 500), min_size=1, max_size=8), st.floats(1, 40))
def test_spread_out_keeps_order_and_distance_and_moves_nothing_needlessly(wanted, gap):
    places = spread_out(np.array(wanted), gap)
    order = np.argsort(wanted, kind="stable")
    assert np.all(np.diff(places[order]) >= gap - 1e-6)
    if np.all(np.diff(np.sort(wanted)) >= gap):
        assert places == pytest.approx(wanted)
    assert np.sum(places - wanted) == pytest.approx(0.0, abs=1e-6)  # moves balance: least squares


def test_spread_out_stays_above_the_floor():
    assert spread_out(np.array([0.0, 1.0, 50.0]), 10.0, least=0.0).tolist() == [0.0, 10.0, 50.0]


def test_a_study_has_one_legend_categories_as_such_and_its_source_in_the_footer():
    curves = [
        plots_study.Curve(kind, kind, (1, 2), (2.0, 1.5), (1.9, 1.4), (2.1, 1.6))
        for kind in ("dspark", "dflash")
    ]
    panels = [
        plots_study.Panel("", "domain", "accepted length", curves, names=("math", "mean")),
        plots_study.Panel("", "domain", "accepted length", curves[:1]),
    ]
    figure = plots_study.study_figure("t", panels, "SYNTHETIC traces math")
    left, right = figure.axes
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["math", "mean"]
    assert left.get_ylim()[0] == right.get_ylim()[0] == 0.0
    assert (len(figure.legends), left.get_legend(), right.get_legend()) == (1, None, None)
    words = [text.get_text() for text in figure.texts]
    assert "SYNTHETIC TRACE" in words
    assert any("traces math" in word and "dspark-sim" in word for word in words)
    assert {look("dspark").colour, look("dflash").colour} <= {line.get_color() for line in left.lines}


def test_marks_of_measured_points_are_called_what_they_are():
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    lines = [Line("k1", "static:k=1", x, y, measured=measured) for measured in (False, True)]
    figure = plots_validation.case_figure("t", [Panel("", "users", "", lines)])
    assert any("hollow marks: measured" in text.get_text() for text in figure.texts)
    drawn = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert len({line.get_marker() for line in drawn}) == 1
    assert [line.get_markerfacecolor() == "none" for line in drawn] == [False, True]


def test_lines_of_several_drafters_are_explained():
    two = [case | {"drafter": drafter} for drafter in ("dspark", "mtp") for case in points()]
    for figure in both(two):
        assert any("drafters: whole dspark, dashed mtp" in text.get_text() for text in figure.texts)
    for figure in both(points()):
        assert not any("drafters:" in text.get_text() for text in figure.texts)
