"""Trace format v1: what is written is what is read, to the byte, and nothing else is accepted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import small_trace

from dspark_sim.errors import DataError, InputError
from dspark_sim.workload.calibration import Calibration
from dspark_sim.workload.synthetic import SynthDrafter, SynthSpec, synthesise
from dspark_sim.workload.trace_io import read_trace, write_trace
from dspark_sim.workload.traces import Trace, quantise

LOGITS = "dspark.confidence_logit"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.parquet"
    write_trace(path, small_trace(requests=6))
    return path


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    requests=st.integers(1, 8),
    gamma=st.integers(1, 9),
    arrivals=st.booleans(),
)
def test_a_trace_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, seed: int, requests: int, gamma: int, arrivals: bool
):
    trace = small_trace(seed, requests, gamma, arrivals=arrivals)
    path = tmp_path_factory.mktemp("trip") / "small.parquet"
    write_trace(path, trace)
    back = read_trace(path)
    assert back.content_hash == trace.content_hash
    assert (back.name, back.meta, back.request_id, back.domain) == (
        trace.name,
        trace.meta,
        trace.request_id,
        trace.domain,
    )
    np.testing.assert_array_equal(back.offset_Q1, trace.offset_Q1)
    for name, drafter in trace.drafters.items():
        np.testing.assert_array_equal(back.drafters[name].accepted_N, drafter.accepted_N)
        if drafter.has_confidence:
            np.testing.assert_array_equal(back.drafters[name].logits_NG(True), drafter.logits_NG(True))
    assert back.drafters["dspark"].accept_rate_NG is not None
    assert not back.drafters["eagle"].has_confidence


def test_same_content_same_bytes_and_no_leftovers(tmp_path: Path):
    for name in ("a.parquet", "b.parquet"):
        write_trace(tmp_path / name, small_trace(3))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_the_hash_sees_every_column_and_the_calibration():
    trace = small_trace(4)
    drafter = trace.drafters["dspark"]
    logits = drafter.logits_NG(True).copy()
    logits[-1, -1] += 1
    changed = replace(
        trace, drafters={**trace.drafters, "dspark": replace(drafter, confidence_logit_free_NG=logits)}
    )
    fitted = trace.with_calibration("dspark", Calibration((2.0, 1.0, 1.0), (0.0,) * 3, "sts"))
    hashes = {t.content_hash for t in (trace, changed, fitted, trace.take([0, 1]))}
    assert len(hashes) == 4


def test_calibration_rides_in_the_metadata(tmp_path: Path):
    fitted = Calibration((2.0, 0.5, 1.0), (0.1, 0.0, -0.2), "bias", "some", (0.1, 0.2, np.nan), (0.0,) * 3)
    trace = small_trace(4).with_calibration("dspark", fitted)
    write_trace(tmp_path / "x.parquet", trace)
    back = read_trace(tmp_path / "x.parquet").drafter("dspark")
    assert back.calibration.temperatures == fitted.temperatures
    assert np.isnan(back.calibration.ece_before[2])
    logits = back.logits_NG().astype(float)
    wanted = 1 / (1 + np.exp(-(logits / fitted.temperatures + np.array(fitted.biases))))
    np.testing.assert_allclose(back.confidence_NG(), wanted, rtol=1e-12)
    survival = back.survival_NG(True)
    assert (np.diff(survival, axis=1) <= 0).all()
    np.testing.assert_array_equal(survival, quantise(survival))


def test_taking_requests_takes_their_anchors():
    trace = small_trace(5, requests=6)
    part = trace.take([4, 1])
    assert part.request_id == [trace.request_id[4], trace.request_id[1]]
    for new, old in enumerate((4, 1)):
        mine = part.drafter("dspark").logits_NG()[part.offset_Q1[new] : part.offset_Q1[new + 1]]
        theirs = trace.drafter("dspark").logits_NG()[trace.offset_Q1[old] : trace.offset_Q1[old + 1]]
        np.testing.assert_array_equal(mine, theirs)
    everything = trace.take(np.ones(6, dtype=bool))
    assert everything.content_hash == trace.content_hash


def test_a_drafter_that_is_not_there_is_named():
    trace = small_trace()
    assert trace.drafter().name == "dspark"
    with pytest.raises(
        InputError, match=r"no drafter 'dsprak' \(did you mean 'dspark'\?\); it has: dspark, eagle"
    ):
        trace.drafter("dsprak")
    with pytest.raises(InputError, match=r"drafter 'eagle' has no column 'eagle.confidence_logit'"):
        trace.drafter("eagle").confidence_NG()


def test_sixty_thousand_anchors_are_read_fast_and_stay_small(tmp_path: Path):
    drafter = SynthDrafter("dspark", "dspark", (0.7,) * 7)
    path = tmp_path / "big.parquet"
    write_trace(
        path, synthesise(SynthSpec((drafter,), "toy", "test", requests=450, output_tokens=140), "big")
    )
    assert path.stat().st_size < 6e6
    times = []
    for _ in range(3):
        start = time.process_time()
        assert len(read_trace(path).drafter().accepted_N) > 55_000
        times.append(time.process_time() - start)
    assert min(times) < 0.15


# --- what is refused -----------------------------------------------------------------------------------

Change = Callable[[dict[str, Any], dict[str, Any]], None]


def rewrite(path: Path, change: Change) -> None:
    """Rewrite a trace as plain lists; ``change(columns, meta)`` edits both in place."""
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"dspark_sim"])
    columns = {name: table[name].to_pylist() for name in table.column_names}
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    change(columns, meta)
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values, types.get(name))
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays).replace_schema_metadata({"dspark_sim": json.dumps(meta)}), path)


def put(column: str, row: int, *place: int, value: object) -> Change:
    def change(columns: dict[str, Any], meta: dict[str, Any]) -> None:
        target = columns[column]
        for step in (row, *place)[:-1]:
            target = target[step]
        target[(row, *place)[-1]] = value

    return change


def drop(column: str) -> Change:
    return lambda columns, meta: columns.pop(column)


def retype(column: str, new: pa.DataType) -> Change:
    return lambda columns, meta: columns.update({column: pa.array(columns[column], new)})


def set_meta(**changes: object) -> Change:
    return lambda columns, meta: meta.update(changes)


def shorten(column: str) -> Change:
    return lambda columns, meta: columns[column][1].pop()


def keep_no_row(columns: dict[str, Any], meta: dict[str, Any]) -> None:
    for name in columns:
        columns[name] = []


def lengths() -> list[int]:
    return small_trace(requests=6).output_tokens_Q.tolist()


LONG = int(np.argmax(lengths()))

BAD: dict[str, tuple[Change, str]] = {
    "format version": (
        set_meta(format=2),
        r"metadata 'dspark_sim': format version 2: this reader reads version 1",
    ),
    "no format version": (lambda c, m: m.pop("format"), r"format version None"),
    "unknown metadata key": (set_meta(targte="x"), r"targte: unknown key \(did you mean 'target'\?\)"),
    "mistyped metadata": (set_meta(temperature="hot"), r"temperature: Input should be a valid number"),
    "several metadata errors at once": (set_meta(seed=1.5, made=""), r"made: .*; seed: "),
    "no drafters": (set_meta(drafters={}), r"drafters: "),
    "gamma zero": (
        lambda c, m: m["drafters"]["eagle"].update(gamma=0),
        r"drafters.eagle.gamma: .* greater than",
    ),
    "drafter of the metadata without columns": (
        lambda c, m: m["drafters"].update(more={"kind": "mtp", "gamma": 3}),
        r"column 'more.accepted': missing: the metadata names drafter 'more'",
    ),
    "columns without a drafter in the metadata": (
        lambda c, m: m["drafters"].pop("eagle"),
        r"column 'eagle.accepted': drafter 'eagle' is not in the metadata",
    ),
    "wrong number of temperatures": (
        lambda c, m: m["drafters"]["dspark"].update(
            calibration={"temperatures": [1.0], "biases": [0.0], "method": "sts"}
        ),
        r"drafters.dspark.calibration: needs 3 temperatures and biases \(gamma\), has 1 and 1",
    ),
    "missing column": (
        drop("output_tokens"),
        r"column 'output_tokens': missing; must be an integer, see docs/trace-format\.md",
    ),
    "missing nullable column": (drop("arrival_s"), r"column 'arrival_s': missing"),
    "unknown column": (
        lambda c, m: c.update({"prompt_token": c["prompt_tokens"]}),
        r"column 'prompt_token': unknown column \(did you mean 'prompt_tokens'\?\)",
    ),
    "mistyped tokens": (
        retype("prompt_tokens", pa.float64()),
        r"column 'prompt_tokens': has type double; must be int",
    ),
    "mistyped accepted": (
        retype("dspark.accepted", pa.list_(pa.int64())),
        r"column 'dspark.accepted': has type list<element: int64>; must be list<element: uint8>",
    ),
    "logits of another gamma": (
        lambda c, m: m["drafters"]["dspark"].update(gamma=4),
        rf"column '{LOGITS}': has type .*\[3\]>; must be .*\[4\]>",
    ),
    "free block alone": (drop(LOGITS), rf"column '{LOGITS}': missing, while the free block is there"),
    "logit nan": (
        put(LOGITS, LONG, 2, 1, value=float("nan")),
        rf"column '{LOGITS}', row {LONG} \(request '.*'\), anchor 2, position 2: nan: must be finite",
    ),
    "free logit infinite": (
        put(LOGITS + "_free", LONG, 0, 2, value=float("inf")),
        rf"column '{LOGITS}_free', row {LONG} .*, anchor 0, position 3: inf: must be finite",
    ),
    "accept rate above one": (
        put("dspark.accept_rate", LONG, 1, 0, value=1.5),
        r"column 'dspark.accept_rate', row .*: 1.5: must lie in 0..1",
    ),
    "accepted above gamma": (
        put("dspark.accepted", LONG, 0, value=4),
        rf"column 'dspark.accepted', row {LONG} \(request '.*'\), anchor 0: 4: above gamma = 3",
    ),
    "accepted past the end": (
        put("eagle.accepted", LONG, lengths()[LONG] - 2, value=2),
        rf"column 'eagle.accepted', row {LONG} .*, anchor {lengths()[LONG] - 2}: 2: past the end of the text",
    ),
    "list too short": (
        shorten("dspark.accepted"),
        rf"row 1: list of {lengths()[1] - 1}; must be output_tokens = {lengths()[1]} long",
    ),
    "logit list too short": (shorten(LOGITS), rf"column '{LOGITS}', row 1: list of"),
    "null in a list": (
        put("dspark.accepted", LONG, 0, value=None),
        r"column 'dspark.accepted'.*null inside a list",
    ),
    "null list": (
        put("dspark.accepted", 2, value=None),
        r"column 'dspark.accepted', row 2: null; must be set",
    ),
    "null domain": (put("domain", 3, value=None), r"column 'domain', row 3: null; must be set"),
    "empty trace": (keep_no_row, r"empty trace: it holds no request"),
    "negative prompt": (
        put("prompt_tokens", 1, value=-3),
        r"column 'prompt_tokens', row 1: -3: must not be negative",
    ),
    "no output": (put("output_tokens", 4, value=0), r"column 'output_tokens', row 4: 0: must be at least 1"),
    "negative output": (
        put("output_tokens", 4, value=-1),
        r"column 'output_tokens', row 4: -1: must be at least 1",
    ),
    "duplicate request": (
        put("request_id", 5, value="p0#0"),
        r"column 'request_id', row 5: 'p0#0': duplicate of row 0; every request_id must be unique",
    ),
    "empty request id": (put("request_id", 5, value=""), r"column 'request_id', row 5: '': empty"),
    "arrival in one row": (
        lambda c, m: c.update(arrival_s=pa.array([0.0] + [None] * 5)),
        r"column 'arrival_s', row 1: nan: must be finite, not negative, and set in all rows or none",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_the_reader_refuses(good: Path, case: str):
    change, message = BAD[case]
    rewrite(good, change)
    with pytest.raises(DataError, match=message) as caught:
        read_trace(good)
    assert str(caught.value).startswith(f"{good}: ")
    assert "\n" not in str(caught.value)


def test_a_rewrite_that_changes_nothing_is_accepted(good: Path):
    before = read_trace(good).content_hash
    rewrite(good, retype(LOGITS, pa.list_(pa.list_(pa.float16(), 3))))
    assert read_trace(good).content_hash == before


def test_files_that_are_no_traces_are_refused(tmp_path: Path, good: Path):
    with pytest.raises(InputError, match=r"no such file"):
        read_trace(tmp_path / "absent.parquet")
    text = tmp_path / "text.parquet"
    text.write_text("not parquet at all")
    with pytest.raises(DataError, match=r"text.parquet: not a readable parquet file"):
        read_trace(text)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(good.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"not a readable parquet file"):
        read_trace(cut)
    with pytest.raises(DataError, match=r"not a readable parquet file"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, r"metadata 'dspark_sim': missing: not a dspark-sim trace"),
        ({"dspark_sim": "{"}, r"must be JSON"),
        ({"dspark_sim": "[1]"}, r"must be a JSON object"),
    ],
)
def test_metadata_that_is_missing_or_no_document(good: Path, metadata: dict[str, str], message: str):
    pq.write_table(pq.read_table(good).replace_schema_metadata(metadata), good)
    with pytest.raises(DataError, match=message):
        read_trace(good)


def test_a_list_of_float32_is_a_mistyped_column(good: Path):
    table = pq.read_table(good)
    place = table.column_names.index(LOGITS)
    single = table[LOGITS].cast(pa.list_(pa.list_(pa.float32(), 3)))
    pq.write_table(table.set_column(place, LOGITS, single), good)
    with pytest.raises(DataError, match=rf"column '{re.escape(LOGITS)}': has type .*float"):
        read_trace(good)


def test_row_groups_and_wide_integers_make_no_difference(good: Path):
    before = read_trace(good)
    table = pq.read_table(good)
    place = table.column_names.index("output_tokens")
    table = table.set_column(place, "output_tokens", table["output_tokens"].cast(pa.int64()))
    pq.write_table(table, good, row_group_size=2)
    assert read_trace(good).content_hash == before.content_hash


def test_the_writer_refuses_what_the_reader_would(tmp_path: Path):
    trace = small_trace()
    drafter = replace(
        trace.drafters["dspark"], accepted_N=np.full_like(trace.drafters["dspark"].accepted_N, 9)
    )
    wrong: list[Trace] = [
        replace(trace, drafters={**trace.drafters, "dspark": drafter}),
        replace(trace, meta={**trace.meta, "format": 3}),
        trace.take([0, 0]),
    ]
    for bad in wrong:
        with pytest.raises(DataError):
            write_trace(tmp_path / "x.parquet", bad)
    assert list(tmp_path.iterdir()) == []


def test_the_documented_example_runs():
    text = (Path(__file__).parents[1] / "docs" / "trace-format.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, "docs/trace-format.md", "exec"), {})


def test_reading_does_not_pay_for_pandas():
    program = (
        "import sys; from dspark_sim.workload.trace_io import read_trace; "
        "read_trace('qwen3-4b-chat.synth').drafter().survival_NG(); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
