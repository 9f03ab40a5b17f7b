"""Finished points on disk, under the hash of everything that they depend on, the code included."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dspark_sim import __version__
from dspark_sim.files import write_text
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.results.metrics import Point
from dspark_sim.sweeps.code import code_hash
from dspark_sim.sweeps.tasks import Setup, Task


@dataclass
class PointStore:
    """Finished points under ``folder``, one small JSON file each, named by the hash of their inputs."""

    folder: Path
    _bases: dict[Setup, dict[str, Any]] = field(default_factory=dict)

    def get(self, task: Task) -> Point | None:
        """Return the point of ``task``, or None if it is not there."""
        path = self._path(task)
        if not path.is_file():
            return None
        kept: Point = json.loads(path.read_text(encoding="utf-8"))
        return kept

    def holds(self, task: Task) -> bool:
        """Return whether the point of ``task`` is there; a rule whose file is gone has none."""
        try:
            return self._path(task).is_file()
        except FileNotFoundError:
            return False

    def points(self) -> Iterator[Point]:
        """Yield every finished point there is, of whatever set-up, in the order of the files' names."""
        for path in sorted(self.folder.glob("*.json")):
            kept: Point = json.loads(path.read_text(encoding="utf-8"))
            yield kept

    def put(self, task: Task, computed: Point) -> None:
        """Keep a computed point; a reader sees all of it or none of it."""
        write_text(self._path(task), json.dumps(computed) + "\n")

    def _path(self, task: Task) -> Path:
        if task.setup not in self._bases:
            self._bases[task.setup] = fingerprint(task.setup)
        what = self._bases[task.setup] | {
            "drafter": task.drafter,
            "policy": task.policy,
            "rule": _rule_hash(task.policy),
            "concurrency": task.concurrency,
            "seed": task.seed,
            "share": task.share,
        }
        if believed := task.setup.load_believed(task.drafter):
            what["believed"] = profile_hash(believed)
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:32]}.json"


def fingerprint(setup: Setup) -> dict[str, Any]:
    """Return everything that points of ``setup`` depend on beside drafter, policy, load and seed."""
    return {
        "version": __version__,
        "code": code_hash(),
        "trace": setup.load_trace().content_hash,
        "profile": profile_hash(setup.load_profile()),
        "output_tokens": setup.output_tokens,
        "max_output_tokens": setup.max_output_tokens,
        "serving": asdict(setup.serving),
    }


def profile_hash(profile: HardwareProfile) -> str:
    """Return the SHA-256 (hex) of every value of a profile, overrides included."""
    return hashlib.sha256(json.dumps(asdict(profile), sort_keys=True).encode()).hexdigest()


def _rule_hash(spec: str) -> str:
    """Return the hash of the file of a user's own rule, ``""`` for a shipped one."""
    path, found, _ = spec.partition(".py:")
    return hashlib.sha256(Path(path + ".py").read_bytes()).hexdigest() if found else ""
