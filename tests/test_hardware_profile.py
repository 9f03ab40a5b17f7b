"""Everything a user can get wrong in a profile is said in one line: file, key path, rule, cure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hardware_cases import SMALL, small, small_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.errors import InputError
from dspark_sim.hardware.form import known_paths
from dspark_sim.hardware.profile import load_profile
from dspark_sim.hardware.reading import ProfileError, parse_profile


def problems(document: Any, **overrides: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        parse_profile(document, "bad.yaml", {path.replace("__", "."): v for path, v in overrides.items()})
    assert "\n" not in str(caught.value)
    return list(caught.value.problems)


def test_valid_profile_keeps_every_number():
    profile = small_profile()
    assert profile.verify.tokens == (1, 2, 4, 8, 16)
    assert profile.verify.ms == (5.0, 5.5, 5.25, 6.0, 9.0)
    assert profile.capture_limit == 16
    assert profile.draft.kinds == ("dspark", "mtp")
    assert profile.max_num_seqs is None


def test_table_may_rise_and_fall():
    assert small_profile(verify__ms=[5.0, 1.0, 9.0, 2.0, 8.0]).verify.ms[1] == 1.0


BAD = [
    ({"verify__lookupp": "floor"}, r"verify\.lookupp: unknown key \(did you mean 'lookup'\?\)"),
    (
        {"capture__limt": 4},
        r"capture\.limt: unknown key \(did you mean 'limit'\?\); known here: limit, sizes",
    ),
    ({"colour": "red"}, r"colour: unknown key.*known here: format, name"),
    ({"verify__tokens": [1, -2, 4, 8, 16]}, r"verify\.tokens\[1\]: must be at least 1, got -2"),
    (
        {"verify__tokens": [1, 4, 2, 8, 16]},
        r"verify\.tokens: sizes must rise strictly, but 2 follows 4; sort",
    ),
    ({"verify__tokens": [1, 2, 2, 8, 16]}, r"verify\.tokens: sizes must rise strictly, but 2 follows 2"),
    ({"capture__sizes": [4, 2]}, r"capture\.sizes: sizes must rise strictly, but 2 follows 4"),
    ({"capture__sizes": [-8, 2]}, r"capture\.sizes\[0\]: must be at least 1, got -8"),
    ({"capture__sizes": "trtllm"}, r"capture\.sizes: must be 'vllm' or 'table', got 'trtllm'"),
    ({"capture__limit": -1}, r"capture\.limit: must be at least 0, got -1"),
    ({"verify__ms": [5.0, 5.5]}, r"verify: tokens has 5 entries but ms has 2; give one ms entry for each"),
    ({"verify__tokens": []}, r"verify\.tokens: must not be empty"),
    ({"verify__ms": [5.0, -1.0, 5.0, 6.0, 7.0]}, r"verify\.ms\[1\]: must be at least 0\.0, got -1\.0"),
    (
        {"verify__ms": [5.0, float("nan"), 5.0, 6.0, 7.0]},
        r"verify\.ms\[1\]: must be a finite number, got nan",
    ),
    ({"verify__ms": 5.0}, r"verify\.ms: must be a list, got 5\.0"),
    ({"verify": [1, 2]}, r"verify: must be a mapping \(key: value lines\), got \[1, 2\]"),
    ({"host": 3}, r"host: must be a mapping"),
    ({"num_gpus": 0}, r"num_gpus: must be at least 1, got 0"),
    ({"num_gpus": 1.5}, r"num_gpus: must be a whole number, got 1\.5"),
    ({"num_gpus": True}, r"num_gpus: must be a whole number, got True"),
    ({"name": 3}, r"name: must be text, got 3; quote it"),
    ({"name": ""}, r"name: must not be empty"),
    ({"verify__monotone": "yes"}, r"verify\.monotone: must be true or false, got 'yes'"),
    (
        {"verify__lookup": "nearest"},
        r"verify\.lookup: must be 'ceil_to_capture', 'floor' or 'linear', got 'nearest'",
    ),
    (
        {"format": "dspark-sim/profile/2"},
        r"format: must be 'dspark-sim/profile/1', got 'dspark-sim/profile/2'",
    ),
    ({"verify__tokens": [1, 2, 4, 8, 16.5]}, r"verify\.tokens\[4\]: must be a whole number, got 16\.5"),
    ({"verify__beyond": None}, r"verify\.beyond: missing; this key is required"),
    ({"host__bubble_ms": None}, r"host\.bubble_ms: missing"),
    ({"eager": None}, r"eager: missing; capture and eager belong together"),
    ({"eager__overhead_ms": 4.0}, r"eager: give either overhead_ms or a table"),
    ({"eager": {"below": "hold"}}, r"eager: give overhead_ms, or a whole table"),
    ({"eager__ms": [1.0]}, r"eager: tokens has 2 entries but ms has 1"),
    ({"verify__context_tokens": None}, r"attention: missing; add it, or say with verify\.context_tokens"),
    ({"draft__medusa": {}}, r"draft\.medusa: unknown key.*known here: dspark, dflash, mtp, eagle"),
    ({"draft__mtp__requests": [0, 5]}, r"draft\.mtp\.requests\[0\]: must be at least 1, got 0"),
    ({"draft__mtp__pass_ms": [1.0]}, r"draft\.mtp: requests has 2 entries but pass_ms has 1"),
    (
        {"draft__mtp": {"lookup": "linear", "requests": [1], "pass_ms": [1.0], "beyond": "last_two"}},
        r"draft\.mtp: beyond 'last_two' needs two points, the table has one; use beyond: hold",
    ),
    ({"sources__verify": None}, r"sources\.verify: missing; say how the number was got"),
    ({"sources__verify": "a paper"}, r"sources\.verify: must be a mapping"),
    (
        {"sources__verify": {"how": "guessed", "source": "x"}},
        r"sources\.verify\.how: must be 'measured', .*'assumed'",
    ),
    (
        {"sources__verifyy": {"how": "measured", "source": "x"}},
        r"no field 'verifyy' \(did you mean 'verify'\?\)",
    ),
]


@pytest.mark.parametrize(
    ("changes", "expected"), BAD, ids=[next(iter(c)) + f"-{i}" for i, (c, _) in enumerate(BAD)]
)
def test_one_fault_is_one_line_that_names_file_place_and_cure(changes, expected):
    lines = problems(small(**changes))
    assert len(lines) == 1
    assert re.match(r"bad\.yaml: " + expected, lines[0]) or re.search(expected, lines[0]), lines[0]
    assert lines[0].startswith("bad.yaml: ")


@pytest.mark.parametrize(
    ("section", "wrong", "value", "right"),
    [
        ("verify", "cost", [5.0, 5.5, 5.25, 6.0, 9.0], "ms (milliseconds)"),
        ("verify", "latency", [5.0, 5.5, 5.25, 6.0, 9.0], "ms (milliseconds)"),
        ("verify", "sizes", [1, 2, 4, 8, 16], "tokens (tokens)"),
        ("host", "bubble", 1.7, "bubble_ms (milliseconds)"),
        ("host", "constant", 0.7, "constant_ms (milliseconds)"),
        ("eager", "overhead", 4.0, "overhead_ms (milliseconds)"),
    ],
)
def test_key_without_its_unit_is_told_the_key_that_has_one(section, wrong, value, right):
    document = small()
    document[section][wrong] = value
    document[section].pop(right.partition(" ")[0], None)
    (line,) = problems(document)
    assert line == f"bad.yaml: {section}.{wrong}: unknown key: keys carry their unit; write {right}"


def test_draft_pass_without_unit():
    document = small()
    document["draft"]["mtp"]["pass"] = document["draft"]["mtp"].pop("pass_ms")
    (line,) = problems(document)
    assert line.endswith("draft.mtp.pass: unknown key: keys carry their unit; write pass_ms (milliseconds)")


def test_wrong_unit_is_told_the_right_one():
    document = small(host__bubble_ms=None)
    document["host"]["bubble_s"] = 0.0017
    assert any("did you mean 'bubble_ms'?" in line for line in problems(document))


def test_number_that_yaml_reads_as_text_is_refused_with_the_reason():
    document = small(verify__ms=[5.0, 5.5, 5.25, 6.0, yaml.safe_load("3.35e12")])
    (line,) = problems(document)
    assert "verify.ms[4]: must be a number, got '3.35e12'" in line
    assert "3.35e+12" in line


def test_all_faults_are_reported_at_once():
    document = small(num_gpus=0, verify__tokens=[2, 1, 4, 8, 16], host__bubble_ms=-1, colour=1)
    places = {line.split(": ")[1] for line in problems(document)}
    assert places == {"num_gpus", "verify.tokens", "host.bubble_ms", "colour"}


def test_message_of_several_faults_is_one_line_that_says_how_many_more():
    with pytest.raises(ProfileError, match=r"\(and 1 more: dspark-sim hw check bad.yaml\)$"):
        parse_profile(small(num_gpus=0, name=""), "bad.yaml")


@pytest.mark.parametrize("document", [None, [1, 2], "text", 3])
def test_not_a_mapping(document):
    (line,) = problems(document)
    assert "must be a mapping that starts with 'format: dspark-sim/profile/1'" in line


def test_attention_counted_twice():
    document = small()
    document["attention"] = {"requests": [1], "context_tokens": [10], "ms": [[1.0]], "beyond": "hold"}
    document["sources"]["attention"] = document["sources"]["verify"]
    (line,) = problems(document)
    assert "attention: counted twice" in line


@pytest.mark.parametrize("rows", [[[1.0]], [[1.0, 2.0], [1.0]], [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]])
def test_attention_table_must_fit_its_axes(rows):
    document = small(verify__context_tokens=None)
    document["attention"] = {"requests": [1, 2], "context_tokens": [10, 20], "ms": rows, "beyond": "hold"}
    (line,) = problems(document)
    assert "ms must be 2 rows (one per requests entry) of 2 values" in line


def test_ceil_to_capture_needs_captured_sizes():
    document = small(capture=None, eager=None)
    (line,) = problems(document)
    assert "verify.lookup: ceil_to_capture needs a capture section" in line


def test_missing_file_lists_what_is_shipped():
    with pytest.raises(InputError, match=r"h8000\.yaml: no such file.*did you mean 'h800'\?"):
        load_profile("h8000.yaml")


def test_folder_instead_of_file(tmp_path: Path):
    with pytest.raises(ProfileError, match="is a folder; name a file"):
        load_profile(tmp_path)


def test_bytes_instead_of_text(tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="cannot be read as UTF-8"):
        load_profile(path)


def test_a_parquet_for_a_profile_is_called_one(tmp_path: Path):
    path = tmp_path / "trace.parquet"
    path.write_bytes(b"PAR1\xff\xfe\x00")
    with pytest.raises(ProfileError, match="is a parquet file, not a YAML profile"):
        load_profile(path)


def test_broken_yaml_names_the_line(tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_text("format: dspark-sim/profile/1\nverify: {tokens: [1, 2\n")
    with pytest.raises(ProfileError, match=r"line 3, column 1: not valid YAML"):
        load_profile(path)


def test_key_that_stands_twice(tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(SMALL) + "name: other\n")
    with pytest.raises(ProfileError, match="key 'name' stands twice"):
        load_profile(path)


def test_python_objects_in_yaml_are_not_built(tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_text("format: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ProfileError, match="not valid YAML"):
        load_profile(path)


def test_anchors_and_merges_of_yaml_work(tmp_path: Path):
    path = tmp_path / "x.yaml"
    document = yaml.safe_dump(small(draft=None) | {"name": "merged"}, sort_keys=False)
    serial = "{lookup: linear, requests: [1, 5], pass_ms: [0.5, 0.9], beyond: hold}"
    path.write_text(f"{document}draft:\n  mtp: &one {serial}\n  eagle: {{<<: *one, pass_ms: [1.0, 2.0]}}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert [line.split(": ")[1] for line in caught.value.problems] == ["sources.draft.eagle"]


def _nodes(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path] + [below for key, child in items for below in _nodes(child, (*path, key))]


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["", "x", "3e5", "vllm", "hold"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([1, None, "ms", "a b"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=300)
@given(st.sampled_from([p for p in _nodes(SMALL) if p]), junk, st.sampled_from([None, "cost", 7]))
def test_anything_anywhere_is_accepted_or_refused_in_lines(path, value, extra):
    """Fuzz: one value of the file replaced, or one key added beside it, by anything."""
    document = small()
    node: Any = document
    for key in path[:-1]:
        node = node[key]
    if extra is not None and isinstance(node, dict):
        node[extra] = value
    else:
        node[path[-1]] = value
    try:
        lines = [] if parse_profile(document, "bad.yaml") else ["nothing"]
    except ProfileError as error:
        lines = list(error.problems) or ["nothing"]
    assert all(line.startswith("bad.yaml: ") and "\n" not in line for line in lines)


@pytest.mark.parametrize(
    "text", ["? [a, b]\n: 1\n", "{[1, 2]: 3}", "- *unknown", "a: b: c", "\t- x", "&a [*a]", "key: 'open"]
)
def test_odd_yaml_is_refused_in_one_line(tmp_path: Path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)


# --set


def test_overrides_replace_one_field_and_nothing_else():
    base, changed = small_profile(), parse_profile(small(), "x.yaml", {"capture.limit": "8"})
    assert changed.capture is not None
    assert changed.capture.limit == 8
    assert changed.capture.sizes == base.capture.sizes  # type: ignore[union-attr]
    assert changed.verify == base.verify


def test_overrides_leave_the_document_alone():
    document = small()
    parse_profile(document, "x.yaml", {"capture.limit": "8", "verify.monotone": "true"})
    assert document == small()


@pytest.mark.parametrize(
    ("path", "text", "read"),
    [
        ("capture.sizes", "1,2,4", lambda p: p.capture.sizes == (1, 2, 4)),
        ("capture.sizes", "[1, 2, 4]", lambda p: p.capture.sizes == (1, 2, 4)),
        ("capture.sizes", "vllm", lambda p: p.capture.sizes == "vllm"),
        ("verify.monotone", "true", lambda p: p.verify.monotone),
        ("verify.lookup", "linear", lambda p: p.verify.lookup == "linear"),
        ("host.bubble_ms", "0", lambda p: p.host.bubble_ms == 0.0),
        ("max_num_seqs", "64", lambda p: p.max_num_seqs == 64),
        ("max_num_seqs", "null", lambda p: p.max_num_seqs is None),
        ("draft.dspark.serial_ms", "0.5", lambda p: p.draft.dspark.serial_ms == 0.5),
    ],
)
def test_override_values_are_yaml(path, text, read):
    assert read(parse_profile(small(), "x.yaml", {path: text}))


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "capture.limt",
            "4",
            r"--set capture\.limt: the profile has no such field \(did you mean 'capture\.limit'\?\)",
        ),
        ("nonsense", "4", r"--set nonsense: the profile has no such field"),
        ("capture.limit.x", "4", r"--set capture\.limit\.x: the profile has no such field"),
        ("capture.limit", "-3", r"--set capture\.limit: must be at least 0, got -3"),
        ("capture.limit", "many", r"--set capture\.limit: must be a whole number, got 'many'"),
        ("capture.sizes", "4,2", r"--set capture\.sizes: sizes must rise strictly"),
        ("capture.sizes", "[4,", r"--set capture\.sizes: '\[4,' is not a YAML value"),
        ("verify.ms", "1,2", r"--set verify\.ms: tokens has 5 entries but ms has 2"),
    ],
)
def test_bad_override_is_one_line_that_names_set(path, text, expected):
    with pytest.raises(ProfileError) as caught:
        parse_profile(small(), "bad.yaml", {path: text})
    (line,) = caught.value.problems
    assert re.search(expected, line), line


def test_every_path_of_the_format_can_be_named():
    assert {"capture.limit", "verify.ms", "draft.mtp.pass_ms", "host.bubble_ms", "eager.overhead_ms"} <= set(
        known_paths()
    )
