"""The real operator on a real API server: no nodes, so a test says what becomes of pods."""

from __future__ import annotations

import functools
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.calls import EVERY_WRITE, Selector, Verb, calls
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.faults import Fault, Refuse
from tests.support.kubernetes.proxy import Proxy
from tests.support.operator_process import OperatorProcess

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, encode
from drivetrain_api.status import Artifact, Progress, RunSummaryDigest

pytestmark = pytest.mark.cluster

DRIVETRAIN = "drivetrain.dev/v1alpha1"
RUN = "walk"
CHART = Path(__file__).parents[2] / "charts" / "drivetrain"
STATUS_WRITES = calls("trainingruns/status")
INTERVAL_S = 2


def manifest(name: str = RUN, **spec: Any) -> Object:
    return {
        "apiVersion": DRIVETRAIN,
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": {
            "algo": {"name": "sac"},
            "task": {"name": "hopper"},
            "training": {"totalEnvSteps": 1000},
        }
        | spec,
    }


class Bench:
    """A namespace with an operator that works in it alone."""

    def __init__(self, api: Api, namespace: str, operator: OperatorProcess, proxy: Proxy) -> None:
        self.api = api
        self.namespace = namespace
        self.operator = operator
        self.proxy = proxy

    def create(self, name: str = RUN, **spec: Any) -> Object:
        return self.api.create(manifest(name, **spec), namespace=self.namespace)

    def change(self, name: str = RUN, **spec: Any) -> None:
        self.api.patch(DRIVETRAIN, "TrainingRun", name, {"spec": spec}, self.namespace)

    def run(self, name: str = RUN) -> Object:
        return self.api.get(DRIVETRAIN, "TrainingRun", name, self.namespace)

    def status(self, name: str = RUN) -> Object:
        found: Object = self.run(name).get("status") or {}
        return found

    def phase(self, wanted: str, name: str = RUN) -> Object:
        """Wait for a phase; the status then."""

        def look() -> Object | None:
            status = self.status(name)
            return status if status.get("phase") == wanted else None

        try:
            return wait_for(look, f"phase {wanted}")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {self.status(name)}") from error

    def until(self, check: Callable[[Object], object], what: str, name: str = RUN) -> Object:
        """Wait until the status is as asked for; the status then."""

        def look() -> Object | None:
            status = self.status(name)
            return status if check(status) else None

        return wait_for(look, what)

    def job(self, attempt: int, name: str = RUN) -> Object:
        def look() -> Object | None:
            return self.api.find("batch/v1", "Job", f"{name}-a{attempt}", self.namespace)

        return wait_for(look, f"Job of attempt {attempt}")

    def pods(self, attempt: int, name: str = RUN) -> list[Object]:
        return self.api.objects(
            "v1", "Pod", self.namespace, labelSelector=f"job-name={name}-a{attempt}"
        )

    def pod(self, attempt: int, name: str = RUN) -> Object:
        return wait_for(lambda: self.pods(attempt, name), f"pod of attempt {attempt}")[0]

    def place(self, attempt: int, name: str = RUN) -> Object:
        """Bind the attempt's pod to a node and let it run."""
        pod = self.pod(attempt, name)
        target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
        self.api.request(
            "POST",
            f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": target,
            },
        )
        self.set_pod(pod, "Running", {"running": {"startedAt": "2026-03-01T12:00:00Z"}})
        return pod

    def set_pod(self, pod: Object, phase: str, state: Object) -> None:
        """What a kubelet would report."""
        container = {
            "name": "trainer",
            "image": "any",
            "imageID": "",
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        self.api.patch(
            "v1",
            "Pod",
            pod["metadata"]["name"],
            {"status": {"phase": phase, "containerStatuses": [container]}},
            self.namespace,
            subresource="status",
        )

    def end(self, pod: Object, code: int, message: str = "") -> None:
        ended = {
            "terminated": {
                "exitCode": code,
                "reason": "Completed" if code == 0 else "Error",
                "message": message,
                "startedAt": "2026-03-01T12:00:00Z",
                "finishedAt": "2026-03-01T12:00:10Z",
            }
        }
        self.set_pod(pod, "Succeeded" if code == 0 else "Failed", ended)

    def remove(self, pod: Object) -> None:
        """What a kubelet does once a deleted pod's processes are gone."""
        self.api.delete("v1", "Pod", pod["metadata"]["name"], self.namespace, grace_s=0)

    def report(self, digest: Digest, name: str = RUN) -> None:
        self.api.patch(
            "v1",
            "ConfigMap",
            f"{name}-progress",
            {"data": {"progress": encode(digest, PROGRESS_LIMIT)}},
            self.namespace,
        )

    def children(self, name: str = RUN) -> set[tuple[str, str]]:
        return {
            (kind, item["metadata"]["name"])
            for api, kind in (
                ("batch/v1", "Job"),
                ("v1", "ConfigMap"),
                ("v1", "Service"),
                ("v1", "ServiceAccount"),
                ("v1", "PersistentVolumeClaim"),
                ("rbac.authorization.k8s.io/v1", "Role"),
                ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            )
            for item in self.api.objects(
                api, kind, self.namespace, labelSelector=f"drivetrain.dev/run={name}"
            )
        }

    def events(self, name: str = RUN) -> list[str]:
        found = self.api.objects(
            "v1", "Event", self.namespace, fieldSelector=f"involvedObject.name={name}"
        )
        return [event["reason"] for event in sorted(found, key=lambda e: e["lastTimestamp"])]


def condition(status: Object, type_: str) -> Object:
    found: Object = next((c for c in status.get("conditions", ()) if c["type"] == type_), {})
    return found


def rules() -> list[Object]:
    """The chart's one list of rules."""
    text = (CHART / "templates" / "_rules.tpl").read_text()
    match = re.search(r'define "drivetrain.rules" -}}\n(.*?){{- end', text, re.DOTALL)
    assert match is not None
    found: list[Object] = yaml.safe_load(match[1])
    return found


LEASE_RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    }
]


def grant(api: Api, namespace: str) -> None:
    """An account `operator` with the chart's Role, and nothing else."""
    rbac = "rbac.authorization.k8s.io/v1"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator"}}
    role = {
        "apiVersion": rbac,
        "kind": "Role",
        "metadata": {"name": "operator"},
        "rules": [*rules(), *LEASE_RULES],
    }
    binding = {
        "apiVersion": rbac,
        "kind": "RoleBinding",
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }
    for item in (account, role, binding):
        api.create(item, namespace=namespace)


@pytest.fixture
def operator(
    control_plane: ControlPlane, proxy: Proxy, api: Api, namespace: str, tmp_path: Path
) -> OperatorProcess:
    """Not started: with the least rights, in one namespace, through the proxy."""
    grant(api, namespace)
    token = control_plane.account_token(namespace, "operator")
    kubeconfig = proxy.kubeconfig(tmp_path / "operator.yaml", token=token, namespace=namespace)
    return OperatorProcess(
        tmp_path / "operator",
        kubeconfig,
        *("--namespaces", namespace),
        *("--progress-interval-seconds", str(INTERVAL_S)),
    )


@pytest.fixture
def bench(api: Api, namespace: str, operator: OperatorProcess, proxy: Proxy) -> Iterator[Bench]:
    with operator:
        yield Bench(api, namespace, operator, proxy)


def test_a_run_from_its_creation_to_its_end(bench: Bench) -> None:
    bench.create(storage={"size": "1Gi"})
    bench.job(1)
    assert bench.children() == {
        ("Job", "walk-a1"),
        ("ConfigMap", "walk-a1"),
        ("ConfigMap", "walk-progress"),
        ("Service", "walk-a1"),
        ("ServiceAccount", "walk-trainer"),
        ("Role", "walk-trainer"),
        ("RoleBinding", "walk-trainer"),
        *((kind, name) for kind, name in bench.children() if kind == "PersistentVolumeClaim"),
    }
    assert any(kind == "PersistentVolumeClaim" for kind, _ in bench.children())
    status = bench.phase("Pending")
    assert (status["attempt"], condition(status, "Accepted")["status"]) == (1, "True")
    bench.proxy.forget()

    pod = bench.place(1)
    status = bench.phase("Running")
    assert condition(status, "Scheduled")["status"] == "True"
    assert bench.proxy.count(calls("jobs", Verb.CREATE)) == 0, "children are made once"

    bench.report(Digest(attempt=1, progress=Progress(iteration=3, env_steps=400, percent=40)))
    status = bench.until(lambda s: "progress" in s, "progress")
    assert status["progress"]["envSteps"] == 400

    summary = RunSummaryDigest(status="completed", total_env_steps=1000)
    artifacts = (Artifact(name="best_checkpoint", uri="logs/best", sha256="0" * 64, bytes=7),)
    final = Digest(attempt=1, exit_code=0, run_summary=summary, artifacts=artifacts)
    bench.report(final)
    bench.end(pod, 0, encode(final, 2048))
    status = bench.phase("Complete")
    assert status["runSummary"]["totalEnvSteps"] == 1000
    assert status["artifacts"] == [
        {"name": "best_checkpoint", "uri": "logs/best", "sha256": "0" * 64, "bytes": 7}
    ]
    assert (status["restarts"], status["attempt"]) == (0, 1)
    told = wait_for(lambda: [r for r in bench.events() if r == "TrainingComplete"], "Event")
    assert told == ["TrainingComplete"]
    _belongs_to_the_user(bench.run())
    assert bench.operator.metric("drivetrain_runs", phase="Complete") == 1
    assert bench.operator.stop() == 0


def _belongs_to_the_user(run: Object) -> None:
    """No framework left its marks on the user's object."""
    meta = run["metadata"]
    assert meta.get("finalizers", []) == []
    assert meta.get("annotations", {}) == {}
    assert meta.get("labels", {}) == {}
    managers = {m["manager"] for m in meta["managedFields"] if m.get("subresource") != "status"}
    assert "drivetrain-operator" not in managers


def test_figures_are_written_at_most_once_an_interval(bench: Bench) -> None:
    bench.create()
    bench.place(1)
    bench.phase("Running")
    bench.report(Digest(attempt=1, progress=Progress(iteration=1, env_steps=10)))
    bench.until(lambda s: s.get("progress", {}).get("envSteps") == 10, "first figures")
    bench.until(lambda s: s.get("phase") == "Running", "a running run")
    bench.proxy.forget()
    began = time.monotonic()
    for number in range(2, 22):
        bench.report(Digest(attempt=1, progress=Progress(iteration=number, env_steps=10 * number)))
    bench.until(lambda s: s["progress"]["envSteps"] == 210, "newest figures")
    intervals = (time.monotonic() - began) / INTERVAL_S
    assert 1 <= bench.proxy.count(STATUS_WRITES) <= 1 + intervals, "20 reports"
    assert bench.operator.metric("drivetrain_status_writes_held_total") >= 1


def test_a_failed_attempt_is_followed_by_another(bench: Bench) -> None:
    bench.create(restart={"maxRestarts": 1, "backoffSeconds": 0})
    pod = bench.place(1)
    bench.phase("Running")
    bench.end(pod, 1, "CUDA error: device-side assert")
    bench.job(2)
    status = bench.until(lambda s: s["attempt"] == 2, "second attempt")
    assert status["restarts"] == 1
    assert "device-side assert" in status["history"][0]["message"]
    assert bench.api.find("batch/v1", "Job", "walk-a1", bench.namespace) is None
    assert bench.operator.metric("drivetrain_restarts_total") == 1
    pod = bench.place(2)
    bench.phase("Running")
    bench.end(pod, 1, "again")
    status = bench.phase("Failed")
    assert condition(status, "Failed")["reason"] == "RestartsExhausted"


def test_suspend_ends_the_attempt_and_resume_begins_the_next(bench: Bench) -> None:
    bench.create()
    pod = bench.place(1)
    bench.phase("Running")
    bench.change(suspend=True)
    wait_for(
        lambda: bench.api.get("v1", "Pod", pod["metadata"]["name"], bench.namespace)[
            "metadata"
        ].get("deletionTimestamp"),
        "pod that is asked to end",
    )
    assert bench.status()["phase"] == "Suspending"
    bench.remove(pod)
    bench.phase("Suspended")
    bench.change(suspend=False)
    bench.job(2)
    bench.place(2)
    status = bench.phase("Running")
    assert (status["attempt"], status["restarts"]) == (2, 0)


def test_why_a_pod_does_not_run_is_in_the_status(bench: Bench) -> None:
    bench.create()
    pod = bench.pod(1)
    bench.set_pod(
        pod,
        "Pending",
        {"waiting": {"reason": "ImagePullBackOff", "message": "no such image: trainer"}},
    )
    status = bench.until(lambda s: "ImagePullBackOff" in str(s.get("conditions")), "reason")
    assert "no such image" in str(status["conditions"])


def test_a_quota_that_is_too_small_is_in_the_status(bench: Bench) -> None:
    bench.api.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}},
        },
        namespace=bench.namespace,
    )
    bench.create()
    bench.until(lambda s: "exceeded quota" in str(s.get("conditions")), "quota", RUN)


def test_a_pod_template_that_no_server_takes_is_refused_with_its_words(bench: Bench) -> None:
    bench.create(
        podTemplate={"spec": {"containers": [{"name": "trainer", "imagePullPolicy": "X"}]}}
    )
    status = bench.until(lambda s: condition(s, "Accepted").get("status") == "False", "refusal")
    assert "imagePullPolicy" in condition(status, "Accepted")["message"]
    assert bench.children() == set()
    bench.change(podTemplate=None)
    bench.job(1)


def test_nothing_holds_up_a_deletion(bench: Bench) -> None:
    """Not even a finalizer that the pod wrote where it may write: it is taken off when seen."""
    bench.create()
    bench.place(1)
    bench.phase("Running")
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    bench.api.patch("v1", "ConfigMap", "walk-progress", held, bench.namespace)
    bench.change(suspend=True)
    bench.remove(bench.pod(1))
    bench.phase("Suspended")
    bench.api.delete(DRIVETRAIN, "TrainingRun", RUN, bench.namespace)
    wait_for(
        lambda: bench.api.find(DRIVETRAIN, "TrainingRun", RUN, bench.namespace) is None, "deletion"
    )
    wait_for(lambda: bench.children() == set(), "removal of the children")


def test_an_idle_operator_writes_its_lease_and_nothing_else(bench: Bench) -> None:
    bench.create()
    bench.place(1)
    bench.phase("Running")
    bench.create("done")
    bench.end(bench.place(1, "done"), 0)
    bench.phase("Complete", "done")
    wait_for(lambda: "TrainingComplete" in bench.events("done"), "last Event")
    bench.proxy.forget()
    lease = calls("leases", Verb.UPDATE)
    wait_for(lambda: bench.proxy.count(lease) >= 3, "renewals")
    written = [call for call in bench.proxy.calls(EVERY_WRITE) if call.resource != "leases"]
    assert written == []


def test_what_happens_while_it_is_away_is_caught_up_with(bench: Bench) -> None:
    bench.create()
    pod = bench.place(1)
    bench.phase("Running")
    bench.create("other")
    bench.job(1, "other")
    assert bench.operator.stop(signal.SIGKILL) == -signal.SIGKILL
    bench.end(pod, 0)
    bench.api.delete(DRIVETRAIN, "TrainingRun", "other", bench.namespace)
    wait_for(lambda: bench.children("other") == set(), "removal without an operator")
    bench.create("late")
    bench.operator.start(ready=False)
    bench.phase("Complete")
    bench.job(1, "late")


def test_two_replicas_and_one_works(
    bench: Bench, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The second stands by, is ready all the same, and takes over when the first goes."""
    token = control_plane.account_token(bench.namespace, "operator")
    config = bench.proxy.kubeconfig(tmp_path / "b.yaml", token=token, namespace=bench.namespace)
    second = OperatorProcess(tmp_path / "second", config, "--namespaces", bench.namespace)
    try:
        second.start(ready=False)
        wait_for(lambda: second.probe("readyz")[0] == 200, "standby")
        assert second.metric("drivetrain_leader") == 0
        bench.create()
        bench.job(1)
        assert second.metric("drivetrain_reconcile_seconds_count") == 0
        assert bench.operator.stop() == 0
        bench.create("next")
        bench.job(1, "next")
        assert second.metric("drivetrain_leader") == 1
        assert second.stop() == 0
    finally:
        second.stop(signal.SIGKILL)


def test_a_lost_lease_ends_the_process(bench: Bench) -> None:
    """Another replica may work by now: nothing more is written, not even the Lease."""
    lease = "coordination.k8s.io/v1", "Lease", "drivetrain-operator"
    thief = {"holderIdentity": "thief", "leaseDurationSeconds": 600}
    bench.api.patch(*lease, {"spec": thief}, bench.namespace)
    wait_for(lambda: not bench.operator.process.running, "end of the process")
    assert bench.operator.stop() == 1
    assert bench.api.get(*lease, bench.namespace)["spec"]["holderIdentity"] == "thief"


def test_an_outage_is_told_and_waited_out(bench: Bench) -> None:
    """Live all the while: a restart brings no API server back."""
    with bench.proxy.outage():
        wait_for(lambda: bench.operator.probe("readyz")[0] == 503, "words on the outage")
        assert "watch in trouble: " in bench.operator.probe("readyz")[1]
        assert bench.operator.probe("livez") == (200, "ok\n")
        bench.create()
    bench.job(1)
    bench.operator.wait_ready()


@pytest.mark.parametrize(
    "fault",
    [Refuse(429, retry_after_s=1), Refuse(500), Refuse(409), Fault.DROP, Fault.LOSE_ANSWER],
    ids=str,
)
def test_a_write_that_fails_is_tried_again(bench: Bench, fault: Refuse | Fault) -> None:
    """Whichever of an attempt's writes it is; what was made meanwhile is not made twice."""
    bench.proxy.inject(Selector(writes=True, resource="[!le]*"), fault, times=4, skip=1)
    bench.create()
    bench.job(1)
    bench.place(1)
    status = bench.phase("Running")
    assert (status["attempt"], status["restarts"]) == (1, 0)
    jobs = bench.api.objects("batch/v1", "Job", bench.namespace)
    assert [job["metadata"]["name"] for job in jobs] == ["walk-a1"]


def test_cluster_wide(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    """Without namespaces, runs are worked on wherever they are."""
    other = api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
    )["metadata"]["name"]
    kubeconfig = control_plane.write_kubeconfig(tmp_path / "config", namespace=namespace)
    with OperatorProcess(tmp_path / "operator", kubeconfig) as operator:
        for place in (namespace, other):
            api.create(manifest(), namespace=place)
        for place in (namespace, other):
            wait_for(
                functools.partial(api.find, "batch/v1", "Job", "walk-a1", place), f"Job in {place}"
            )
        assert operator.stop() == 0
    api.delete("v1", "Namespace", other)


def test_missing_rights_are_told_and_waited_for(
    api: Api, namespace: str, operator: OperatorProcess
) -> None:
    """Ready only once it may do its work; live all the while, for a restart would not help."""
    rbac = "rbac.authorization.k8s.io/v1"
    binding = api.get(rbac, "RoleBinding", "operator", namespace)
    lease_only = {"apiVersion": rbac, "kind": "Role", "metadata": {"name": "lease"}}
    api.create(lease_only | {"rules": LEASE_RULES}, namespace=namespace)
    api.delete(rbac, "RoleBinding", "operator", namespace)
    for name in ("lease", "operator"):
        bound = {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": {"name": f"{name}-rights"},
            "roleRef": binding["roleRef"] | {"name": name},
            "subjects": binding["subjects"],
        }
        api.create(bound, namespace=namespace)
        if name == "lease":
            operator.start(ready=False)
            wait_for(lambda: "trainingruns" in operator.probe("readyz")[1], "words on the rights")
            assert operator.probe("readyz")[0] == 503
            assert operator.probe("livez")[0] == 200
    try:
        operator.wait_ready()
    finally:
        operator.stop(signal.SIGKILL)


def test_a_watch_that_dies_silently_is_found_out(
    api: Api, namespace: str, operator: OperatorProcess, proxy: Proxy
) -> None:
    """Its connection stays open and says nothing: it is opened anew after the silence."""
    operator.process.argv += ["--watch-silence-seconds", "5"]
    with operator:
        bench = Bench(api, namespace, operator, proxy)
        runs = Selector("trainingruns", frozenset({Verb.WATCH}))
        wait_for(lambda: [w for w in proxy.open_watches if runs.matches(w)], "watch of the runs")
        assert proxy.silence_watches(runs) == 1
        bench.create()
        bench.job(1)


def test_what_a_list_shows_is_worked_on_though_the_watch_stays_dead(
    api: Api, namespace: str, operator: OperatorProcess, proxy: Proxy
) -> None:
    """The resync is the last resort, and it knows what the watch owes."""
    operator.process.argv += ["--resync-seconds", "1"]
    with operator:
        bench = Bench(api, namespace, operator, proxy)
        runs = Selector("trainingruns", frozenset({Verb.WATCH}))
        wait_for(lambda: [w for w in proxy.open_watches if runs.matches(w)], "watch of the runs")
        assert proxy.silence_watches(runs) == 1
        bench.create()
        bench.job(1)
        owed = ("drivetrain_watch_silence_seconds", "trainingruns")
        wait_for(lambda: operator.metric(owed[0], resource=owed[1]) > 0, "debt of the watch")
        api.delete(DRIVETRAIN, "TrainingRun", RUN, namespace)
        wait_for(lambda: operator.metric(owed[0], resource=owed[1]) == 0, "settled debt")
        assert operator.metric("drivetrain_runs") == 0
