"""A sweep on a Ray cluster of two nodes, one of which is lost on the way: the same bytes."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec

import pytest

from dspark_sim.errors import InputError
from dspark_sim.sweeps.ray_workers import Carried, spread_over_cluster
from dspark_sim.sweeps.running import PointStore, Setup, grid, sweep
from dspark_sim.sweeps.workers import spread

HW = "h800.yaml"


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(InputError, match=r"unknown backend 'rya'.*known: local, ray"):
        next(spread(str, [1, 2], 1, "rya"))


def test_a_task_takes_its_files_along(toy_trace, tmp_path):
    task = grid(Setup(toy_trace, HW, output_tokens=100), [("dspark", "off")], [1], [0])[0]
    assert isinstance(task, Carried)
    paths = {}
    for name, path in task.files().items():
        paths[name] = str(tmp_path / path.name)
        (tmp_path / path.name).write_bytes(path.read_bytes())
    moved = task.with_files(paths)
    assert moved.setup.trace == str(tmp_path / "toy.parquet") or moved.setup.trace.startswith(str(tmp_path))
    assert repr(sweep([moved])) == repr(sweep([task]))


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_it_is_refused_by_name():
    with pytest.raises(InputError, match=r"dspark-sim\[ray\]"):
        next(spread_over_cluster(str, [1], 1))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray (extra: ray) is not installed")
@pytest.mark.filterwarnings("ignore")
def test_a_node_that_is_lost_changes_no_byte(toy_trace, tmp_path):
    """Two nodes of one processor each; one is killed, without a word, after the third point."""
    import ray
    from ray.cluster_utils import Cluster

    tasks = grid(
        Setup(toy_trace, HW, output_tokens=20_000),
        [("dspark", "full"), ("dspark", "dspark")],
        [1, 2, 4],
        [0, 1],
    )
    here = [json.dumps(p) for p in sweep(tasks)]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        lost = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        assert ray.cluster_resources()["CPU"] == 2
        done = []

        def on_point():
            done.append(1)
            if len(done) == 3:
                cluster.remove_node(lost, allow_graceful=False)

        store = PointStore(tmp_path / "points")
        there = [json.dumps(p) for p in sweep(tasks, store=store, backend="ray", on_point=on_point)]
        until_s = time.monotonic() + 60  # the cluster notices in its own time, perhaps after the last point
        while ray.cluster_resources().get("CPU") != 1 and time.monotonic() < until_s:
            time.sleep(0.2)
        assert ray.cluster_resources().get("CPU") == 1
        assert there == here
        assert [json.dumps(store.get(task)) for task in tasks] == here
        bad = grid(Setup(toy_trace, HW), [("dspark", "static:k=8")], [1], [0])
        with pytest.raises(InputError, match="k is 8"):
            sweep(bad, backend="ray")
    finally:
        ray.shutdown()
        cluster.shutdown()
