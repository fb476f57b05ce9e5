"""A suite on a node: six TrainingRuns, two in flight, gone on with from the cluster alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.conftest import Release
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.tiny_sac import TINY_SAC

from drivetrain_api.artifacts.suite_record import SuiteRecord

pytestmark = pytest.mark.e2e

DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))
RESOURCES = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}
SUITE: Object = {
    "apiVersion": "drivetrain.dev/v1alpha1",
    "kind": "Suite",
    "metadata": {"name": "swing", "labels": {"team": "legs"}},
    "spec": {
        "seeds": [1, 2, 3],
        "grid": {"algo.actor_learning_rate": [3e-4, 1e-3]},
        "template": {
            "algo": TINY_SAC,
            "task": {"name": "inverted_pendulum"},
            "training": {"totalEnvSteps": 400},
            "storage": {"claimName": "results"},
            "podTemplate": {"spec": {"containers": [{"name": "trainer", "resources": RESOURCES}]}},
        },
    },
}
CLAIM: Object = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "results"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
OVER = {"Complete", "Failed"}
LIMIT_S = 1200.0


def phase(run: Object) -> str:
    return str(run.get("status", {}).get("phase", "Pending"))


class Watcher:
    """Looks at the namespace's runs while a command drives them."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self.most = 0

    def runs(self) -> list[Object]:
        found: list[Object] = self.kubectl.list("trainingruns")
        self.most = max(self.most, sum(phase(run) not in OVER for run in found))
        return found

    def until(self, command: subprocess.Popen[bytes], complete: int | None) -> None:
        """Until so many runs are complete, or the command ended."""
        ends = time.monotonic() + LIMIT_S
        while time.monotonic() < ends:
            runs = self.runs()
            if complete is None:
                if command.poll() is not None:
                    return
            elif sum(phase(run) == "Complete" for run in runs) >= complete:
                return
            else:
                assert command.poll() is None, "the command ended early"
            time.sleep(0.5)
        raise AssertionError(f"not within {LIMIT_S} s: {[phase(run) for run in runs]}")


def test_six_runs_two_in_flight_resumed_from_the_cluster_alone(
    release: Release, namespace: Kubectl, tmp_path: Path
) -> None:
    assert release.name
    namespace.apply(CLAIM)
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(SUITE))
    watcher = Watcher(namespace)

    def start() -> subprocess.Popen[bytes]:
        where = ("--kubeconfig", str(namespace.kubeconfig), "--namespace", str(namespace.namespace))
        with (tmp_path / "output").open("ab") as output:
            return subprocess.Popen(
                [
                    DRIVETRAIN,
                    "suite",
                    "-f",
                    "suite.yaml",
                    "--cluster",
                    "--max-in-flight",
                    "2",
                    *where,
                ],
                cwd=tmp_path,
                stdout=output,
                stderr=output,
            )

    command = start()
    try:
        watcher.until(command, complete=1)
    finally:
        command.kill()
        command.wait()
    record = tmp_path / "suites/swing/suite.json"
    before = SuiteRecord.from_json(record.read_bytes())
    record.unlink()
    uids = {run["metadata"]["uid"] for run in watcher.runs()}

    command = start()
    try:
        watcher.until(command, complete=None)
    finally:
        command.kill()
    said = (tmp_path / "output").read_text()
    assert command.wait() == 0, said

    runs = watcher.runs()
    assert len(runs) == 6
    assert watcher.most == 2, "two in flight, at most and at times"
    assert {phase(run) for run in runs} == {"Complete"}
    assert uids < {run["metadata"]["uid"] for run in runs}, "none was made anew"
    after = SuiteRecord.from_json(record.read_bytes())
    assert after.invocation == before.invocation, "the runs told which start they are of"
    assert {str(member.state) for member in after.members} == {"complete"}
    check_places(runs)
    assert "6 complete of 6 members" in said
    assert "drivetrain compare suites/swing" in said


def check_places(runs: list[Object]) -> None:
    """Labels, and one artifact directory for the seeds of a variant."""
    found: dict[str, list[tuple[str, str]]] = {}
    for run in runs:
        labels: dict[str, Any] = run["metadata"]["labels"]
        assert labels["drivetrain.dev/suite"] == "swing"
        assert labels["team"] == "legs"
        directory = Path(run["status"]["runSummary"]["runDirectory"])
        found.setdefault(str(directory.parent), []).append(
            (labels["drivetrain.dev/run-idx"], directory.name)
        )
    names = [("0", "run_0_seed_1"), ("1", "run_1_seed_2"), ("2", "run_2_seed_3")]
    assert {folder: sorted(members) for folder, members in found.items()} == {
        f"suites/swing/actor_learning_rate-{rate}/sac/inverted_pendulum": names
        for rate in ("0.0003", "0.001")
    }, json.dumps(found, indent=1)
