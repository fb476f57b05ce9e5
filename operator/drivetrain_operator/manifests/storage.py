"""Durable storage of a run: a claim of its own, somebody's claim, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_operator.manifests.metadata import child_metadata
from drivetrain_operator.manifests.names import claim_name

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.kinds import Manifest


def claim_in_use(run: TrainingRun) -> str | None:
    """Name of the claim that the pods mount; None where files live only as long as a pod."""
    storage = run.spec.storage
    if storage.claim_name is not None:
        return storage.claim_name
    return claim_name(run.metadata.name) if storage.size is not None else None


def storage_volume(run: TrainingRun, name: str) -> Manifest:
    """The pod's volume for run directories."""
    claim = claim_in_use(run)
    if claim is None:
        return {"name": name, "emptyDir": {}}
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def claim(run: TrainingRun) -> Manifest | None:
    """The claim to make for the run; None where `storage.size` asks for none.

    Pods on several nodes write to it at once, so it is ReadWriteMany for more than one.
    """
    storage = run.spec.storage
    if storage.size is None:
        return None
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce" if run.spec.topology.nodes == 1 else "ReadWriteMany"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": child_metadata(run, claim_name(run.metadata.name)),
        "spec": spec,
    }
