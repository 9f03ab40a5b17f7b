"""Whatever is printed fits a terminal of 100 columns."""

from __future__ import annotations

import pytest

from dspark_sim.results.tables import WIDTH

PRINTED = (
    ("policies",),
    ("hw", "list"),
    ("hw", "show", "b300-tp4-dsv4-flash"),
    ("trace", "show", "chat"),
    ("import", "--list"),
    ("audit", "dspark-async", "--lag", "0", "--effort", "0.1"),
)


@pytest.mark.parametrize("arguments", PRINTED, ids=" ".join)
def test_no_line_is_wider_than_a_table(command, arguments):
    lines = command(*arguments).out.splitlines()
    assert lines
    assert [line for line in lines if len(line) > WIDTH] == []
