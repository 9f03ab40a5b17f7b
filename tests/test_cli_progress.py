"""Whatever takes seconds shows how far it is, on a terminal, and nothing in a pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from dspark_sim.audit.overwrite import find_counterexample, search_length
from dspark_sim.cli import common
from dspark_sim.cli.app import dispatch
from dspark_sim.policies.registry import parse_policy

AZURE = Path(__file__).parent / "data" / "importers" / "azure2023.csv"
RUN = ("--hw", "h800", "--output-tokens", 40)
#: Arguments of every command that simulates or searches, and what its bar is called. {trace}: a small one.
LONG = {
    "run": (("--trace", "{trace}", *RUN, "--policy", "off", "--concurrency", "2", "--json"), "simulating"),
    "recommend": (
        ("--trace", "{trace}", *RUN, "--policy", "off", "--sla", 1, "--max-users", 1, "--seeds", 1),
        "simulating",
    ),
    "bound": (("--trace", "{trace}", *RUN, "--concurrency", 2), "bounding"),
    "waterfall": (("--trace", "{trace}", *RUN, "--concurrency", 2), "mending"),
    "sensitivity": (
        ("lag", "--trace", "{trace}", *RUN, "--values", "1,2", "--policy", "dspark-async"),
        "simulating",
    ),
    "audit": (("off", "--effort", 0.05), "overwriting"),
}


#: Arguments of commands whose work cannot be counted beforehand, and what they say that they are at.
#: {run}: a result folder.
UNCOUNTED = {
    "trace": (("show", "{trace}"), "reading"),
    "calibrate": (("{trace}", "--out", "c.parquet"), "fitting"),
    "sweep": (("--trace", "{trace}", *RUN, "--concurrency", 2, "--dry-run"), "estimating"),
    "run": (("--trace", "{trace}", *RUN, "--policy", "off", "--concurrency", 2), "drawing"),
    "report": (("{run}", "--out", "x.html"), "reading"),
    "compare": (("{run}", "{run}"), "comparing"),
    "study": (("threshold", "--trace", "{trace}", "--out", "studies"), "studying traces"),
    "import": (("azure2023", "{azure}", "-o", "w.parquet"), "reading"),
    "synth": (("--accept", "dspark=0.8", "--requests", 5, "--out", "s.parquet"), "drawing"),
}


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def plain(text: str) -> str:
    """Return what a screen shows, without the marks that move and colour."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("name", LONG)
def test_a_terminal_sees_how_far_it_is_and_how_long_it_takes(name, toy_trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    arguments, label = LONG[name]
    assert dispatch([name, *(str(word).format(trace=toy_trace) for word in arguments)]) == 0
    said = plain(screen.getvalue())
    assert label in said
    assert re.search(r"\d+/\d+", said)
    assert re.search(r"(-|\d+):[\d-]+:[\d-]+", said)


@pytest.mark.parametrize("name", UNCOUNTED)
def test_a_terminal_sees_what_uncounted_work_is_at(name, toy_trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    if name in ("report", "compare"):
        words = ("run", "--trace", toy_trace, *RUN, "--policy", "off", "--concurrency", 2, "--out", "run")
        assert dispatch(list(map(str, words))) == 0
    arguments, label = UNCOUNTED[name]
    places = {"trace": toy_trace, "run": "run", "azure": AZURE}
    assert dispatch([name, *(str(word).format(**places) for word in arguments)]) == 0
    assert re.search(rf"{label} 0:00:\d\d", plain(screen.getvalue()))


def test_work_of_unknown_length_shows_that_it_goes_on(monkeypatch, capsys):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with common.working("drawing"):
        pass
    assert re.search(r"drawing 0:00:0\d", plain(screen.getvalue()))


def test_a_pipe_sees_nothing_of_it(command):
    done = command("audit", "off", "--effort", 0.05)
    assert (done.code, done.err) == (0, "")


def test_an_audit_without_a_find_counts_to_its_length():
    moments: list[int] = []
    found = find_counterexample(parse_policy("off"), effort=0.1, on_moment=lambda: moments.append(1))
    assert found is None
    assert len(moments) == search_length(0.1)


def test_a_bar_ends_even_if_the_work_fails(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(ZeroDivisionError), common.progress(2, "dividing") as advance:
        advance(1 // 0)
    assert screen.getvalue().endswith("\x1b[?25h") or "dividing" in screen.getvalue()
