"""Pages of served requests in a real browser: silent, offline, usable by keyboard, right at two widths."""

from __future__ import annotations

import copy

import pytest
from browser import OVERFLOW, OVERLAPS
from served_cases import SERVED_ABOUT, served
from test_report import EVIL
from test_report_browser import text

from dspark_sim.results.compare_served import compare_served_document
from dspark_sim.results.page_compare import compare_served_page
from dspark_sim.results.page_served import served_page
from dspark_sim.results.report_served import served_document

CHARTS = ("within", "goodput", "ttft", "tpot", "e2e", "queue", "waiting", "kv", "preempted", "ttft-d",
          "tpot-d", "e2e-d", "itl-d", "waiting-t", "users-t", "kv-t")  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The report, that of one burst, and the comparison as files; strings of the trace are hostile."""
    folder = tmp_path_factory.mktemp("served")
    about = copy.deepcopy(SERVED_ABOUT)
    about["trace"] |= {"name": EVIL, "made": EVIL}
    found = served(about=about)
    (folder / "report.html").write_text(served_page(served_document(found, "off")), encoding="utf-8")
    burst = served(scales=(1.0,))
    for run in burst.runs:
        run["offered_per_s"] = None
    (folder / "burst.html").write_text(served_page(served_document(burst, "off")), encoding="utf-8")
    pair = compare_served_document(found, served(), ("before", "after"), [("off", "static:k=3")])
    (folder / "compare.html").write_text(compare_served_page(pair), encoding="utf-8")
    return folder


def test_it_draws_silently_and_offline_at_two_widths_and_in_both_themes(tab, pages, tmp_path):
    grounds = set()
    for width, dark in ((1280, False), (390, True)):
        tab.open(pages / "report.html", width=width, dark=dark)
        assert tab.run(OVERFLOW) <= 0
        for chart in CHARTS:
            assert tab.run(f"document.querySelectorAll('#{chart} .series').length") == 3, chart
            assert tab.run(f"document.querySelector('#{chart} svg').getBoundingClientRect().width") <= width
        assert tab.run(OVERLAPS) == []
        assert "NaN" not in tab.run("document.querySelector('main').innerHTML")
        grounds.add(tab.run("getComputedStyle(document.body).backgroundColor"))
        assert tab.screenshot(tmp_path / f"{width}.png").stat().st_size > 50_000
    assert len(grounds) == 2
    for name in ("burst", "compare"):
        for width in (1280, 390):
            tab.open(pages / f"{name}.html", width=width)
            assert tab.run(OVERFLOW) <= 0
            assert tab.run(OVERLAPS) == []
            assert "NaN" not in tab.run("document.querySelector('main').innerHTML")
    assert tab.errors == []
    assert tab.outside_requests() == []


def test_a_rate_is_chosen_by_button_and_by_list_and_the_quantile_too(tab, pages):
    tab.open(pages / "report.html")
    assert "At 30.5 requests/s" in text(tab, "#readings caption")
    tab.run("document.querySelectorAll('button.sla')[0].click()")
    assert "At 10.5 requests/s" in text(tab, "#readings caption")
    assert tab.run("byId('load').value") == "1"
    tab.run("(() => { const s = byId('load'); s.value = '2'; s.dispatchEvent(new Event('change')); })()")
    assert "At 20.5 requests/s" in text(tab, "#readings caption")
    assert tab.run("document.querySelectorAll('button.sla')[1].getAttribute('aria-pressed')") == "true"
    before = tab.run("document.querySelector('#tpot .name:last-of-type').textContent")
    tab.run("(() => { const s = byId('quantile'); s.value = '50'; s.dispatchEvent(new Event('change')); })()")
    after = tab.run("document.querySelector('#tpot .name:last-of-type').textContent")
    assert ("p99" in before, "p50" in after) == (True, True)


def test_objectives_are_drawn_as_lines_and_missed_ones_are_marked(tab, pages):
    tab.open(pages / "report.html")
    assert text(tab, "#tpot .bound") == "tpot p99 ≤ 20 ms"
    assert text(tab, "#tpot-d .anchor text") == "tpot p99 ≤ 20 ms"
    assert "missed" in text(tab, "#readings td.bad")
    assert "past its load knee" in text(tab, "#readings tbody")


def test_a_policy_switches_off_and_the_table_sorts_and_comes_as_csv(tab, pages):
    tab.open(pages / "report.html")
    rows = "document.querySelectorAll('#table tbody tr').length"
    assert tab.run(rows) == 9
    tab.run("document.querySelector('.chip').click()")
    assert tab.run(rows) == 6
    assert tab.run("document.querySelectorAll('#ttft-d .series').length") == 2
    tab.run(
        "[...document.querySelectorAll('#table th button')].find((b) => b.textContent === 'TTFT p99').click()"
    )
    head = "[...document.querySelectorAll('#table thead th')].findIndex((h) => h.hasAttribute('aria-sort'))"
    place = tab.run(head)
    cells = f"[...document.querySelectorAll('#table tbody tr')].map((r) => r.children[{place}].textContent)"
    shown = [float(cell.split()[0].replace(",", "")) for cell in tab.run(cells)]
    assert shown == sorted(shown, reverse=True)
    lines = tab.run("csv()").splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("offered [requests/s],drafter,policy,seeds,within all SLOs [%]")
    assert "change of goodput against off [%] low95" in lines[0]
    assert all(line.count(",") == lines[0].count(",") for line in lines)


def test_every_control_is_reached_by_tab_and_points_are_told(tab, pages):
    tab.open(pages / "report.html")
    seen = set()
    for _ in range(14):
        tab.press("Tab")
        seen.add(tab.run("(({ id, className: c }) => id || c.baseVal || c)(document.activeElement)"))
    assert {"theme", "load", "chart", "quantile"} <= seen
    tab.run("document.querySelector('#ttft svg').focus()")
    tab.press("ArrowRight")
    assert "TTFT p99" in text(tab, "#ttft .tip")
    assert "output: lossless" in text(tab, "#ttft .tip")


def test_a_burst_has_no_rate_axis_and_says_that_all_came_at_once(tab, pages):
    tab.open(pages / "burst.html")
    assert "At all at once" not in text(tab, "main")
    assert "With all requests at once" in text(tab, ".answers")
    assert not tab.run("byId('ttft')")
    assert tab.run("document.querySelectorAll('#ttft-d .series').length") == 3
