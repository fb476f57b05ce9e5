"""The headless Service through which an attempt's pods find one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_operator.manifests.metadata import child_labels, child_metadata
from drivetrain_operator.manifests.names import attempt_name

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.kinds import Manifest
    from drivetrain_operator.manifests.settings import Settings


def headless_service(run: TrainingRun, attempt: int, settings: Settings) -> Manifest:
    """One Service an attempt, so that no straggler of another attempt resolves in it.

    Addresses are published before readiness: the rendezvous is what makes a pod ready.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(run, attempt_name(run.metadata.name, attempt), attempt),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": child_labels(run, attempt),
            "ports": [{"name": "rendezvous", "port": settings.rendezvous_port}],
        },
    }
