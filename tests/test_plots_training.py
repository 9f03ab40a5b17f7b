"""Learning curves: the table that training writes, and its picture."""

from __future__ import annotations

import pytest

from dspark_sim.errors import DataError
from dspark_sim.results.plots_training import draw_curves, learning_figure, read_curve

TABLE = "anchors,tau,tau_chat,tau_math,accept_1,accept_2\n100,1.2,1.1,1.3,0.2,0.1\n300,1.5,1.3,1.7,0.4,0.3\n"


def test_a_run_is_drawn_by_domain_and_several_by_name(tmp_path):
    (tmp_path / "curve.csv").write_text(TABLE)
    curve = read_curve(tmp_path / "curve.csv")
    left, right = learning_figure({"dspark": curve}, "toy").axes
    assert [line.get_ydata().tolist() for line in left.lines] == [[1.2, 1.5], [1.1, 1.3], [1.3, 1.7]]
    assert left.lines[0].get_xdata().tolist() == [0.1, 0.3]
    assert right.lines[0].get_ydata().tolist() == [0.4, 0.3]
    left, right = learning_figure({"dspark": curve, "dflash": curve[:1]}, "toy").axes
    assert [len(line.get_xdata()) for line in left.lines] == [2, 1]
    assert {text.get_text() for text in right.texts} >= {"dspark", "dflash"}
    for name in ("one.png", "two.png"):
        draw_curves({"dspark": curve}, tmp_path / name, "toy")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@pytest.mark.parametrize("content", [None, "", "anchors,tau\n", "a,b\n1,2\n", "anchors,tau\n1,x\n"])
def test_what_is_not_a_curve_is_refused(tmp_path, content):
    path = tmp_path / "curve.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match="curve"):
        read_curve(path)
