"""The Indexed Job of an attempt: any pod's failure ends it as a whole."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.exit_codes import ExitCode
from drivetrain_operator.manifests.metadata import child_metadata
from drivetrain_operator.manifests.names import TRAINER_CONTAINER, attempt_name
from drivetrain_operator.manifests.pod import pod_template

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.manifests.kinds import Manifest
    from drivetrain_operator.manifests.settings import Settings

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Read by Kueue. Value: the LocalQueue's name."""


class FailureRule(IntEnum):
    """Index of each podFailurePolicy rule; a Job's failure message names it."""

    DISRUPTED = 0
    FOR_GOOD = 1
    STOPPED = 2
    """Not in a queue."""


def attempt_job(run: TrainingRun, attempt: int, settings: Settings) -> Manifest:
    """The Job of attempt `attempt`.

    The rules all fail the Job: `Ignore` would replace a pod inside the old attempt. With
    a queue it is born suspended, and Kueue owns that field from then on.
    """
    metadata = child_metadata(run, attempt_name(run.metadata.name, attempt), attempt)
    spec: Manifest = {
        "completionMode": "Indexed",
        "completions": run.spec.topology.nodes,
        "parallelism": run.spec.topology.nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules(queued=run.spec.queue_name is not None)},
        "template": pod_template(run, attempt, settings),
    }
    if run.spec.queue_name is not None:
        metadata["labels"][QUEUE_LABEL] = run.spec.queue_name
        spec["suspend"] = True
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _failure_rules(*, queued: bool) -> list[Manifest]:
    """The rules in the order of `FailureRule`.

    Kueue stops pods by suspending their Job, and they leave with 75. The Job's controller
    counts no pod that it suspended, but it still holds it against the rules, should the pod's
    end be seen before the pod is gone: the Job would fail instead of waiting for its next turn.
    Without the rule a pod that is stopped otherwise fails the Job by its backoffLimit.
    """
    disrupted: Manifest = {
        "action": "FailJob",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    stopped = [] if queued else [_on_exit(ExitCode.CHECKPOINTED)]
    return [disrupted, _on_exit(ExitCode.REFUSED, ExitCode.BROKEN), *stopped]


def _on_exit(*codes: ExitCode) -> Manifest:
    return {
        "action": "FailJob",
        "onExitCodes": {
            "containerName": TRAINER_CONTAINER,
            "operator": "In",
            "values": [int(code) for code in codes],
        },
    }
