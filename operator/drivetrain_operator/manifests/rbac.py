"""The run's account: it may read and patch its one progress ConfigMap, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_operator.manifests.metadata import child_metadata
from drivetrain_operator.manifests.names import account_name, progress_name

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.kinds import Manifest

_RBAC_GROUP = "rbac.authorization.k8s.io"


def service_account(run: TrainingRun) -> Manifest:
    """The account that the pods of every attempt run as."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child_metadata(run, account_name(run.metadata.name)),
    }


def role(run: TrainingRun) -> Manifest:
    """What that account may do; the operator holds the same verbs, so it may grant them."""
    return {
        "apiVersion": f"{_RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": child_metadata(run, account_name(run.metadata.name)),
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [progress_name(run.metadata.name)],
                "verbs": ["get", "patch"],
            }
        ],
    }


def role_binding(run: TrainingRun) -> Manifest:
    """Gives the role to the account."""
    name = account_name(run.metadata.name)
    return {
        "apiVersion": f"{_RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": child_metadata(run, name),
        "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": run.metadata.namespace}],
    }
