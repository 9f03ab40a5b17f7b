"""A trace that memory does not hold: read row group by row group, mapped, and the same to the byte."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_traces import small_trace

from dspark_sim.engine.fast import is_installed
from dspark_sim.engine.simulator import simulate
from dspark_sim.engine.sources import mid_text
from dspark_sim.errors import DataError, InputError
from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.results.evidence import gather
from dspark_sim.results.metrics import point
from dspark_sim.rng import stream
from dspark_sim.workload import trace_io
from dspark_sim.workload.shelf import MEMORY, memory_for_traces
from dspark_sim.workload.trace_io import read_trace, write_parts, write_trace
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import visited

HW = "h800-qwen3-4b"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    compiled = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", compiled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def long_file(tmp_path, monkeypatch) -> Path:
    """A trace of several row groups, longer than any part that is worked on at once."""
    monkeypatch.setattr(trace_io, "_GROUP", 5_000)
    path = tmp_path / "long.parquet"
    write_trace(path, small_trace(1, requests=900, longest=60, gamma=7))
    assert pq.ParquetFile(path).num_row_groups > 3
    return path


def test_a_mapped_trace_is_the_trace(long_file):
    held, mapped = read_trace(long_file, memory=1 << 40), read_trace(long_file, memory=0)
    assert mapped.content_hash == held.content_hash
    for name, drafter in held.drafters.items():
        assert drafter.home is None
        ours = mapped.drafters[name]
        assert ours.home is not None
        assert isinstance(ours.accepted_N.base, np.memmap)
        np.testing.assert_array_equal(visited(mapped, ours), visited(held, drafter))
    for free in (False, True):
        theirs = held.drafter("dspark")
        np.testing.assert_array_equal(mapped.drafter("dspark").survival_NG(free), theirs.survival_NG(free))
    profile = load_profile(HW)
    assert repr(gather(mapped, profile, held.drafters, 8)) == repr(gather(held, profile, held.drafters, 8))


@pytest.mark.parametrize(
    "spec",
    ["static:k=3", "threshold:on=survival,at=0.4", "dspark", "dspark-async:lag=2", "tetris:capacity=20"],
)
@pytest.mark.parametrize("cut", [None, 20])
def test_it_simulates_the_same(long_file, spec, cut):
    points = [
        point(
            simulate(
                read_trace(long_file, memory=memory),
                load_profile(HW),
                parse_policy(spec),
                concurrency=6,
                output_tokens=3_000,
                seed=2,
                max_output_tokens=cut,
            )
        )
        for memory in (1 << 40, 0)
    ]
    assert repr(points[0]) == repr(points[1])


@pytest.mark.skipif(not is_installed(), reason="numba is not installed")
def test_the_compiled_step_maps_it_too(long_file):
    world = {"concurrency": 6, "output_tokens": 3_000, "seed": 2, "fast": True}
    points = [
        point(
            simulate(read_trace(long_file, memory), load_profile(HW), parse_policy("dspark-async"), **world)
        )
        for memory in (1 << 40, 0)
    ]
    assert repr(points[0]) == repr(points[1])


def test_a_part_of_it_and_another_calibration_are_not_mistaken_for_it(long_file):
    held, mapped = read_trace(long_file, memory=1 << 40), read_trace(long_file, memory=0)
    rows = np.arange(5, 300)
    assert mapped.take(rows).content_hash == held.take(rows).content_hash
    own = mapped.drafter("dspark")
    before = own.survival_NG().copy()
    warmer = replace(own.calibration, temperatures=(2.0,) * 7)
    for trace in (held, mapped):
        other = trace.with_calibration("dspark", warmer).drafter("dspark")
        assert not np.array_equal(other.survival_NG(), before)
        shorter = replace(trace.drafter("dspark"), accepted_N=np.minimum(own.accepted_N, 1).astype(np.uint8))
        assert shorter.home is None
    np.testing.assert_array_equal(
        mapped.with_calibration("dspark", warmer).drafter("dspark").survival_NG(),
        held.with_calibration("dspark", warmer).drafter("dspark").survival_NG(),
    )


def test_it_is_laid_out_once_by_content(long_file, tmp_path):
    read_trace(long_file, memory=0)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    assert len({path.parent for path in files}) == 1
    renamed = long_file.rename(tmp_path / "renamed.parquet")
    read_trace(renamed, memory=0)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.npy")} == files
    write_trace(renamed, small_trace(2, requests=900, longest=60, gamma=7))
    assert read_trace(renamed, memory=0).content_hash == read_trace(renamed, memory=1 << 40).content_hash
    assert len({path.parent for path in (tmp_path / "cache").rglob("*.npy")}) == 2


def _damage(path: Path, what: str) -> None:
    table = pq.read_table(path)
    accepted = table["dspark.accepted"].to_pylist()
    logits = table["dspark.confidence_logit"].to_pylist()
    if what == "short list":
        accepted[700] = [*accepted[700], 0]
    elif what == "null":
        accepted[650] = None
    elif what == "null inside":
        accepted[800] = [None, *accepted[800][1:]]
    elif what == "above gamma":
        accepted[655] = [8, *accepted[655][1:]]
    elif what == "past the end":
        accepted[895] = [*accepted[895][:-1], 1]
    elif what == "not finite":
        logits[888][0][2] = float("nan")
    at = table.schema.get_field_index("dspark.accepted")
    table = table.set_column(at, table.field(at), pa.array(accepted, table.field(at).type))
    at = table.schema.get_field_index("dspark.confidence_logit")
    as_half = [[np.array(row, dtype=np.float16) for row in text] for text in logits]
    table = table.set_column(at, table.field(at), pa.array(as_half, table.field(at).type))
    pq.write_table(table, path, row_group_size=250)


@pytest.mark.parametrize(
    "what", ["short list", "null", "null inside", "above gamma", "past the end", "not finite"]
)
def test_it_is_refused_in_the_same_words(long_file, what):
    _damage(long_file, what)
    words = []
    for memory in (1 << 40, 0, 0):
        with pytest.raises(DataError) as refused:
            read_trace(long_file, memory=memory)
        words.append(str(refused.value))
    assert words[0] == words[1] == words[2]
    assert "dspark." in words[0]


def test_a_torn_file_is_unreadable_and_a_disk_that_takes_no_more_is_named(long_file, tmp_path):
    whole = long_file.read_bytes()
    group = pq.ParquetFile(long_file).metadata.row_group(2)
    columns = (group.column(i) for i in range(group.num_columns))
    page = next(
        c.data_page_offset for c in columns if c.path_in_schema.startswith("dspark.confidence_logit.")
    )
    long_file.write_bytes(whole[:page] + bytes(64) + whole[page + 64 :])
    for memory in (1 << 40, 0):
        with pytest.raises(DataError, match="not a readable parquet file"):
            read_trace(long_file, memory)
    assert not [*(tmp_path / "cache").rglob(".*.npy")], "no half array is left"
    long_file.write_bytes(whole)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(InputError, match="a trace is laid out there, and: File too large"):
            read_trace(long_file, memory=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_trace_is_written_part_by_part(tmp_path):
    whole = small_trace(3, requests=40)
    write_parts(tmp_path / "a.parquet", (whole.take(rows) for rows in np.array_split(np.arange(40), 3)))
    assert read_trace(tmp_path / "a.parquet").content_hash == whole.content_hash
    with pytest.raises(DataError, match=r"'p0#0' is there twice"):
        write_parts(tmp_path / "b.parquet", [whole, whole])
    assert not (tmp_path / "b.parquet").exists()


def test_starts_are_drawn_as_from_the_list_of_rows_that_may_be():
    seed = 4
    rows = np.arange(0, 120_000, 3)
    inside = np.random.default_rng(seed).random(len(rows)) < 0.3
    drawn = stream(seed, "start").integers(inside.sum(), size=500)
    np.testing.assert_array_equal(mid_text(rows, inside, 500, seed), rows[inside][drawn])


@pytest.mark.parametrize("said", ["much", "-1", "inf"])
def test_a_limit_that_is_none_is_refused(monkeypatch, said):
    monkeypatch.setenv(MEMORY, said)
    with pytest.raises(InputError, match="must be a number of MiB"):
        memory_for_traces()


_CHILD = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from test_mapped_traces import served
served(sys.argv[2], 1 << 40)  # all is imported
data = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data + int(sys.argv[5]),) * 2)
print(served(sys.argv[3], int(sys.argv[4])))
"""


def served(path: str | Path, memory: int) -> str:
    trace, policy = read_trace(path, memory), parse_policy("dspark-async")
    run = simulate(trace, load_profile(HW), policy, concurrency=16, output_tokens=5_000, seed=0)
    return repr(point(run))


def _one_drafter(seed: int) -> Trace:
    """Texts of some 500 tokens; the logits are coarse, so that they are compressed in no time."""
    trace = small_trace(seed, 300, gamma=7, longest=1_000)
    own = trace.drafters["dspark"]
    coupled, free = (np.rint(own.logits_NG(which)).astype(np.float16) for which in (False, True))
    own = replace(own, confidence_logit_NG=coupled, confidence_logit_free_NG=free, accept_rate_NG=None)
    meta = trace.meta | {"drafters": {"dspark": trace.meta["drafters"]["dspark"]}}
    names = [f"{seed}-{name}" for name in trace.request_id]
    return replace(trace, meta=meta, request_id=names, drafters={"dspark": own})


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel counts private memory")
def test_a_trace_several_times_larger_than_the_memory_that_is_allowed(tmp_path):
    """Private memory is limited by the kernel. Held, the trace does not fit; mapped, it gives the same."""
    path, small = tmp_path / "large.parquet", tmp_path / "small.parquet"
    texts = [_one_drafter(seed) for seed in range(2)]
    write_parts(path, texts)
    write_trace(small, texts[0].take(np.arange(3)))
    anchors, allowed = sum(int(text.offset_Q1[-1]) for text in texts), 28 << 20
    assert anchors * (1 + 2 * 14 + 8 + 32 * 8) > 3 * allowed

    def child(memory: int) -> subprocess.CompletedProcess[str]:
        words = [str(Path(__file__).parent), str(small), str(path), str(memory), str(allowed)]
        # Arrow's own allocator takes address space by the gigabyte.
        environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", _CHILD, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    squeezed, mapped = child(1 << 40), child(0)
    assert squeezed.returncode != 0
    assert "MemoryError" in squeezed.stderr or "malloc" in squeezed.stderr, squeezed.stderr
    assert mapped.returncode == 0, mapped.stderr
    assert mapped.stdout.strip() == served(path, 1 << 40)


def test_a_folder_of_results_is_the_same_to_the_byte(command, long_file, tmp_path, monkeypatch):
    asked = ("--hw", HW, "--policy", "off", "--policy", "dspark-async", "--concurrency", "2,4")
    for folder, mib in (("held", "4096"), ("mapped", "0")):
        (tmp_path / folder).mkdir()
        trace = tmp_path / folder / "t.parquet"  # a process reads a path once
        trace.write_bytes(long_file.read_bytes())
        monkeypatch.setenv(MEMORY, mib)
        words = (
            "--trace",
            trace,
            "--output-tokens",
            "400",
            "--out",
            tmp_path / folder / "out",
            "--jobs",
            "1",
        )
        assert command("run", *asked, *words).code == 0
    assert any((tmp_path / "cache").rglob("lagged-*.npy"))
    held = {path.name: path.read_bytes() for path in (tmp_path / "held" / "out").iterdir()}
    assert held == {path.name: path.read_bytes() for path in (tmp_path / "mapped" / "out").iterdir()}
    assert {"points.parquet", "evidence.json", "details.jsonl", "run.json"} <= held.keys()
