"""A run as a Chrome trace, for Perfetto: one track a replica, and counters beside it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.files import atomic_path
from dspark_sim.schema import FloatArray, IntArray, RunLog

SUFFIX = ".json.gz"


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a name that is not that of a timeline.

    Raises:
        InputError: ``path`` does not end in .json.gz.
    """
    if not str(path).endswith(SUFFIX):
        raise InputError(f"{path}: a timeline is written as {SUFFIX}")


def write_timeline(path: str | os.PathLike[str], run: RunLog) -> None:
    """Write every step of ``run`` as a slice of its replica's track, with counters at its start.

    Counters: batch tokens B, verify tokens, KV blocks in use, waiting requests. The same run gives the
    same bytes.

    Raises:
        InputError: ``path`` does not end in .json.gz.
    """
    check_name(path)
    events = ",\n".join(_events(run)).encode()
    document = b'{"displayTimeUnit":"ms","traceEvents":[\n' + events + b"\n]}\n"
    with atomic_path(path) as temporary:
        # Without a time in the header: the same bytes for the same run.
        temporary.write_bytes(gzip.compress(document, compresslevel=5, mtime=0))


def _events(run: RunLog) -> Iterator[str]:
    steps = run.steps
    replica_S = steps.replica if steps.replica.size else np.zeros(len(steps.start_s), dtype=np.int64)
    for replica in np.unique(replica_S).tolist():
        for kind, name in (("process_name", f"replica {replica}"), ("thread_name", "steps")):
            yield json.dumps({"ph": "M", "pid": replica, "tid": 0, "name": kind, "args": {"name": name}})
    # Both ends are rounded to whole nanoseconds, so that a step never runs into the next.
    start_S, end_S = (_nanoseconds(t) for t in (steps.start_s, steps.start_s + steps.step_s))
    columns = (steps.num_running, steps.batch_tokens, steps.verify_tokens, steps.committed_tokens)
    more = (_or_zero(c, replica_S) for c in (steps.prefill_tokens, steps.kv_blocks, steps.waiting))
    rows = zip(*(c.tolist() for c in (replica_S, start_S, end_S - start_S, *columns, *more)), strict=True)
    for replica, start, length, running, batch, verify, committed, prefill, blocks, waiting in rows:
        at = f'"pid":{replica},"tid":0,"ts":{_microseconds(start)}'
        name = "decode" if not prefill else "prefill" if not running else "mixed"
        yield (
            f'{{"ph":"X",{at},"dur":{_microseconds(length)},"name":"{name}","args":{{"requests":{running},'
            f'"prefill_tokens":{prefill},"committed":{committed}}}}}'
        )
        yield (
            f'{{"ph":"C",{at},"name":"load","args":{{"B":{batch},"verify_tokens":{verify},'
            f'"kv_blocks":{blocks},"waiting":{waiting}}}}}'
        )


def _nanoseconds(time_s: FloatArray) -> IntArray:
    nanoseconds: IntArray = np.rint(time_s * 1e9).astype(np.int64)
    return nanoseconds


def _microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _or_zero(column: IntArray, like: IntArray) -> IntArray:
    return column if column.size else np.zeros_like(like)
