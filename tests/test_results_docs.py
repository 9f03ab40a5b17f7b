"""docs/results.md names every column, file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_sim.results.store import ABOUT, DETAILS, EVIDENCE, POINTS
from dspark_sim.schema import POINT_COLUMNS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results.md"


@pytest.mark.parametrize(
    "name", [*POINT_COLUMNS, POINTS, ABOUT, DETAILS, EVIDENCE, "frontier.png", "load.svg"]
)
def test_the_page_explains(name):
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
