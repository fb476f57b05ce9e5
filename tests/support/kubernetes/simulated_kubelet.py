"""Pods that run without a node: scheduled, started, ended and taken away as a kubelet would.

Rank 0 reports as the launcher does: figures to the progress ConfigMap while it runs, the
digest there and in the termination message at its end.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from tests.support.kubernetes.api import Api, Object, RefusedError, collection_of
from tests.support.kubernetes.follower import TROUBLE, Follower

from drivetrain_api import labels
from drivetrain_api.digest import PROGRESS_LIMIT, TERMINATION_LIMIT, Digest, encode
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.status import Artifact, Progress, RunSummaryDigest

_LEASES = "kube-node-lease"
_RENEWAL_S = 5.0
TOTAL_STEPS = 1000
_ROUND_S = 0.03
_INDEX = "batch.kubernetes.io/job-completion-index"
_RACES = frozenset({404, 409})
"""The pod went, or was bound, meanwhile."""


@dataclass(frozen=True)
class Plan:
    """What the pods of one attempt do."""

    code: int | None = int(ExitCode.DONE)
    """The trainer's exit code; None: they run until they are told to end."""
    steps: int = TOTAL_STEPS
    """Environment steps that rank 0 reports while it runs."""
    starts: bool = True
    """Whether they are bound to a node and run; else they stay Pending."""


Plans = Callable[[str, int], Plan]
"""The plan of a run's attempt."""


def fails_once(_: str, attempt: int) -> Plan:
    """The first attempt fails halfway, the second one is done."""
    return Plan(code=1, steps=TOTAL_STEPS // 2) if attempt == 1 else Plan()


def runs_on(_: str, attempt: int) -> Plan:
    """Attempts run until they are told to end."""
    return Plan(code=None, steps=min(100 * attempt, TOTAL_STEPS))


def summary_of(plan: Plan) -> RunSummaryDigest:
    """What a run summary says after an attempt that is done."""
    return RunSummaryDigest(status="completed", total_env_steps=plan.steps)


ARTIFACT = Artifact(name="best_checkpoint", uri="logs/best", sha256="a" * 64, bytes=7)


class SimulatedKubelet:
    """Drives all pods of TrainingRuns; use as a context.

    Args:
        api: The API server.
        plans: What they do.
        namespace: Where; None for everywhere.
    """

    def __init__(self, api: Api, plans: Plans, namespace: str | None = None) -> None:
        self._api = api
        self.plans = plans
        self._pods = Follower(
            api, collection_of("v1", "Pod", namespace), lambda *_: None, selector=labels.RUN
        )
        self.node = f"simulated-{secrets.token_hex(4)}"
        """A node that is Ready: pods on one that is not would be evicted."""
        self._renewed_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._taken: set[tuple[str, str]] = set()
        """Steps that were taken, by the pod's UID."""

    def __enter__(self) -> Self:
        self._pods.__enter__()
        self._register()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._pods.__exit__(kind, error, trace)
        # What was on it is cleared away with it.
        self._api.delete("v1", "Node", self.node)
        self._api.delete("coordination.k8s.io/v1", "Lease", self.node, _LEASES)

    def _register(self) -> None:
        meta = {"name": self.node}
        self._api.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        self._api.create(lease, namespace=_LEASES)
        self._renew()
        ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": ""}
        status = {"conditions": [ready], "capacity": {"pods": "1000"}}
        self._api.patch("v1", "Node", self.node, {"status": status}, subresource="status")

    def _renew(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": now}
        self._api.patch("coordination.k8s.io/v1", "Lease", self.node, {"spec": spec}, _LEASES)
        self._renewed_at = time.monotonic()

    def _run(self) -> None:
        while not self._stopping.wait(_ROUND_S):
            try:
                if time.monotonic() - self._renewed_at > _RENEWAL_S:
                    self._renew()
                for item in self._pods.objects():
                    self._try(_Pod(item))
            except TROUBLE:
                continue  # the server is away: again in the next round

    def _try(self, pod: _Pod) -> None:
        try:
            self._drive(pod)
        except RefusedError as error:
            if error.answer.code not in _RACES:
                raise

    def _drive(self, pod: _Pod) -> None:
        """The next step of a pod, once; a later state leads to the one after it."""
        plan = self.plans(pod.run, pod.attempt)
        if pod.deleting:
            if pod.phase == "Running":
                self._once(pod, "end", lambda: self._end(pod, int(ExitCode.CHECKPOINTED), plan))
            else:
                self._once(pod, "remove", lambda: self._remove(pod))
        elif not plan.starts:
            return
        elif not pod.node:
            self._once(pod, "bind", lambda: self._bind(pod))
        elif pod.phase == "Pending":
            self._once(pod, "start", lambda: self._set(pod, "Running", {"running": {}}))
        elif pod.phase == "Running":
            self._once(pod, "report", lambda: self._report(pod, self._digest(pod, plan)))
            if plan.code is not None:
                code = plan.code
                self._once(pod, "end", lambda: self._end(pod, code, plan))

    def _once(self, pod: _Pod, step: str, act: Callable[[], None]) -> None:
        if (pod.uid, step) not in self._taken:
            act()
            self._taken.add((pod.uid, step))

    # -- steps -----------------------------------------------------------------------------

    def _bind(self, pod: _Pod) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        path = f"{collection_of('v1', 'Pod', pod.namespace)}/{pod.name}/binding"
        self._api.request("POST", path, binding)

    def _set(self, pod: _Pod, phase: str, state: Object) -> None:
        container = {
            "name": "trainer",
            "image": "any",
            "imageID": "",
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        # The UID has it refused where another pod has the name by now.
        change = {
            "metadata": {"uid": pod.uid},
            "status": {"phase": phase, "containerStatuses": [container]},
        }
        self._api.patch("v1", "Pod", pod.name, change, pod.namespace, subresource="status")

    def _report(self, pod: _Pod, digest: Digest) -> None:
        if pod.index != 0:
            return
        change = {"data": {"progress": encode(digest, PROGRESS_LIMIT)}}
        try:
            self._api.patch("v1", "ConfigMap", f"{pod.run}-progress", change, pod.namespace)
        except RefusedError as error:
            if error.answer.code not in {404, 422}:  # it went, or takes nothing any more
                raise

    def _end(self, pod: _Pod, code: int, plan: Plan) -> None:
        digest = self._digest(pod, plan, code)
        self._report(pod, digest)
        ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "message": encode(digest, TERMINATION_LIMIT),
            "startedAt": pod.created,
            "finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self._set(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def _remove(self, pod: _Pod) -> None:
        self._api.delete("v1", "Pod", pod.name, pod.namespace, grace_s=0)

    @staticmethod
    def _digest(pod: _Pod, plan: Plan, code: int | None = None) -> Digest:
        progress = Progress(
            iteration=plan.steps // 100, env_steps=plan.steps, target_env_steps=TOTAL_STEPS
        )
        done = code == ExitCode.DONE
        return Digest(
            attempt=pod.attempt,
            exit_code=code,
            message="" if done or code is None else f"ended with {code}",
            progress=progress,
            run_summary=summary_of(plan) if done else None,
            artifacts=(ARTIFACT,) if done else (),
        )


class _Pod:
    """A pod as the steps need it."""

    def __init__(self, item: Object) -> None:
        meta = item["metadata"]
        self.name: str = meta["name"]
        self.namespace: str = meta["namespace"]
        self.uid: str = meta["uid"]
        self.created: str = meta["creationTimestamp"]
        self.run: str = meta["labels"][labels.RUN]
        self.attempt = int(meta["labels"].get(labels.ATTEMPT, 0))
        self.index = int(meta.get("annotations", {}).get(_INDEX, 0))
        self.deleting = "deletionTimestamp" in meta
        self.node: str = item["spec"].get("nodeName", "")
        self.phase: str = item.get("status", {}).get("phase", "Pending")
