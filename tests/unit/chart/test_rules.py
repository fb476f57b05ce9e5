"""The operator's permissions: the least list, one for both modes."""

from __future__ import annotations

import pytest
from tests.support.chart import NAMESPACE, Helm, Object, of_kind, only

LEAST = [
    ("drivetrain.dev", ["trainingruns"], ["list", "watch"]),
    ("drivetrain.dev", ["trainingruns/status"], ["patch"]),
    ("batch", ["jobs"], ["get", "list", "watch", "create", "delete"]),
    ("", ["configmaps"], ["get", "list", "watch", "create", "patch", "delete"]),
    ("", ["pods"], ["list", "watch", "delete"]),
    ("", ["services", "serviceaccounts"], ["get", "create", "delete"]),
    ("", ["persistentvolumeclaims"], ["get", "create"]),
    ("", ["events"], ["list", "watch", "create", "patch"]),
    ("rbac.authorization.k8s.io", ["roles", "rolebindings"], ["get", "create", "delete"]),
]
RULES = [
    {"apiGroups": [group], "resources": resources, "verbs": verbs}
    for group, resources, verbs in LEAST
]
NAME = f"{NAMESPACE}-drivetrain"


def operators(objects: list[Object], kind: str) -> list[Object]:
    return [item for item in of_kind(objects, kind) if item["metadata"]["name"] == NAME]


def test_the_whole_cluster(default: list[Object]) -> None:
    (role,) = operators(default, "ClusterRole")
    binding = only(default, "ClusterRoleBinding")

    assert role["rules"] == RULES
    assert binding["roleRef"]["name"] == NAME
    assert operators(default, "Role") == []


def test_named_namespaces_get_the_same_rules(helm: Helm) -> None:
    objects = helm.template({"namespaces": ["a", "b"]})

    roles = operators(objects, "Role")
    assert [(role["metadata"]["namespace"], role["rules"]) for role in roles] == [
        ("a", RULES),
        ("b", RULES),
    ]
    bindings = operators(objects, "RoleBinding")
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["a", "b"]
    assert all(binding["roleRef"]["kind"] == "Role" for binding in bindings)
    assert operators(objects, "ClusterRole") == of_kind(objects, "ClusterRoleBinding") == []


@pytest.mark.parametrize(("lease", "name"), [("", "drivetrain"), ("one", "one")])
def test_the_lease_is_one_by_name_beside_the_operator(helm: Helm, lease: str, name: str) -> None:
    role = only(helm.template({"leaderElection": {"leaseName": lease}}), "Role")

    assert role["metadata"]["namespace"] == NAMESPACE
    assert role["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [name],
            "verbs": ["get", "update"],
        },
    ]


def test_no_rule_reaches_further(helm: Helm) -> None:
    objects = helm.template({"namespaces": ["a"]}) + helm.template()
    rules = [
        rule
        for role in (*of_kind(objects, "Role"), *of_kind(objects, "ClusterRole"))
        for rule in role["rules"]
    ]

    for rule in rules:
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not words & {"*", "escalate", "bind", "impersonate", "secrets", "pods/exec"}


def test_what_users_get(default: list[Object]) -> None:
    by_name = {item["metadata"]["name"]: item for item in of_kind(default, "ClusterRole")}
    view, edit = by_name[f"{NAME}-view"], by_name[f"{NAME}-edit"]
    aggregate = "rbac.authorization.k8s.io/aggregate-to-"

    def reaches(role: Object) -> set[str]:
        labels = role["metadata"]["labels"]
        return {key.removeprefix(aggregate) for key in labels if key.startswith(aggregate)}

    assert reaches(view) == {"view", "edit", "admin"}
    assert reaches(edit) == {"edit", "admin"}
    assert [rule["verbs"] for rule in view["rules"]] == [["get", "list", "watch"]]
    assert all(rule["resources"] == ["trainingruns"] for rule in edit["rules"])
