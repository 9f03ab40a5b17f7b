"""docs/results.md names every column, file and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from results_cases import make_point

from dspark_sim.results.frontier import frontier
from dspark_sim.results.store import ABOUT, POINTS
from dspark_sim.schema import POINT_COLUMNS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results.md"


@pytest.mark.parametrize("name", [*POINT_COLUMNS, POINTS, ABOUT, "frontier.png", "load.svg"])
def test_the_page_explains(name):
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")


def test_the_example_of_the_page_is_what_the_code_says():
    """Linear in concurrency, the curve searched whole, fractions allowed."""
    points = [
        make_point("off", 1, 100.0, 100.0),
        make_point("off", 3, 80.0, 240.0),
        make_point("off", 5, 90.0, 200.0),
    ]
    [row] = frontier(points, "off", [85.0])["sla"]
    # 85 tok/s/user at load 2.5 on the way down (205 tok/s/GPU) and at load 4 on the way back (220).
    assert (row["concurrency"], row["tok_per_s_per_gpu"]) == (4.0, 220.0)
