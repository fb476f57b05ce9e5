"""A run in a queue: what the test asks of it, and all that its status ever said."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tests.e2e.cluster.kueue.conftest import QUEUE, REQUEST
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.kubectl import Kubectl

PATIENCE_S = 240.0
"""For pods to start, train or end on a machine that does much else."""


class QueuedRun:
    """A TrainingRun with a `queueName`."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl = kubectl
        self.name = name
        self.axis: list[int] = []
        """Environment steps, in the order in which the status had them."""

    def submit(self, spec: Object, priority_class: str | None = None) -> None:
        """Apply it, with the resources that the queue counts."""
        resources = {"requests": REQUEST, "limits": {"cpu": "2", "memory": "3Gi"}}
        pod: Object = {"containers": [{"name": "trainer", "resources": resources}]}
        if priority_class is not None:
            pod["priorityClassName"] = priority_class
        self.kubectl.apply(
            {
                "apiVersion": "drivetrain.dev/v1alpha1",
                "kind": "TrainingRun",
                "metadata": {"name": self.name},
                "spec": {**spec, "queueName": QUEUE, "podTemplate": {"spec": pod}},
            }
        )

    # -- what is ---------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Now; a failed run fails the test."""
        status: dict[str, Any] = self.kubectl.get("trun", self.name).get("status") or {}
        assert status.get("phase") != "Failed", json.dumps(status, indent=1)
        steps = (status.get("progress") or {}).get("envSteps")
        if steps is not None:
            self.axis.append(steps)
        return status

    def steps(self) -> int:
        """Environment steps so far."""
        return int((self.status().get("progress") or {}).get("envSteps", 0))

    def condition(self, type_: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        found = self._condition(type_)
        return found["status"], found["reason"], found["message"]

    def changed_at(self, type_: str) -> datetime:
        """When a condition became what it is."""
        return datetime.fromisoformat(self._condition(type_)["lastTransitionTime"])

    def _condition(self, type_: str) -> dict[str, str]:
        (found,) = (c for c in self.status().get("conditions", ()) if c["type"] == type_)
        return dict(found)

    def phase(self) -> str:
        """Now."""
        return str(self.status().get("phase"))

    def job(self, attempt: int = 1) -> Object:
        """The Job of an attempt."""
        return self.kubectl.get("job", f"{self.name}-a{attempt}")

    def pods(self) -> list[Object]:
        """All that are there."""
        return self.kubectl.list("pods", *self._mine())

    def _mine(self) -> tuple[str, str]:
        return "--selector", f"drivetrain.dev/run={self.name}"

    def workloads(self) -> list[Object]:
        """What Kueue made of the run's Jobs."""
        prefix = f"{self.name}-a"
        return [w for w in self.kubectl.list("workloads") if _owner(w).startswith(prefix)]

    def workload(self) -> Object | None:
        """The only one, once it is there."""
        found = self.workloads()
        return found[0] if len(found) == 1 else None

    # -- what is done ----------------------------------------------------------------------

    def activate(self, *, active: bool) -> None:
        """Let Kueue admit it, or take it out."""
        (workload,) = self.workloads()
        patch = json.dumps({"spec": {"active": active}})
        name = workload["metadata"]["name"]
        self.kubectl("patch", "workload", name, "--type=merge", "--patch", patch)

    def suspend(self, *, suspend: bool) -> None:
        """By its own spec."""
        patch = json.dumps({"spec": {"suspend": suspend}})
        self.kubectl("patch", "trun", self.name, "--type=merge", "--patch", patch)

    def delete(self) -> None:
        """Delete the run."""
        self.kubectl("delete", "trun", self.name, "--timeout=60s")

    # -- what is waited for ----------------------------------------------------------------

    def reaches(self, phase: str) -> dict[str, Any]:
        """Wait for a phase; the status that has it."""

        def there() -> dict[str, Any] | None:
            status = self.status()
            return status if status.get("phase") == phase else None

        return wait_for(there, f"phase {phase} of {self.name}", PATIENCE_S, 0.5)

    def waits(self) -> dict[str, Any]:
        """Wait until the run waits in the queue; the status that says so."""

        def there() -> dict[str, Any] | None:
            status = self.status()
            told = {(c["type"], c["status"], c["reason"]) for c in status.get("conditions", ())}
            return status if ("Scheduled", "False", "Queued") in told else None

        return wait_for(there, f"{self.name} in the queue", PATIENCE_S, 0.5)

    def ends_its_pods(self) -> None:
        """Wait until none is left."""
        wait_for(lambda: not self.pods(), f"end of the pods of {self.name}", PATIENCE_S, 0.5)

    def checkpoints(self) -> int:
        """Wait until a checkpoint has all that was trained; its environment steps."""

        def whole() -> int:
            progress = self.status().get("progress") or {}
            kept = progress.get("checkpointEnvSteps", 0)
            return int(kept) if kept == progress.get("envSteps") else 0

        return wait_for(whole, f"checkpoint of all of {self.name}", PATIENCE_S, 0.5)

    def leaves_nothing(self) -> None:
        """Wait until its Job, pods and Workload are gone."""

        def left() -> list[Object]:
            return [*self.kubectl.list("jobs,pods,configmaps", *self._mine()), *self.workloads()]

        wait_for(lambda: not left(), f"end of all of {self.name}", PATIENCE_S, 0.5)

    def trains(self, beyond: int = 0) -> int:
        """Wait for more environment steps than these."""

        def further() -> int:
            steps = self.steps()
            return steps if steps > beyond else 0

        return wait_for(further, f"steps of {self.name} beyond {beyond}", PATIENCE_S, 0.5)


def _owner(item: Object) -> str:
    owners = item["metadata"].get("ownerReferences") or [{"name": ""}]
    return str(owners[0]["name"])
