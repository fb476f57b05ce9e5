from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.compose import parse_run
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.local.backend import LocalBackend
from drivetrain_operator.local.node import LocalNode, Place
from drivetrain_operator.local.processes import owned, sweep_until_clean
from drivetrain_operator.local.settings import LocalSettings
from drivetrain_operator.local.store import LocalStore
from drivetrain_operator.manifests.children import children
from drivetrain_operator.reconcile.decision import Create

STAND_IN = Path(__file__).with_name("stand_in.py")
SECONDS = 10.0


def _wait_until(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What `condition` gives once it is true; fails loudly where it never is."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, f"not within {seconds} s: {condition}"
        time.sleep(0.005)
    return found


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    return _wait_until


@pytest.fixture
def settings_for() -> Callable[..., LocalSettings]:
    return _settings_for


@pytest.fixture
def make_run() -> Callable[..., TrainingRun]:
    def make(**spec: Any) -> TrainingRun:
        base = {
            "algo": {"name": "sac"},
            "task": {"name": "half_cheetah"},
            "training": {"totalEnvSteps": 1000},
            "gracePeriodSeconds": 5,
            "restart": {"backoffSeconds": 0},
        }
        return parse_run(
            {
                "apiVersion": "drivetrain.dev/v1alpha1",
                "kind": "TrainingRun",
                "metadata": {"name": "cheetah"},
                "spec": {**base, **spec},
            }
        )

    return make


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "state")


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def _settings_for(plan: str, **changes: Any) -> LocalSettings:
    words = (sys.executable, "-S", str(STAND_IN), plan)
    return LocalSettings(launcher=words, environment=dict(os.environ), **changes)


class Cluster:
    """A backend under a clock that the test moves, with the children of one attempt."""

    def __init__(self, store: LocalStore, storage: Path) -> None:
        self.store, self.storage = store, storage
        self.seconds = 0.0
        self.runs: list[TrainingRun] = []
        self.backends: list[LocalBackend] = []
        self.backend: LocalBackend
        self.node: LocalNode

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    def connect(self, run: TrainingRun, plan: str, **changes: Any) -> LocalBackend:
        applied = self.store.apply(run, storage=self.storage, now=self.now())
        self.runs.append(applied)
        place = Place(self.store.folder("cheetah"), self.storage)
        self.node = LocalNode(
            place,
            run_uid=applied.metadata.uid,
            gpu_resource="nvidia.com/gpu",
            settings=_settings_for(plan, **changes),
            clock=lambda: self.seconds,
        )
        self.backend = LocalBackend(self.store, "cheetah", self.node, clock=self.now)
        self.backends.append(self.backend)
        return self.backend

    def launch(self, run: TrainingRun, plan: str, attempt: int = 1, **changes: Any) -> LocalBackend:
        backend = self.connect(run, plan, **changes)
        for child in children(self.runs[-1], attempt):
            backend.apply(Create(child.kind, child.name, child.manifest))
        backend.tick()
        return backend

    def until(self, condition: Callable[[], Any]) -> Any:
        def ticked() -> Any:
            self.backend.tick()
            return condition()

        return _wait_until(ticked)

    def pod(self, index: int = 0) -> dict[str, Any]:
        return next(p for p in self.backend.pods() if p["metadata"]["name"].endswith(f"-{index}"))

    def state(self, index: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.pod(index)["status"]["containerStatuses"][0]["state"]
        return found

    def ended(self, index: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.until(lambda: self.state(index).get("terminated"))
        return found

    def ready(self, index: int = 0) -> None:
        """Until the stand-in says that it waits, its brood (if any) around it."""
        name = self.pod(index)["metadata"]["name"]
        file = self.store.folder("cheetah") / "pods" / name / "volumes/scratch/ready"
        self.until(file.exists)

    def job(self) -> dict[str, Any]:
        return self.backend.jobs()[0]

    def conditions(self) -> dict[str, str]:
        """Reasons of the conditions that hold."""
        held = self.job()["status"]["conditions"]
        return {c["type"]: c["reason"] for c in held if c["status"] == "True"}

    def processes(self) -> list[int]:
        return list(itertools.chain.from_iterable(owned(r.metadata.uid) for r in self.runs))


@pytest.fixture
def cluster(store: LocalStore, storage: Path) -> Iterator[Cluster]:
    found = Cluster(store, storage)
    yield found
    for backend in found.backends:
        backend.close()
    left = found.processes()
    for run in found.runs:
        sweep_until_clean(run.metadata.uid)
    assert left == []
