"""The trainer's image on a real node, without the operator: our own Job, made by our builders."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.conftest import Images
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.tiny_sac import TINY_SAC

from drivetrain_api.compose import parse_run
from drivetrain_api.digest import TERMINATION_LIMIT, decode
from drivetrain_operator.manifests.children import children
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.manifests.settings import Settings

pytestmark = pytest.mark.e2e

RESOURCES = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}
"""No CPU that is asked for twice: the operator may run beside it, and a node may have two."""
SPEC: dict[str, Any] = {
    "algo": TINY_SAC,
    "task": {"name": "inverted_pendulum"},
    "training": {"totalEnvSteps": 400},
    "storage": {"size": "1Gi"},
    "checkpoint": {"interval": 200},
    "podTemplate": {
        "spec": {"containers": [{"name": "trainer", "resources": RESOURCES}]},
    },
}
TRAINING_RUN: Object = {
    "apiVersion": "drivetrain.dev/v1alpha1",
    "kind": "TrainingRun",
    "metadata": {
        "name": "smoke",
        "uid": "00000000-0000-0000-0000-000000000001",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": SPEC,
}


def without_owner(manifest: Object) -> Object:
    """A child whose run is no object of the cluster, so that none collects it."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "ownerReferences"}
    return {**manifest, "metadata": metadata}


def ended(job: Object) -> str | None:
    """Type of the condition that ended a Job."""
    conditions = job.get("status", {}).get("conditions") or ()
    done = (c["type"] for c in conditions if c["status"] == "True")
    return next((kind for kind in done if kind in {"Complete", "Failed"}), None)


def test_a_job_of_ours_trains_on_the_node_and_leaves_its_files(
    namespace: Kubectl, images: Images, tmp_path: Path
) -> None:
    metadata = {**TRAINING_RUN["metadata"], "namespace": namespace.namespace}
    run = parse_run({**TRAINING_RUN, "metadata": metadata})
    made = children(run, 1, dataclasses.replace(Settings(), image=images.trainer.name))
    namespace.apply(*(without_owner(child.manifest) for child in made))
    (job,) = (child.name for child in made if child.kind is ChildKind.JOB)

    outcome = wait_for(lambda: ended(namespace.get("job", job)), f"end of Job {job}", 300.0, 0.5)

    (pod,) = namespace.list("pods", "--selector", f"batch.kubernetes.io/job-name={job}")
    (container,) = pod["status"]["containerStatuses"]
    told = json.dumps(container["state"], indent=1) + namespace("logs", pod["metadata"]["name"])
    assert outcome == "Complete", told
    assert container["state"]["terminated"]["exitCode"] == 0, told
    digest = decode(container["state"]["terminated"]["message"], TERMINATION_LIMIT)
    assert digest is not None, told
    assert digest.progress is not None, told
    assert digest.progress.env_steps == 400, told

    files = namespace.read_volume("smoke-storage", images.trainer.name, tmp_path)
    assert list(files.glob("logs/sac/inverted_pendulum/*/run_summary.json"))
    assert list(files.glob("logs/sac/inverted_pendulum/*/checkpoints/step_000000000400"))
