"""Every metric against a run small enough to work out by hand."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from results_cases import small_run

from dspark_sim.results import metrics
from dspark_sim.schema import POINT_COLUMNS, RequestLog, StepLog

BY_HAND = {
    "policy": "static:k=2",
    "drafter": "dspark",
    "concurrency": 2,
    "seed": 5,
    "tok_per_s": 12 / 0.4,
    "tok_per_s_per_gpu": 12 / 0.4 / 2,
    "tok_per_s_per_user": 12 / (2 * 0.1 + 2 * 0.2 + 1 * 0.1),
    # TPOTs: 0.3 / 3 = 0.1 and 0.3 / 2 = 0.15; the text of one token has none.
    "tok_per_s_per_user_mean": (1 / 0.1 + 1 / 0.15) / 2,
    "tok_per_s_per_user_median_tpot": 1 / 0.125,
    "accepted_len": 12 / 5,
    "verify_len": 10 / 5,
    "verification_budget": 3.0,
    "accept_rate": 8 / 10,
    "step_ms": 1e3 * 0.4 / 3,
    "steps": 3,
    "output_tokens": 12,
    "requests": 3,
    "lossless": "lossless",
}


def test_every_metric_equals_the_sum_done_by_hand():
    point = metrics.point(small_run())
    assert list(point) == list(POINT_COLUMNS) == list(BY_HAND)
    for name, expected in BY_HAND.items():
        assert point[name] == (
            pytest.approx(expected, rel=1e-12) if isinstance(expected, float) else expected
        )


def test_every_metric_states_its_formula():
    for name, metric in metrics.METRICS.items():
        if metric.__name__ != "<lambda>":
            assert metric.__doc__, name


def test_a_policy_that_verifies_nothing_has_no_accept_rate():
    steps = small_run().steps
    nothing = np.zeros(3, dtype=np.int64)
    quiet = StepLog(
        steps.start_s, steps.step_s, steps.num_running, steps.num_running, nothing, nothing, steps.num_running
    )
    point = metrics.point(small_run(steps=quiet))
    assert math.isnan(point["accept_rate"])
    assert (point["accepted_len"], point["verification_budget"]) == (1.0, 1.0)


def test_without_a_text_of_two_tokens_there_is_no_tpot():
    empty = RequestLog(*(np.array([], dtype=kind) for kind in (int, float, float, int, int)))
    point = metrics.point(small_run(requests=empty))
    assert math.isnan(point["tok_per_s_per_user_mean"])
    assert math.isnan(point["tok_per_s_per_user_median_tpot"])


def test_idle_time_between_steps_lowers_throughput_and_not_the_users_speed():
    steps = small_run().steps
    late = StepLog(steps.start_s + np.array([0.0, 0.0, 1.0]), *(getattr(steps, n) for n in _AFTER_START))
    busy, idle = metrics.point(small_run()), metrics.point(small_run(steps=late))
    assert idle["tok_per_s"] == pytest.approx(12 / 1.4)
    assert idle["tok_per_s_per_user"] == busy["tok_per_s_per_user"]


_AFTER_START = (
    "step_s",
    "num_running",
    "batch_tokens",
    "verify_tokens",
    "accepted_tokens",
    "committed_tokens",
)


def test_a_run_without_a_measured_step_is_refused():
    none = StepLog(*(np.array([]) for _ in range(7)))
    with pytest.raises(ValueError, match="no engine step"):
        metrics.point(small_run(steps=none))


LONG_RUN = """
import numpy as np
from results_cases import small_run
from dspark_sim.results.metrics import point
from dspark_sim.schema import StepLog
rng, n = np.random.default_rng(1), 200_001
t, r = rng.uniform(0.005, 0.02, n), rng.integers(1, 9, n)
print(repr(point(small_run(steps=StepLog(np.cumsum(t) - t, t, r, 2 * r, r, r, r), rounds=int(r.sum())))))
"""


def test_long_sums_do_not_depend_on_the_threads_of_the_process():
    def measured(threads: str) -> str:
        environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-c", LONG_RUN]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert measured("1") == measured("2") != ""
