"""Fixtures of all tests: a small trace, and the commands in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from small_traces import small_trace

from dspark_sim.cli.app import dispatch
from dspark_sim.workload.trace_io import write_trace


@pytest.fixture
def toy_trace(tmp_path: Path) -> str:
    """A trace of 12 short texts with the drafters dspark (gamma 7, confidences) and eagle (no head)."""
    path = tmp_path / "toy.parquet"
    write_trace(path, small_trace(seed=3, requests=12, gamma=7, longest=40))
    return str(path)


@dataclass
class Outcome:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on stderr of bad input."""
        assert (self.code, self.out) == (2, "")
        [line] = self.err.splitlines()
        assert line.startswith("dspark-sim: error: ")
        return line.removeprefix("dspark-sim: error: ")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a command in an empty working directory: ``command("run", "--trace", ...)``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = dispatch([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def browser_tab():
    """The one headless browser of the tests of pages."""
    from browser import browser_or_skip

    browser = browser_or_skip()
    yield browser
    browser.close()


@pytest.fixture
def tab(browser_tab):
    """A browser that has logged and requested nothing yet."""
    browser_tab.errors.clear()
    browser_tab.requests.clear()
    return browser_tab
