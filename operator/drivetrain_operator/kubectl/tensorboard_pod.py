"""The pod in which TensorBoard reads a run's storage; fit for PodSecurity *restricted*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.base import API_VERSION, KIND
from drivetrain_operator.manifests.names import TRAINER_CONTAINER
from drivetrain_operator.manifests.pod import STORAGE_MOUNT, TMP_MOUNT
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.reconcile.fields import items, mapping, text

if TYPE_CHECKING:
    from drivetrain_operator.kubectl.runs import Run
    from drivetrain_operator.reconcile.fields import Object

PORT: Final = 6006
"""TensorBoard's port in the pod, on its loopback alone."""
LABEL: Final = "drivetrain.dev/tensorboard"
"""Written on this pod. Value: the run's name."""
_COPIED: Final = ("securityContext", "tolerations", "imagePullSecrets", "runtimeClassName")
"""What the pod takes over from the run's own, so that it may run where that one does."""
_PROBE: Final = "import urllib.request as r; r.urlopen('http://127.0.0.1:6006/', timeout=2).read(1)"


@dataclass(frozen=True)
class Placement:
    """Where the pod's pieces come from."""

    image: str
    claim: str
    node: str | None
    """A node that it must be on, because the volume is attached there."""
    like: Object
    """The pod spec of the run's Job; empty without one."""


def tensorboard_pod(run: Run, name: str, placement: Placement, lifetime_s: int) -> dict[str, Any]:
    """The pod; it reads the storage only, ends by itself, and goes with its run."""
    user = Settings().user
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": lifetime_s,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(run, placement)],
        "volumes": [
            {
                "name": "storage",
                "persistentVolumeClaim": {"claimName": placement.claim, "readOnly": True},
            },
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    spec |= {key: placement.like[key] for key in _COPIED if placement.like.get(key)}
    if placement.node is not None:
        spec["affinity"] = _on(placement.node)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": run.namespace,
            "labels": {LABEL: run.name},
            "ownerReferences": [
                {"apiVersion": API_VERSION, "kind": KIND, "name": run.name, "uid": run.uid}
            ],
        },
        "spec": spec,
    }


def _container(run: Run, placement: Placement) -> dict[str, Any]:
    command = ["python", "-m", "tensorboard.main", "--logdir", _logdir(run)]
    container: dict[str, Any] = {
        "name": "tensorboard",
        "image": placement.image,
        "command": [*command, "--host", "127.0.0.1", "--port", str(PORT)],
        "env": [
            {"name": "HOME", "value": TMP_MOUNT},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},  # it shall hold no GPU
        ],
        # Asked until it answers once: afterwards nobody but port-forward needs to know.
        "startupProbe": {
            "exec": {"command": ["python", "-c", _PROBE]},
            "periodSeconds": 2,
            "timeoutSeconds": 10,
            "failureThreshold": 300,
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "storage", "mountPath": STORAGE_MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": TMP_MOUNT},
        ],
    }
    policy = text(trainer_of(placement.like), "imagePullPolicy")
    return {**container, "imagePullPolicy": policy} if policy else container


def _logdir(run: Run) -> str:
    """The run's directory, or the whole storage before the run has named it."""
    summary = run.status.run_summary
    folder = summary.run_directory if summary is not None else None
    if folder is None or folder.startswith("/") or ".." in folder.split("/"):
        return STORAGE_MOUNT
    return f"{STORAGE_MOUNT}/{folder}"


def trainer_of(pod_spec: Object) -> Object:
    """The trainer container of a pod spec; empty without one."""
    found = (c for c in items(pod_spec, "containers") if text(c, "name") == TRAINER_CONTAINER)
    return next(found, mapping({}, ""))


def _on(node: str) -> dict[str, Any]:
    """By the node's name, not by its host name label: the scheduler still has its say."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
