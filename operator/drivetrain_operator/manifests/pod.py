"""The pod template of an attempt, fit for PodSecurity *restricted*."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api import labels
from drivetrain_api.training import WANDB_LOGGER, WandbMode, logger_names
from drivetrain_operator.manifests.metadata import child_labels
from drivetrain_operator.manifests.names import (
    RUN_JSON,
    TRAINER_CONTAINER,
    account_name,
    attempt_name,
    progress_name,
)
from drivetrain_operator.manifests.overlay import overlaid
from drivetrain_operator.manifests.storage import storage_volume

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.kinds import Manifest
    from drivetrain_operator.manifests.settings import Settings

SPEC_MOUNT: Final = "/etc/drivetrain"
STORAGE_MOUNT: Final = "/var/lib/drivetrain"
SCRATCH_MOUNT: Final = "/run/drivetrain"
SHM_MOUNT: Final = "/dev/shm"  # noqa: S108 - the pod's own Memory emptyDir
TMP_MOUNT: Final = "/tmp"  # noqa: S108 - likewise
TERMINATION_LOG: Final = "/dev/termination-log"
INDEX_FIELD: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
DEFAULT_SCHEDULER: Final = "default-scheduler"
COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""Read by the coscheduling plugin. Value: the PodGroup's name, which is the run's."""
VOLCANO_ANNOTATION: Final = "scheduling.k8s.io/group-name"
"""Read by Volcano. Value: the PodGroup's name, which is the run's."""

_MOUNTS: Final = {
    "spec": SPEC_MOUNT,
    "storage": STORAGE_MOUNT,
    "scratch": SCRATCH_MOUNT,
    "shm": SHM_MOUNT,
    "tmp": TMP_MOUNT,
}


def pod_template(run: TrainingRun, attempt: int, settings: Settings) -> Manifest:
    """The template with the run's `podTemplate` laid over it."""
    spec: Manifest = {
        "restartPolicy": "Never",
        "subdomain": attempt_name(run.metadata.name, attempt),
        "serviceAccountName": account_name(run.metadata.name),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": run.spec.grace_period_seconds,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{taint}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": settings.toleration_seconds,
            }
            for taint in ("not-ready", "unreachable")
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            "runAsGroup": settings.user,
            "fsGroup": settings.user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_trainer(run, attempt, settings)],
        "volumes": _volumes(run, attempt, settings),
    }
    if run.spec.scheduler_name is not None:
        spec["schedulerName"] = run.spec.scheduler_name
    template = {"metadata": _metadata(run, attempt), "spec": spec}
    return overlaid(template, run.spec.pod_template or {})


def _metadata(run: TrainingRun, attempt: int) -> Manifest:
    """Labels of the pods, and the group's name where another scheduler may place them at once.

    The group is named after the run: its PodGroup is made once, whatever the attempt.
    """
    metadata: Manifest = {"labels": child_labels(run, attempt)}
    if run.spec.scheduler_name in (None, DEFAULT_SCHEDULER) or run.spec.topology.nodes == 1:
        return metadata
    metadata["labels"][COSCHEDULING_LABEL] = run.metadata.name
    metadata["annotations"] = {VOLCANO_ANNOTATION: run.metadata.name}
    return metadata


def _trainer(run: TrainingRun, attempt: int, settings: Settings) -> Manifest:
    container: Manifest = {
        "name": TRAINER_CONTAINER,
        "image": run.spec.image or settings.image,
        "command": ["drivetrain-launcher"],
        "env": _environment(run, attempt, settings),
        "volumeMounts": [
            {"name": name, "mountPath": path, **({"readOnly": True} if name == "spec" else {})}
            for name, path in _MOUNTS.items()
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "File",
    }
    accelerator = run.spec.accelerator
    if accelerator.gpus_per_node:
        gpus = {accelerator.resource_name: str(accelerator.gpus_per_node)}
        container["resources"] = {"limits": gpus}
    return container


def _environment(run: TrainingRun, attempt: int, settings: Settings) -> list[Manifest]:
    name = attempt_name(run.metadata.name, attempt)
    plain = {
        labels.ENV_SPEC_FILE: f"{SPEC_MOUNT}/{RUN_JSON}",
        labels.ENV_STORAGE: STORAGE_MOUNT,
        labels.ENV_SCRATCH: SCRATCH_MOUNT,
        labels.ENV_PROGRESS_SINK: f"configmap:{progress_name(run.metadata.name)}",
        labels.ENV_TERMINATION_LOG: TERMINATION_LOG,
        "HOME": TMP_MOUNT,
        "PET_NNODES": str(run.spec.topology.nodes),
        "PET_NPROC_PER_NODE": str(run.spec.topology.ranks_per_node),
        "PET_MASTER_ADDR": f"{name}-0.{name}",
        "PET_MASTER_PORT": str(settings.rendezvous_port),
    }
    return [
        *({"name": key, "value": value} for key, value in plain.items()),
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}},
        *_wandb_key(run),
    ]


def _wandb_key(run: TrainingRun) -> list[Manifest]:
    """The key of Weights & Biases, which the kubelet reads from the run's Secret; we never do.

    Without the Secret the pod starts all the same: training must not wait for its record, and
    the trainer says what is missing and keeps the record to be sent later.
    """
    training = run.spec.training
    reference = training.wandb_api_key_secret_ref
    used = WANDB_LOGGER in logger_names(training.logger)
    if reference is None or not used or training.wandb_mode is not WandbMode.ONLINE:
        return []
    selector = {"name": reference.name, "key": reference.key, "optional": True}
    return [{"name": labels.ENV_WANDB_API_KEY, "valueFrom": {"secretKeyRef": selector}}]


def _volumes(run: TrainingRun, attempt: int, settings: Settings) -> list[Manifest]:
    return [
        {"name": "spec", "configMap": {"name": attempt_name(run.metadata.name, attempt)}},
        storage_volume(run, "storage"),
        {"name": "scratch", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shm_size}},
        {"name": "tmp", "emptyDir": {}},
    ]
