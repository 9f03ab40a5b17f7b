"""Work spread over a Ray cluster: files sent once, tasks tried again when their node is lost.

What an item needs from files travels through Ray's object store, once for all tasks, and is laid down once a
node: a node needs this package, in the same version, and nothing else. A point depends on its task alone,
so a task that is tried again on another node gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import InputError
from dspark_sim.files import atomic_path
from dspark_sim.sweeps.code import code_hash

#: Times that a task is started again after its worker or node was lost.
RETRIES = 20

Self = TypeVar("Self")


@runtime_checkable
class Carried(Protocol):
    """An item that reads files."""

    def files(self) -> dict[str, Path]:
        """Return the files that the item reads, by the name that it knows them under."""

    def with_files(self: Self, paths: Mapping[str, str]) -> Self:
        """Return the item that reads the same files from other places."""


def spread_over_cluster(
    work: Callable[[Any], Any], items: Sequence[Any], jobs: int
) -> Iterator[tuple[int, Any]]:
    """Yield (index, ``work(item)``) as the cluster finishes them; see :func:`.workers.spread`.

    The cluster is that of ``RAY_ADDRESS``, or the one this process is connected to, or one made of this
    machine for as long as the process lives.

    Raises:
        InputError: Ray is not installed, no cluster answers, or a node runs another version of the code; or
            what ``work`` raises.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise InputError("--backend ray needs Ray; pip install 'dspark-sim[ray]'") from error
    _connect(ray)
    sent = {name: path for item in items if isinstance(item, Carried) for name, path in item.files().items()}
    contents = {name: (path.name, np.fromfile(path, dtype=np.uint8)) for name, path in sent.items()}
    files, code = ray.put(contents), code_hash()
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_run)
    most = jobs if jobs > 1 else max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = iter(enumerate(items))
    under_way: dict[Any, int] = {}
    while True:
        # Two for each processor, so that none waits for this loop; few enough to be sent late and in order.
        while len(under_way) < 2 * most and (following := next(waiting, None)) is not None:
            under_way[remote.remote(work, following[1], files, code)] = following[0]
        if not under_way:
            return
        done, _ = ray.wait(list(under_way), num_returns=1)
        yield under_way.pop(done[0]), _result(ray, done[0])


def _connect(ray: Any) -> None:
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise InputError(f"RAY_ADDRESS={address}: no Ray cluster answers there ({error})") from error


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, InputError) else error) from None


def _run(work: Callable[[Any], Any], item: Any, files: Mapping[str, tuple[str, Any]], code: str) -> Any:
    """Work on one item, on a node."""
    if code != code_hash():
        raise InputError(f"node {os.uname().nodename}: dspark-sim there is another version; install the same")
    if isinstance(item, Carried):
        item = item.with_files({name: str(_laid_down(*content)) for name, content in files.items()})
    return work(item)


def _laid_down(name: str, content: NDArray[np.uint8]) -> Path:
    """Return the file of that name and content on this node, written unless it is there."""
    digest = hashlib.sha256(content.data).hexdigest()[:32]
    path = Path(tempfile.gettempdir()) / f"dspark-sim-{os.getuid()}" / digest / name
    if not path.exists():
        with atomic_path(path) as temporary:
            content.tofile(temporary)
    return path
