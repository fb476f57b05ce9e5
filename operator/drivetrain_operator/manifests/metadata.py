"""Metadata that every child carries: labels to find it by, the owner to trust it by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api import labels
from drivetrain_api.base import API_VERSION, KIND

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.kinds import Manifest

MANAGER = "drivetrain"


def child_labels(run: TrainingRun, attempt: int | None = None) -> dict[str, str]:
    """Labels of a child; `attempt` for what belongs to one attempt alone."""
    found = {
        labels.RUN: run.metadata.name,
        labels.RUN_UID: run.metadata.uid,
        labels.MANAGED_BY: MANAGER,
    }
    if attempt is not None:
        found[labels.ATTEMPT] = str(attempt)
    return found


def child_metadata(run: TrainingRun, name: str, attempt: int | None = None) -> Manifest:
    """Metadata of a child.

    The owner reference has no blockOwnerDeletion: setting it needs a permission on the
    owner's finalizers, and nothing of ours ever holds up a deletion.
    """
    return {
        "name": name,
        "namespace": run.metadata.namespace,
        "labels": child_labels(run, attempt),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": run.metadata.name,
                "uid": run.metadata.uid,
                "controller": True,
            }
        ],
    }
