"""A run that is troubled on a real node, and all that it left: reports, endings, files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.cluster.faults.lab import Runs
from tests.support.kubernetes.api import Object, collection_of, wait_for
from tests.support.kubernetes.follower import Follower
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.pod_processes import PodProcesses
from tests.support.kubernetes.witness import Witness
from tests.support.tiny_sac import TINY_SAC

from drivetrain_api import labels
from drivetrain_api.digest import PROGRESS_LIMIT, TERMINATION_LIMIT, Digest, decode
from drivetrain_api.status import Progress
from drivetrain_operator.manifests.names import claim_name, progress_name

T = TypeVar("T")

NAME = "trial"
TOTAL_STEPS = 1_000_000
"""No run of ours gets there: none ends before it is troubled."""
CHECKPOINT_STEPS = 100
GRACE_S = 10
SHARED_BYTES = 1 << 30
"""Of the chart's ``trainer.shmSize``."""
PATIENCE_S = 240.0
"""For pods to start, train or end on a machine that does much else."""
_INDEX = "batch.kubernetes.io/job-completion-index"


def spec(**sections: Any) -> Object:
    """A run of tiny networks, and long enough to be disturbed."""
    return {
        "algo": {**TINY_SAC, "updatesPerStep": 1},
        "task": {"name": "inverted_pendulum"},
        "training": {"totalEnvSteps": TOTAL_STEPS, "logger": "none"},
        "storage": {"size": "1Gi"},
        "evaluator": {"interval": TOTAL_STEPS},
        "checkpoint": {"interval": CHECKPOINT_STEPS},
        "restart": {"maxRestarts": 1, "backoffSeconds": 1},
        "gracePeriodSeconds": GRACE_S,
        "podTemplate": limited(),
    } | sections


def limited(memory: str = "3Gi") -> Object:
    """A pod template with limits."""
    limits = {"cpu": "2", "memory": memory}
    trainer = {"name": "trainer", "resources": {"limits": limits, "requests": {"cpu": "100m"}}}
    return {"spec": {"containers": [trainer]}}


@dataclass(frozen=True)
class Ending:
    """How a container of a pod ended."""

    pod: str
    attempt: int
    index: int
    code: int
    reason: str
    digest: Digest | None
    """Of the termination message."""


class Trial(Runs):
    """One run in a namespace of its own; use as a context."""

    def __init__(self, node: Node, namespace: str) -> None:
        super().__init__(node.api, namespace)
        self.node = node
        self.witness = Witness(node.api, namespace, figures=False)
        self._lock = threading.Lock()
        self._reports: list[tuple[int, Progress]] = []
        self._endings: dict[str, Ending] = {}
        self._pods = Follower(
            node.api, collection_of("v1", "Pod", namespace), self._pod, selector=labels.RUN
        )
        self._maps = Follower(
            node.api, collection_of("v1", "ConfigMap", namespace), self._map, selector=labels.RUN
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for part in (self.witness, self._pods, self._maps):
            self._stack.enter_context(part)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    # -- what is seen ----------------------------------------------------------------------

    def _pod(self, item: Object, gone: bool) -> None:
        del gone
        for container in item.get("status", {}).get("containerStatuses") or ():
            ended = container["state"].get("terminated")
            if ended is None:
                continue
            meta = item["metadata"]
            ending = Ending(
                meta["name"],
                int(meta["labels"][labels.ATTEMPT]),
                int(meta["labels"][_INDEX]),
                ended["exitCode"],
                ended.get("reason", ""),
                decode(ended.get("message", ""), TERMINATION_LIMIT),
            )
            with self._lock:
                self._endings[meta["uid"]] = ending

    def _map(self, item: Object, gone: bool) -> None:
        text = (item.get("data") or {}).get("progress")
        if gone or item["metadata"]["name"] != progress_name(NAME) or not text:
            return
        digest = decode(text, PROGRESS_LIMIT)
        assert digest is not None, text
        if digest.progress is not None:
            with self._lock:
                self._reports.append((digest.attempt, digest.progress))

    def endings(self, attempt: int) -> dict[int, Ending]:
        """How the pods of an attempt ended, by index, as far as it was seen."""
        with self._lock:
            return {e.index: e for e in self._endings.values() if e.attempt == attempt}

    def steps(self, attempt: int) -> list[int]:
        """Environment steps that an attempt reported, in order."""
        with self._lock:
            return [p.env_steps for number, p in self._reports if number == attempt and p.env_steps]

    def checkpoint(self, attempt: int) -> int:
        """Step of the newest checkpoint that an attempt wrote itself; 0 before the first."""
        first = next(iter(self.steps(attempt)), 0)
        with self._lock:
            mine = [p.checkpoint_env_steps or 0 for n, p in self._reports if n == attempt]
        return max((step for step in mine if step > first or attempt == 1), default=0)

    def told(self) -> str:
        """Everything, for the message of a failure."""
        pods = self.api.objects("v1", "Pod", self.namespace)
        return json.dumps(
            {
                "status": self.status(NAME),
                "pods": {pod["metadata"]["name"]: pod["status"] for pod in pods},
                "endings": [str(ending) for ending in self._endings.values()],
                "events": [
                    f"{e['involvedObject']['kind']} {e['reason']}: {e['message']}"
                    for e in self.api.objects("v1", "Event", self.namespace)
                ],
            },
            indent=1,
        )

    def children_of_kind(self, kind: str) -> list[str]:
        """Names of what was made for the run."""
        return sorted(name for found, name in self.children(NAME) if found == kind)

    # -- what is done ----------------------------------------------------------------------

    def start(self, **sections: Any) -> None:
        """Make the run."""
        self.create(NAME, **spec(**sections))

    def trains(self, attempt: int = 1) -> int:
        """Wait until an attempt has trained to a checkpoint of its own; the step of it."""

        def look() -> int | None:
            status = self.status(NAME)
            assert status.get("attempt", 0) <= attempt, status
            assert status.get("phase") not in ("Failed", "Complete"), status
            return self.checkpoint(attempt)

        return self.wait(look, f"checkpoint of attempt {attempt}")

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        """As `wait_for`; a failure says all that is known."""
        try:
            return wait_for(look, what, PATIENCE_S, 0.2)
        except (TimeoutError, AssertionError) as error:
            error.add_note(self.told())
            raise

    def pod(self, attempt: int, index: int = 0) -> Object:
        """A pod of an attempt, once it is there."""
        mine = f"{labels.ATTEMPT}={attempt},{_INDEX}={index}"

        def look() -> Object | None:
            found = self.api.objects("v1", "Pod", self.namespace, labelSelector=mine)
            return found[0] if found else None

        return self.wait(look, f"pod {index} of attempt {attempt}")

    def processes(self, attempt: int, index: int = 0) -> PodProcesses:
        """What runs in a pod."""
        return PodProcesses(self.node.slot, self.pod(attempt, index)["metadata"]["uid"])

    def evict(self, pod: str) -> None:
        """Through the Eviction API, as a drain does it."""
        folder = collection_of("v1", "Pod", self.namespace)
        name = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
        self.api.request("POST", f"{folder}/{pod}/eviction", eviction)

    def tells(self, type_: str, status: str, reason: str, words: str = "") -> Object:
        """Wait until a condition says this; the status then."""

        def said(found: Object) -> bool:
            return (found["type"], found["status"], found["reason"]) == (
                type_,
                status,
                reason,
            ) and words in found["message"]

        return self.sees(
            lambda s: any(said(found) for found in s.get("conditions", ())),
            f"condition {type_} {status} for {reason}",
        )

    def sees(self, check: Callable[[Object], object], what: str) -> Object:
        """Wait until the status is as asked for; the status then."""

        def look() -> Object | None:
            status = self.status(NAME)
            return status if check(status) else None

        return self.wait(look, what)

    # -- what must hold --------------------------------------------------------------------

    def resumes(self, reason: str, *, counted: bool, checkpoint: int, code: int | None) -> Object:
        """Wait until a second attempt trains, after the first was ended for a reason.

        It goes on at the newest checkpoint or beyond, and alone.

        Args:
            reason: Why the first attempt ended.
            counted: Whether that counts as a restart.
            checkpoint: Step of one that the first attempt wrote.
            code: What decided, where a pod's exit did.
        """
        self.trains(2)
        status = self.sees(
            lambda s: s["phase"] == "Running" and s["progress"]["envSteps"] >= self.steps(2)[0],
            "figures of attempt 2",
        )
        (first,) = status["history"]
        assert (first["attempt"], first["reason"]) == (1, reason), status
        assert (first["counted"], first.get("exitCode")) == (counted, code), status
        numbers = (status["attempt"], status["restarts"], status["disruptions"])
        assert numbers == (2, int(counted), int(not counted)), status
        for type_, reason_ in (
            ("Scheduled", "PodsScheduled"),
            ("Running", "PodsRunning"),
            ("Checkpointed", "CheckpointWritten"),
        ):
            found = condition_of(status, type_)
            assert (found["status"], found["reason"]) == ("True", reason_), status
        steps = self.steps(2)
        assert steps == sorted(steps), steps
        assert steps[0] >= checkpoint, (steps, checkpoint)
        assert self.witness.jobs_made(NAME, 2) == 1
        self.witness.check()
        return status

    def run_directory(self) -> Path:
        """On the volume, as the machine sees it."""
        claim = self.api.get("v1", "PersistentVolumeClaim", claim_name(NAME), self.namespace)
        volume = self.node.volumes.path(claim["spec"]["volumeName"])
        (found,) = volume.glob("logs/sac/inverted_pendulum/*/")
        return found


def condition_of(status: Object, type_: str) -> Object:
    """A condition, which is there."""
    found: Object = next(c for c in status["conditions"] if c["type"] == type_)
    return found
