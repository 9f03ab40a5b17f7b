"""Result folders: what is written is what is read, byte for byte the same, and nothing else is accepted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from results_cases import ABOUT, make_point

from dspark_sim.errors import InputError
from dspark_sim.results.store import Results, merge, read_results, unit, write_results
from dspark_sim.schema import POINT_COLUMNS

POINTS = [make_point("off", 1, 100.0, 50.0, accept_rate=math.nan), make_point("dspark", 1, 120.5, 61.25)]


def folder(path: Path, points=POINTS, **about: object) -> Path:
    path.mkdir()
    write_results(path, Results(points, ABOUT | about))
    return path


def test_what_is_written_is_what_is_read(tmp_path):
    found = read_results(folder(tmp_path / "a"))
    assert repr(found.points) == repr(POINTS)  # NaN is not equal to itself
    assert found.about == ABOUT


def test_the_same_results_are_the_same_bytes(tmp_path):
    first, second = folder(tmp_path / "a"), folder(tmp_path / "b")
    for name in ("points.parquet", "run.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_the_file_carries_units_and_meanings(tmp_path):
    schema = pq.read_schema(folder(tmp_path / "a") / "points.parquet")
    assert schema.names == list(POINT_COLUMNS)
    for field in schema:
        assert field.metadata[b"meaning"].decode() == POINT_COLUMNS[field.name]
        assert field.metadata[b"unit"].decode() == unit(field.name)
    assert unit("tok_per_s_per_user") == "tok/s/user"
    assert unit("accept_rate") == ""


def rewritten(path: Path, change) -> None:
    """Replace the points by what ``change`` makes of the table."""
    pq.write_table(change(pq.read_table(path / "points.parquet")), path / "points.parquet")


def test_folders_that_are_not_ours_are_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match="no such result folder"):
        read_results(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"not a result folder, points\.parquet is missing"):
        read_results(tmp_path)
    broken = folder(tmp_path / "a")
    (broken / "points.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="not a readable parquet file"):
        read_results(broken)
    other = folder(tmp_path / "b")
    (other / "run.json").write_text(json.dumps({"schema": "something/9"}))
    with pytest.raises(InputError, match="expected 'dspark-sim/results/1'"):
        read_results(other)
    (other / "run.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        read_results(other)


def test_points_with_other_columns_are_refused_by_name(tmp_path):
    path = folder(tmp_path / "a")
    rewritten(path, lambda table: table.drop_columns(["tok_per_s"]))
    with pytest.raises(InputError, match=r"points\.parquet: tok_per_s: column is missing; expected double"):
        read_results(path)
    path = folder(tmp_path / "b")
    rewritten(path, lambda table: table.set_column(3, "seed", pa.array([0.5, 0.5])))
    with pytest.raises(InputError, match="seed: type is double; expected int64"):
        read_results(path)
    path = folder(tmp_path / "c")
    rewritten(path, lambda table: table.slice(0, 0))
    with pytest.raises(InputError, match="holds no points"):
        read_results(path)


def test_folders_about_the_same_thing_are_read_as_one_each_point_once(tmp_path):
    more = [*POINTS[:1], make_point("full", 1, 90.0, 70.0)]
    merged = merge([folder(tmp_path / "a"), folder(tmp_path / "b", more)])
    assert [p["policy"] for p in merged.points] == ["off", "dspark", "full"]


def test_folders_about_different_things_are_not_compared(tmp_path):
    other = ABOUT["profile"] | {"name": "another"}
    with pytest.raises(InputError, match="differ in profile: not comparable"):
        merge([folder(tmp_path / "a"), folder(tmp_path / "b", profile=other)])


def test_one_point_with_two_answers_is_an_error(tmp_path):
    changed = [make_point("dspark", 1, 121.0, 61.25)]
    with pytest.raises(InputError, match="two different results for dspark at concurrency 1, seed 0"):
        merge([folder(tmp_path / "a"), folder(tmp_path / "b", changed)])
