"""Runs whose operator is to be troubled: an operator behind a proxy, pods that run, a witness."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.kubernetes.api import Api, Object, RefusedError, wait_for
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.proxy import Proxy
from tests.support.kubernetes.simulated_kubelet import (
    ARTIFACT,
    TOTAL_STEPS,
    Plan,
    Plans,
    SimulatedKubelet,
    fails_once,
)
from tests.support.kubernetes.witness import DRIVETRAIN, Witness
from tests.support.operator_process import OperatorProcess

PATIENCE_S = 90.0
"""For a run to get somewhere, on a machine that does much else."""
ALONE = ("--leader-elect", "false")
"""For an operator that is killed: a Lease that nobody gave back is waited for."""
_CHILDREN = (
    ("batch/v1", "Job"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
)


@contextmanager
def namespace_of(api: Api) -> Iterator[str]:
    """A fresh namespace for a block."""
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "faults-"}}
    name: str = api.create(made)["metadata"]["name"]
    try:
        yield name
    finally:
        api.delete("v1", "Namespace", name)


def manifest(name: str, **spec: Any) -> Object:
    """A run that goes on at once after a failure."""
    return {
        "apiVersion": DRIVETRAIN,
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": {
            "algo": {"name": "sac"},
            "task": {"name": "hopper"},
            "training": {"totalEnvSteps": TOTAL_STEPS},
            "restart": {"maxRestarts": 3, "backoffSeconds": 0},
        }
        | spec,
    }


class Runs:
    """The runs of one namespace, as a user and a cluster's administrator see them."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def create(self, name: str, **spec: Any) -> Object:
        """Make a run."""
        return self.api.create(manifest(name, **spec), namespace=self.namespace)

    def change(self, name: str, **spec: Any) -> None:
        """Edit its spec."""
        self.api.patch(DRIVETRAIN, "TrainingRun", name, {"spec": spec}, self.namespace)

    def tamper(self, name: str, status: Object) -> None:
        """Write its status as somebody with the rights to."""
        change = {"status": status}
        self.api.patch(
            DRIVETRAIN, "TrainingRun", name, change, self.namespace, subresource="status"
        )

    def delete(self, name: str) -> None:
        """Delete it."""
        self.api.delete(DRIVETRAIN, "TrainingRun", name, self.namespace)

    def run(self, name: str) -> Object | None:
        """The object."""
        return self.api.find(DRIVETRAIN, "TrainingRun", name, self.namespace)

    def status(self, name: str) -> Object:
        """Its status; empty where there is none."""
        return (self.run(name) or {}).get("status") or {}

    def until(
        self, name: str, check: Callable[[Object], object], what: str, timeout_s: float = PATIENCE_S
    ) -> Object:
        """Wait until the status is as asked for, through any outage; the status then."""
        seen: Object = {}

        def look() -> Object | None:
            try:
                seen["status"] = self.status(name)
            except (OSError, RefusedError):  # the server is away
                return None
            return seen["status"] if check(seen["status"]) else None

        try:
            return wait_for(look, what, timeout_s)
        except TimeoutError as error:
            raise AssertionError(f"{name}: {error}: {seen}") from error

    def phase(self, name: str, wanted: str, attempt: int | None = None) -> Object:
        """Wait for a phase, of an attempt where one is named; the status then."""
        return self.until(
            name,
            lambda s: s.get("phase") == wanted and attempt in (None, s["attempt"]),
            f"phase {wanted}" + (f" of attempt {attempt}" if attempt else ""),
        )

    def children(self, name: str) -> set[tuple[str, str]]:
        """Kind and name of everything that was made for a run."""
        mine = {"labelSelector": f"drivetrain.dev/run={name}"}
        return {
            (kind, item["metadata"]["name"])
            for version, kind in _CHILDREN
            for item in self.api.objects(version, kind, self.namespace, **mine)
        }

    def alive(self, name: str) -> set[str]:
        """Jobs of a run, and pods that have not ended; one that has is the kubelet's to remove."""
        mine = {"labelSelector": f"drivetrain.dev/run={name}"}
        jobs = self.api.objects("batch/v1", "Job", self.namespace, **mine)
        pods = self.api.objects("v1", "Pod", self.namespace, **mine)
        going = [pod for pod in pods if pod["status"]["phase"] not in {"Succeeded", "Failed"}]
        return {item["metadata"]["name"] for item in [*jobs, *going]}

    def gone(self, name: str) -> None:
        """Wait until nothing that was made for a run is left, nor itself."""
        wait_for(lambda: self.run(name) is None, f"deletion of {name}", PATIENCE_S)
        wait_for(lambda: not self.children(name), f"deletion of {name}'s children", PATIENCE_S)

    def completes(self, name: str, attempt: int = 2) -> Object:
        """Wait for the end of a run all of whose attempts but the last failed: nothing is lost.

        Each attempt has its record, each failure was counted once, the figures, the summary
        and the artifacts are those of the last attempt, and of the others nothing is left.
        """
        status = self.phase(name, "Complete")
        ended = [(record["attempt"], record["reason"]) for record in status["history"]]
        failed = [(number, "AttemptFailed") for number in range(1, attempt)]
        assert ended == [*failed, (attempt, "TrainingComplete")], status
        assert (status["attempt"], status["restarts"]) == (attempt, attempt - 1), status
        assert status["progress"]["envSteps"] == TOTAL_STEPS, status
        assert status["runSummary"]["totalEnvSteps"] == TOTAL_STEPS, status
        assert [a["sha256"] for a in status["artifacts"]] == [ARTIFACT.sha256], status
        earlier = {f"{name}-a{number}" for number in range(1, attempt)}
        wait_for(
            lambda: not {child for _, child in self.children(name)} & earlier,
            f"removal of {name}'s earlier attempts",
        )
        return status


class Lab(Runs):
    """A namespace with an operator of its own, all calls of which go through a proxy.

    Args:
        plane: The control plane.
        namespace: Where it works; the administrator's rights are its own.
        folder: For its files.
        flags: Of the operator.
        plans: What pods do.
    """

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        folder: Path,
        *,
        flags: Sequence[str] = ALONE,
        plans: Plans = fails_once,
    ) -> None:
        super().__init__(plane.api, namespace)
        self._plane = plane
        self._folder = folder
        self._flags = flags
        self._stack = ExitStack()
        self._plans = plans
        self._own_plans: dict[str, Plans] = {}
        self.proxy = Proxy(plane)
        self.kubelet = SimulatedKubelet(plane.api, self._plan, namespace)
        self.witness = Witness(plane.api, namespace)
        self.operator: OperatorProcess

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for part in (self.proxy, self.witness, self.kubelet):
                stack.enter_context(part)
            self.operator = stack.enter_context(self.replica("operator"))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self.witness.check()

    def _plan(self, run: str, attempt: int) -> Plan:
        return self._own_plans.get(run, self._plans)(run, attempt)

    def create_with(self, plans: Plans, name: str, **spec: Any) -> Object:
        """Make a run with plans of its own."""
        self._own_plans[name] = plans
        return self.create(name, **spec)

    @contextmanager
    def replica(self, name: str) -> Iterator[OperatorProcess]:
        """One more operator, not started; ended with the block, its log told on a failure."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self.proxy.kubeconfig(self._folder / f"{name}.yaml", namespace=self.namespace)
        intervals = ("--progress-interval-seconds", "0")
        operator = OperatorProcess(
            self._folder / name, config, "--namespaces", self.namespace, *intervals, *self._flags
        )
        try:
            yield operator
        except BaseException:
            print(f"--- {operator.log}\n{operator.process.tail(60)}\n")
            raise
        finally:
            operator.stop(signal.SIGKILL)
