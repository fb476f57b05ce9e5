"""The operator's account may do what it does, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.support.chart import CHART, RELEASE, Helm, Object
from tests.support.kubernetes.api import Api, collection_of, path_of, wait_for

from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.children import children

Right = tuple[str, str, str, tuple[str, ...]]
"""Verb, API group, resource, names."""

MakeRun = Callable[..., TrainingRun]
Account = Callable[[str, str], Api]

LEAST = {
    ("drivetrain.dev", "trainingruns"): "list watch",
    ("drivetrain.dev", "trainingruns/status"): "patch",
    ("batch", "jobs"): "get list watch create delete",
    ("", "configmaps"): "get list watch create patch delete",
    ("", "pods"): "list watch delete",
    ("", "services"): "get create delete",
    ("", "serviceaccounts"): "get create delete",
    ("", "persistentvolumeclaims"): "get create",
    ("", "events"): "list watch create patch",
    ("rbac.authorization.k8s.io", "roles"): "get create delete",
    ("rbac.authorization.k8s.io", "rolebindings"): "get create delete",
}
RIGHTS: set[Right] = {
    (verb, group, resource, ())
    for (group, resource), verbs in LEAST.items()
    for verb in verbs.split()
}
LEASE: set[Right] = {
    ("create", "coordination.k8s.io", "leases", ()),
    ("get", "coordination.k8s.io", "leases", (RELEASE,)),
    ("update", "coordination.k8s.io", "leases", (RELEASE,)),
}


def rights(user: Api, namespace: str) -> set[Right]:
    """Everything that the account may do to objects of a namespace, as the server sees it."""
    review = user.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {"spec": {"namespace": namespace}},
    )
    return {
        (verb, group, resource, tuple(rule.get("resourceNames", ())))
        for rule in review["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule["resources"]
    }


@pytest.fixture
def operator(account: Account, installed: str) -> Api:
    return account(installed, RELEASE)


def settled(user: Api, nobody: Api, namespace: str, expected: set[Right]) -> set[Right]:
    """Rights once the authorizer has seen the bindings, less those of every account."""

    def seen() -> set[Right]:
        return rights(user, namespace) - rights(nobody, namespace)

    with contextlib.suppress(TimeoutError):  # the caller's comparison says what is wrong
        wait_for(lambda: seen() == expected, "rights", timeout_s=5.0)
    return seen()


# -- not more ------------------------------------------------------------------------------


def test_the_whole_cluster(account: Account, operator: Api, installed: str, namespace: str) -> None:
    nobody = account(namespace, "default")

    assert settled(operator, nobody, namespace, RIGHTS) == RIGHTS
    assert settled(operator, nobody, installed, RIGHTS | LEASE) == RIGHTS | LEASE


def test_named_namespaces(
    api: Api, account: Account, helm: Helm, installed: str, namespace: str
) -> None:
    """One of its own for the operator, one for the runs, and none anywhere else."""
    nobody = account(namespace, "default")
    values = {"crds": {"install": False}, "namespaces": [namespace]}
    place = ("--namespace", f"{namespace}-operator")
    helm.run("install", RELEASE, str(CHART), *place, "--create-namespace", values=values)
    try:
        user = account(f"{namespace}-operator", RELEASE)

        assert settled(user, nobody, namespace, RIGHTS) == RIGHTS
        assert settled(user, nobody, f"{namespace}-operator", LEASE) == LEASE
        assert settled(user, nobody, installed, set()) == set()
    finally:
        helm.run("uninstall", RELEASE, *place)
        api.delete("v1", "Namespace", f"{namespace}-operator")


def test_it_grants_no_more_than_it_holds(operator: Api, namespace: str) -> None:
    def role(resource: str, *verbs: str) -> Object:
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": resource},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}],
        }

    folder = collection_of("rbac.authorization.k8s.io/v1", "Role", namespace)
    for item in (role("secrets", "get"), role("configmaps", "get", "update")):
        answer = operator.ask("POST", folder, item)
        assert answer.code == 403
        assert "attempting to grant RBAC permissions not currently held" in answer.message


# -- enough --------------------------------------------------------------------------------


def test_it_makes_and_removes_everything_of_a_run(
    operator: Api, namespace: str, make_run: MakeRun
) -> None:
    run = make_run("walk", storage={"size": "1Gi"}, topology={"nodes": 2})
    made = [child.manifest for child in children(run, 1)]

    for item in made:
        operator.create(item)
    for item in made:
        assert operator.get(item["apiVersion"], item["kind"], item["metadata"]["name"], namespace)
    for item in made:
        if item["kind"] != "PersistentVolumeClaim":  # it goes with its owner, or stays
            operator.delete(item["apiVersion"], item["kind"], item["metadata"]["name"], namespace)
    assert len({item["kind"] for item in made}) == 7


def test_it_lists_what_it_watches(operator: Api, namespace: str, make_run: MakeRun) -> None:
    make_run("walk")
    watched = [
        ("drivetrain.dev/v1alpha1", "TrainingRun"),
        ("batch/v1", "Job"),
        ("v1", "Pod"),
        ("v1", "ConfigMap"),
        ("v1", "Event"),
    ]
    for api_version, kind in watched:
        for place in (None, namespace):
            operator.objects(api_version, kind, place)


def test_it_writes_a_status_and_an_event(operator: Api, namespace: str, make_run: MakeRun) -> None:
    run = make_run("walk")
    status = {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "walk", "namespace": namespace},
        "status": {"attempt": 1},
    }
    applied = operator.request(
        "PATCH",
        f"{path_of(status)}/status",
        status,
        content_type="application/apply-patch+yaml",
        fieldManager="drivetrain-operator",
        force="true",
    )
    assert applied["status"] == {"attempt": 1}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "walk.1"},
        "involvedObject": {"kind": "TrainingRun", "namespace": namespace, "uid": run.metadata.uid},
        "reason": "Started",
    }
    operator.create(event, namespace=namespace)
    assert operator.patch("v1", "Event", "walk.1", {"count": 2}, namespace)["count"] == 2


def test_it_strips_finalizers_and_ends_pods(api: Api, operator: Api, namespace: str) -> None:
    held = {"name": "held", "namespace": namespace, "finalizers": ["example.com/held"]}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
    pod = {"containers": [{"name": "a", "image": "a"}]}
    api.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lost"}, "spec": pod},
        namespace=namespace,
    )

    operator.patch("v1", "ConfigMap", "held", {"metadata": {"finalizers": None}}, namespace)
    operator.delete("v1", "Pod", "lost", namespace, grace_s=0)

    assert api.find("v1", "Pod", "lost", namespace) is None


def test_it_holds_its_lease(api: Api, operator: Api, installed: str) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": RELEASE, "namespace": installed},
        "spec": {"holderIdentity": "a"},
    }
    path = path_of(lease)
    api.ask("DELETE", path)  # there is one, where another test has elected a leader
    made = operator.create(lease)
    made["spec"]["holderIdentity"] = "b"

    assert operator.request("PUT", path, made)["spec"]["holderIdentity"] == "b"
    assert operator.ask("GET", f"{path}-other").code == 403


# -- users ---------------------------------------------------------------------------------


READS = {"get", "list", "watch"}
WRITES = {"create", "update", "patch", "delete"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("role", "verbs"), [("view", READS), ("edit", READS | WRITES)])
def test_whoever_may_edit_a_namespace_may_edit_its_runs(
    api: Api, account: Account, namespace: str, role: str, verbs: set[str]
) -> None:
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "user", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    api.create(binding)
    user = account(namespace, "default")

    def held() -> set[str]:
        return {verb for verb, _, name, _ in rights(user, namespace) if name == "trainingruns"}

    wait_for(lambda: verbs <= held(), f"rights of {role}")
    assert held() - {"deletecollection"} == verbs
