"""Shipped data are found by bare name; files appear whole or not at all."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest

from dspark_sim import files
from dspark_sim.errors import DataError, InputError, did_you_mean
from dspark_sim.hardware.reading import ProfileError
from dspark_sim.rng import stream


def test_a_shipped_file_is_found_by_bare_name_with_or_without_suffix():
    by_name = files.find("h800.yaml", "hw_profiles", ".yaml")
    assert by_name.is_file()
    assert files.find("h800", "hw_profiles", ".yaml") == by_name


def test_a_path_that_exists_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "h800.yaml").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert files.find("h800.yaml", "hw_profiles", ".yaml").read_text() == "mine"


def test_a_folder_does_not_hide_the_shipped_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "chat").mkdir()
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert files.find("chat", "traces", ".parquet").name == "chat.parquet"
    assert files.find("mine", "traces", ".parquet") == Path("mine")


def test_errors_come_back_from_worker_processes_as_they_were():
    of_a_row = DataError("a.csv", "row 3", "must be a number")
    for error in (of_a_row, ProfileError("h.yaml", [("host", "is missing")])):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_an_unknown_name_says_what_is_shipped_and_what_was_meant():
    with pytest.raises(InputError, match=r"h8000\.yaml: no such file.*did you mean 'h800'.*shipped: "):
        files.find("h8000.yaml", "hw_profiles", ".yaml")


def test_a_path_with_folders_is_never_looked_up_by_its_last_part():
    with pytest.raises(InputError, match="no such file"):
        files.find("elsewhere/h800.yaml", "hw_profiles", ".yaml")


def test_where_no_file_can_be_made_the_message_names_the_one_asked_for(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"/file/x\.html: cannot be written: "):
        files.write_text(tmp_path / "file" / "x.html", "page")


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path: Path):
    target = tmp_path / "a.txt"
    files.write_text(target, "old")

    def fail_half_way() -> None:
        with files.atomic_path(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError("mid-write")

    with pytest.raises(RuntimeError, match="mid-write"):
        fail_half_way()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_written_file_has_the_mode_of_any_new_file(tmp_path: Path):
    files.write_text(tmp_path / "a.txt", "x")
    (tmp_path / "b.txt").write_text("x")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.txt", "b.txt")}
    assert len(modes) == 1


def test_writing_onto_a_folder_is_refused_in_words(tmp_path: Path):
    with pytest.raises(InputError, match="is a folder"):
        files.write_text(tmp_path, "x")


def test_streams_differ_by_name_and_seed_and_repeat():
    draws = {(seed, name): stream(seed, name).random() for seed in (0, 1) for name in ("a", "b")}
    assert len(set(draws.values())) == 4
    assert stream(0, "a").random() == draws[0, "a"]


def test_did_you_mean_is_silent_about_words_far_from_all():
    assert did_you_mean("xyzzy", ["dspark", "full"]) == ""
    assert did_you_mean("dsprak", ["dspark", "full"]) == " (did you mean 'dspark'?)"
