"""Sweeps: the order and the numbers do not depend on who computes them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from small_traces import small_trace

from dspark_sim.engine.replay import lagged_table, share_tables, survival_table
from dspark_sim.engine.table_files import look_in, mapped
from dspark_sim.errors import InputError
from dspark_sim.policies.registry import parse_policy
from dspark_sim.sweeps import running as module
from dspark_sim.sweeps.running import (
    PointStore,
    Setup,
    Task,
    fingerprint,
    grid,
    profile_hash,
    split_overrides,
    sweep,
)

HW = "h800.yaml"
ARMS = [("dspark", "off"), ("dspark", "full")]


@pytest.fixture
def tasks(toy_trace):
    """Two policies, three loads, two seeds."""
    return grid(Setup(toy_trace, HW, output_tokens=100), ARMS, [1, 2, 32], [0, 1])


def test_a_grid_goes_by_policy_then_load_then_seed(tasks):
    assert [(t.policy, t.concurrency, t.seed) for t in tasks[:5]] == [
        ("off", 1, 0),
        ("off", 1, 1),
        ("off", 2, 0),
        ("off", 2, 1),
        ("off", 32, 0),
    ]


def test_points_come_back_in_the_order_of_their_tasks(tasks):
    points = sweep(tasks)
    assert [(p["policy"], p["concurrency"], p["seed"]) for p in points] == [
        (t.policy, t.concurrency, t.seed) for t in tasks
    ]


def test_processes_change_nothing(tasks):
    # repr, because NaN is not equal to itself.
    assert repr(sweep(tasks, jobs=2)) == repr(sweep(tasks, jobs=1))


def test_an_error_in_a_worker_arrives_as_it_was_raised(toy_trace):
    tasks = grid(Setup(toy_trace, HW, output_tokens=100), [("dspark", "static:k=8")], [1, 2], [0])
    with pytest.raises(InputError, match="8"):
        sweep(tasks, jobs=2)


def test_progress_counts_every_point_found_or_computed(tasks, tmp_path):
    counted = []
    store = PointStore(tmp_path / "kept")
    sweep(tasks[:5], store=store)
    sweep(tasks, store=store, on_point=lambda: counted.append(1))
    assert len(counted) == len(tasks)


def test_an_interrupted_sweep_keeps_what_was_finished(tasks, tmp_path, monkeypatch):
    store = PointStore(tmp_path / "kept")
    simulate = module.simulate_task
    done = []

    def until_the_fourth(task: Task):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(task)
        return simulate(task)

    monkeypatch.setattr(module, "simulate_task", until_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        sweep(tasks, store=store)
    assert [store.get(task) is not None for task in tasks].count(True) == 4
    monkeypatch.setattr(module, "simulate_task", simulate)
    assert repr(sweep(tasks, store=store)) == repr(sweep(tasks))


def test_a_users_own_rule_is_part_of_what_a_point_depends_on(toy_trace, tmp_path):
    rule = tmp_path / "mine.py"
    rule.write_text("first")
    store = PointStore(tmp_path / "kept")
    task = Task(Setup(toy_trace, HW), "dspark", f"{rule}:rule", 1, 0)
    store.put(task, {"a": 1})
    assert store.get(task) == {"a": 1}
    rule.write_text("second")
    assert store.get(task) is None


def test_points_of_other_tasks_are_not_taken_for_this_one(toy_trace, tmp_path):
    setup = Setup(toy_trace, HW)
    task = Task(setup, "dspark", "off", 1, 0)
    store = PointStore(tmp_path / "kept")
    store.put(task, {"a": 1})
    assert store.get(task) == {"a": 1}
    setups = [{"overrides": (("host.constant_ms", "9"),)}, {"output_tokens": 7}, {"max_output_tokens": 9}]
    others = [replace(task, setup=replace(setup, **change)) for change in setups]
    others += [replace(task, **change) for change in ({"drafter": "eagle"}, {"policy": "full"}, {"seed": 1})]
    assert [store.get(other) for other in others] == [None] * 6


def test_fingerprints_follow_content_and_not_names(toy_trace, tmp_path):
    copy = tmp_path / "other-name.parquet"
    copy.write_bytes((tmp_path / "toy.parquet").read_bytes())
    assert fingerprint(Setup(toy_trace, HW)) == fingerprint(Setup(str(copy), "h800"))
    changed = Setup(toy_trace, HW, overrides=(("host.constant_ms", "9"),))
    assert fingerprint(changed) != fingerprint(Setup(toy_trace, HW))
    assert profile_hash(changed.load_profile()) != profile_hash(Setup(toy_trace, HW).load_profile())


def test_overrides_are_split_between_profile_and_run():
    given = {"capture.limit": "512", "workload.max_output_tokens": "64"}
    assert split_overrides(given) == ((("capture.limit", "512"),), 64)
    assert split_overrides({}) == ((), None)


def test_shares_of_prompts_are_disjoint_whole_prompts_and_together_everything():
    trace = small_trace(requests=30)
    shares = [trace.share_of_prompts(i, 4) for i in range(4)]
    prompts = [set(share.prompt_key) for share in shares]
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == len(set(trace.prompt_key))
    assert sorted(name for share in shares for name in share.request_id) == sorted(trace.request_id)


def test_more_replications_than_prompts_are_refused():
    trace = small_trace(requests=5)
    with pytest.raises(InputError, match="want that many prompts"):
        trace.share_of_prompts(0, len(set(trace.prompt_key)) + 1)


def test_replicating_over_prompts_replays_different_texts_and_keeps_points_apart(toy_trace, tmp_path):
    setup, arms = Setup(toy_trace, HW, output_tokens=100), ARMS[:1]
    tasks = grid(setup, arms, [2], [0, 1]) + grid(setup, arms, [2], [0, 1], by_prompts=True)
    store = PointStore(tmp_path)
    sweep(tasks, store=store)
    assert len(list(tmp_path.glob("*.json"))) == 4
    texts = [set(task.load_trace().request_id) for task in tasks]
    assert texts[0] == texts[1]
    assert not texts[2] & texts[3]


def test_one_replication_over_prompts_replays_everything(toy_trace):
    (task,) = grid(Setup(toy_trace, HW, output_tokens=100), ARMS[:1], [2], [7], by_prompts=True)
    assert task.share is None


def test_worker_processes_share_the_tables_of_a_trace(toy_trace, tmp_path):
    """A process that is told of the folder maps them, and simulates the same; it keeps no copy."""
    folder = tmp_path / "tables"
    setup = Setup(toy_trace, HW, output_tokens=100)
    drafter, policy = setup.load_trace().drafter(), parse_policy("dspark-async")
    own = {"survival": survival_table(drafter), "lagged": lagged_table(drafter)}
    share_tables(folder, drafter, policy)
    assert len(list(folder.iterdir())) == 2
    for kind, table in own.items():
        assert not mapped(drafter, kind, (0, 8), []).size, "nowhere to look"
        look_in(str(folder))
        shared = mapped(drafter, kind, (0, 8), [])
        look_in(None)
        assert isinstance(shared.base, np.memmap)
        np.testing.assert_array_equal(shared, table)
        assert shared.flags.c_contiguous
        assert shared.flags.writeable, "the compiled step knows arrays of one kind"
    task = Task(setup, "dspark", "dspark-async", 2, 0)
    mapping = replace(task, setup=replace(setup, tables=str(folder)))
    assert repr(sweep([mapping])) == repr(sweep([task]))
    assert fingerprint(mapping.setup) == fingerprint(setup)


def test_workers_look_for_files_where_the_caller_is(tmp_path, monkeypatch, toy_trace):
    """They are used again, and the caller may have gone elsewhere in between, as a notebook does."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        shutil.copy(toy_trace, f"{folder}.parquet")
        tasks = grid(Setup(f"{folder}.parquet", "h800", output_tokens=40), [("dspark", "off")], [1, 2], [0])
        assert len(sweep(tasks, jobs=2)) == 2
