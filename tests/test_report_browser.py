"""Pages in a real browser: silent, offline, usable by keyboard, right at two widths and in both themes."""

from __future__ import annotations

import copy

import pytest
from browser import OVERFLOW, OVERLAPS, Browser
from test_report import EVIL, document, points, results

from dspark_sim.results.compare import compare_document
from dspark_sim.results.page_compare import compare_page
from dspark_sim.results.page_report import report_page

CHARTS = ("frontier", "throughput", "budget", "stairs", "conditional", "positions", "reliability", "latency")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The report and the comparison as files; strings of the trace are hostile."""
    folder = tmp_path_factory.mktemp("pages")
    about = copy.deepcopy(results().about)
    about["trace"] |= {"name": EVIL, "made": EVIL}
    found = results(about=about)
    (folder / "report.html").write_text(report_page(document(found)), encoding="utf-8")
    pair = compare_document(
        found, results(points=points(seeds=(0, 1))), ("before", "after"), [("off", "static:k=3")]
    )
    (folder / "compare.html").write_text(compare_page(pair), encoding="utf-8")
    return folder


def text(tab: Browser, selector: str) -> str:
    return tab.run(f"document.querySelector({selector!r}).textContent")


def test_the_report_draws_silently_and_offline_at_two_widths_and_in_both_themes(tab, pages, tmp_path):
    grounds = set()
    for width, dark in ((1200, False), (390, True)):
        tab.open(pages / "report.html", width=width, dark=dark)
        assert tab.run(OVERFLOW) <= 0
        for chart in CHARTS:
            assert tab.run(f"document.querySelectorAll('#{chart} .series').length") >= 1, chart
            assert tab.run(f"document.querySelector('#{chart} svg').getBoundingClientRect().width") <= width
        grounds.add(tab.run("getComputedStyle(document.body).backgroundColor"))
        assert tab.screenshot(tmp_path / f"{width}.png").stat().st_size > 50_000
    assert len(grounds) == 2
    assert tab.errors == []
    assert tab.outside_requests() == []


def test_words_in_a_chart_do_not_overlap(tab, pages):
    for width in (1200, 390):
        tab.open(pages / "report.html", width=width)
        assert tab.run(OVERLAPS) == []


def test_a_policy_switches_off_everywhere_and_on_again(tab, pages):
    tab.open(pages / "report.html")
    count = "document.querySelectorAll('#frontier .series').length"
    rows = "document.querySelectorAll('#table tbody tr').length"
    before = tab.run(count), tab.run(rows)
    tab.run("document.querySelector('.chip').click()")
    assert (tab.run(count), tab.run(rows)) == (before[0] - 1, before[1] - 4)
    assert tab.run("document.querySelector('.chip').getAttribute('aria-pressed')") == "false"
    tab.run("document.querySelector('.chip').click()")
    assert (tab.run(count), tab.run(rows)) == before


def test_an_sla_is_chosen_by_line_by_button_and_by_keyboard(tab, pages):
    tab.open(pages / "report.html")
    assert "Read at 60 tok/s/user" in text(tab, "#readings caption")
    tab.run("document.querySelectorAll('#frontier .anchor')[1].dispatchEvent(new MouseEvent('click'))")
    assert "Read at 120 tok/s/user" in text(tab, "#readings caption")
    tab.run("document.querySelectorAll('button.sla')[2].click()")
    assert "Read at 900 tok/s/user" in text(tab, "#readings caption")
    assert "not met: fastest is" in text(tab, "#readings tbody")
    tab.run("document.querySelectorAll('#frontier .anchor')[0].focus()")
    tab.press("Enter")
    assert "Read at 60 tok/s/user" in text(tab, "#readings caption")
    assert tab.run("document.activeElement.classList.contains('anchor')")


def test_points_are_told_to_the_pointer_and_to_the_keyboard(tab, pages):
    tab.open(pages / "report.html")
    tab.run("document.querySelector('#frontier').scrollIntoView()")
    tab.run("document.querySelector('#frontier svg').focus()")
    tab.press("ArrowRight")
    first = text(tab, "#frontier .tip")
    assert "users" in first
    assert "accepted length" in first
    assert "tok/s/GPU" in first
    tab.press("ArrowRight")
    second = text(tab, "#frontier .tip")
    assert second != first
    tab.press("ArrowDown")
    assert text(tab, "#frontier .tip b") != "off" or text(tab, "#frontier .tip") != second
    tab.press("Escape")
    assert tab.run("document.querySelector('#frontier .tip').hidden")
    where = tab.run(
        "(() => { const b = document.querySelector('#frontier .dot').getBoundingClientRect();"
        " return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    tab.point_at(*where)
    assert not tab.run("document.querySelector('#frontier .tip').hidden")


def test_the_table_sorts_and_comes_as_csv(tab, pages):
    tab.open(pages / "report.html")
    tab.run(
        "[...document.querySelectorAll('#table th button')]"
        ".find((b) => b.textContent === 'throughput').click()"
    )
    assert tab.run("document.querySelector('#table th[aria-sort]').getAttribute('aria-sort')") == "descending"
    speeds = tab.run(
        "[...document.querySelectorAll('#table tbody tr')]"
        ".map((r) => Number(r.children[2].textContent.split(' ')[0].replaceAll(',', '')))"
    )
    assert speeds == sorted(speeds, reverse=True)
    lines = tab.run("csv()").splitlines()
    assert len(lines) == 1 + len(speeds)
    assert lines[0].startswith(
        "users,drafter,policy,seeds,throughput [tok/s/GPU],throughput [tok/s/GPU] low95"
    )
    assert all(line.count(",") == lines[0].count(",") for line in lines)


def test_the_table_starts_narrow_and_the_policy_stays_in_sight(tab, pages):
    head = "document.querySelectorAll('#table thead th').length"
    for width in (1280, 390):
        tab.open(pages / "report.html", width=width)
        room = "(({ clientWidth: w, firstChild: t }) => w - t.scrollWidth)(byId('table'))"
        if width == 1280:
            assert tab.run(room) >= 0
        few = tab.run(head)
        tab.run("byId('columns').click()")
        assert tab.run(head) == few + 5
        assert tab.run("byId('columns').getAttribute('aria-expanded')") == "true"
        tab.run("document.querySelector('#table').scrollLeft = 9999")
        name = tab.run("document.querySelector('#table tbody th').getBoundingClientRect().left")
        assert name == pytest.approx(
            tab.run("document.querySelector('#table').getBoundingClientRect().left"), abs=2
        )
        tab.run("byId('columns').click()")
        assert tab.run(head) == few


def test_the_load_and_the_theme_can_be_chosen(tab, pages):
    tab.open(pages / "report.html")
    lanes = "[...document.querySelectorAll('#stairs .mean')].map((m) => m.getAttribute('d')).join()"
    before = tab.run(lanes)
    tab.run("(() => { const s = byId('load'); s.value = '8'; s.dispatchEvent(new Event('change')); })()")
    assert tab.run(lanes) != before
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.run(ground)
    tab.run("byId('theme').click()")
    assert tab.run(ground) != light


def test_every_control_is_reached_by_tab(tab, pages):
    tab.open(pages / "report.html")
    seen = set()
    for _ in range(24):
        tab.press("Tab")
        seen.add(tab.run("(({ id, className: c }) => id || c.baseVal || c)(document.activeElement)"))
    assert {"theme", "load", "chart"} <= seen
    assert any("sla" in name for name in seen)
    assert any("chip" in name for name in seen)
    assert any("anchor" in name for name in seen)


def test_the_comparison_draws_silently_and_offline(tab, pages, tmp_path):
    for width, dark in ((1200, True), (390, False)):
        tab.open(pages / "compare.html", width=width, dark=dark)
        assert tab.run(OVERFLOW) <= 0
        assert all(
            tab.run(f"document.querySelectorAll('#{c} .series').length") == 1 for c in ("gpu", "tau", "step")
        )
        assert tab.screenshot(tmp_path / f"compare-{width}.png").stat().st_size > 30_000
        room = "(({ clientWidth: w, firstChild: t }) => w - t.scrollWidth)(byId('table'))"
        assert width < 1000 or tab.run(room) >= 0
        few = tab.run("document.querySelectorAll('#table thead th').length")
        tab.run("byId('columns').click()")
        assert tab.run("document.querySelectorAll('#table thead th').length") == few + 3
    assert "static:k=3 against off" in text(tab, "#chips")
    assert tab.errors == []
    assert tab.outside_requests() == []


def test_a_table_that_goes_on_at_the_right_says_so_with_a_shade_at_its_edge(tab, pages):
    """The shade stands at the edge; its cover scrolls along, and lies on it at the end of the table."""
    tab.open(pages / "report.html", width=390)
    wide = "document.querySelector('#table')"
    assert tab.run(f"{wide}.scrollWidth > {wide}.clientWidth")
    assert tab.run(f"getComputedStyle({wide}).backgroundAttachment") == "local, scroll"
    assert tab.run(f"getComputedStyle({wide}).backgroundImage.split('linear-gradient').length") == 3
    assert tab.errors == []
