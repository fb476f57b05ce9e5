"""What each value makes of the objects."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.support.chart import (
    CHART,
    EVERYTHING,
    NAMESPACE,
    ROOT,
    Helm,
    Object,
    environment,
    merged,
    of_kind,
    only,
)

from drivetrain_api import __version__, crd
from drivetrain_api.compose import parse_run
from drivetrain_operator.wiring.settings import OperatorSettings, variable

SNAPSHOT = Path(__file__).with_name("default.yaml")
UPDATE = "DRIVETRAIN_UPDATE_SNAPSHOT"

BASE = Counter(
    CustomResourceDefinition=1,
    ServiceAccount=1,
    ClusterRole=3,
    ClusterRoleBinding=1,
    Role=1,
    RoleBinding=1,
    Service=1,
    Deployment=1,
    ValidatingAdmissionPolicy=1,
    ValidatingAdmissionPolicyBinding=1,
    Pod=1,
)


def kinds(**changed: int) -> Counter[str]:
    return Counter({**BASE, **changed}) + Counter()


def pod_spec(objects: list[Object]) -> Object:
    spec: Object = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


# -- the whole -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, kinds()),
        (
            {"namespaces": ["a", "b"]},
            kinds(ClusterRole=2, ClusterRoleBinding=0, Role=3, RoleBinding=3),
        ),
        ({"rbac": {"aggregate": False}}, kinds(ClusterRole=1)),
        (
            {"rbac": {"create": False}},
            kinds(ClusterRole=2, ClusterRoleBinding=0, Role=0, RoleBinding=0),
        ),
        ({"leaderElection": {"enabled": False}}, kinds(Role=0, RoleBinding=0)),
        ({"crds": {"install": False}}, kinds(CustomResourceDefinition=0)),
        ({"serviceAccount": {"create": False}}, kinds(ServiceAccount=0)),
        (
            {"admissionPolicy": {"enabled": False}},
            kinds(ValidatingAdmissionPolicy=0, ValidatingAdmissionPolicyBinding=0),
        ),
        ({"tests": {"enabled": False}}, kinds(Pod=0)),
        ({"serviceMonitor": {"enabled": True}}, kinds(ServiceMonitor=1)),
        ({"networkPolicy": {"enabled": True}}, kinds(NetworkPolicy=1)),
        ({"pdb": {"enabled": True}}, kinds(PodDisruptionBudget=1)),
        (EVERYTHING, kinds(ServiceMonitor=1, NetworkPolicy=1, PodDisruptionBudget=1)),
        (
            {
                "namespaces": ["a"],
                "crds": {"install": False},
                "rbac": {"aggregate": False},
                "admissionPolicy": {"enabled": False},
            },
            Counter(ServiceAccount=1, Role=2, RoleBinding=2, Service=1, Deployment=1, Pod=1),
        ),
    ],
    ids=str,
)
def test_which_objects_there_are(helm: Helm, values: Object, expected: Counter[str]) -> None:
    assert Counter(item["kind"] for item in helm.template(values)) == expected


def test_the_default_is_as_stored(default: list[Object]) -> None:
    """After an intended change: DRIVETRAIN_UPDATE_SNAPSHOT=1 pytest tests/unit/chart."""
    shown = [item for item in default if item["kind"] != "CustomResourceDefinition"]
    if os.environ.get(UPDATE):
        text = yaml.safe_dump_all(shown, sort_keys=False, width=100)
        SNAPSHOT.write_text(text, encoding="utf-8")

    assert shown == list(yaml.safe_load_all(SNAPSHOT.read_text(encoding="utf-8")))


@pytest.mark.parametrize("values", [{}, EVERYTHING, {"namespaces": ["a"]}], ids=["", "all", "a"])
def test_the_linter_is_silent(helm: Helm, values: Object) -> None:
    said = helm.run("lint", "--strict", str(CHART), values=values)

    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert "[WARNING]" not in said


def test_a_package_of_the_chart_gives_the_same(
    helm: Helm, default: list[Object], tmp_path: Path
) -> None:
    helm.run("package", str(CHART), "--destination", str(tmp_path))

    assert helm.template(chart=tmp_path / f"drivetrain-{__version__}.tgz") == default


def test_the_version_is_the_distributions() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert chart["version"] == chart["appVersion"] == __version__


def test_every_object_has_its_labels_and_place(helm: Helm) -> None:
    for item in helm.template(EVERYTHING):
        metadata = item["metadata"]
        assert metadata["labels"]["team"] == "robots", item["kind"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == "drivetrain"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert metadata.get("namespace", NAMESPACE) == NAMESPACE


def test_a_label_of_the_user_replaces_none_of_ours(helm: Helm) -> None:
    objects = helm.template({"extraLabels": {"app.kubernetes.io/name": "mine"}})

    assert {item["metadata"]["labels"]["app.kubernetes.io/name"] for item in objects} == {
        "drivetrain"
    }


def test_the_selector_finds_the_operator_alone(helm: Helm) -> None:
    objects = helm.template(EVERYTHING)
    selector = only(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    operator = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    test = only(objects, "Pod")["metadata"]["labels"]

    assert selector.items() <= operator.items()
    assert not selector.items() <= test.items()
    assert only(objects, "Service")["spec"]["selector"] == selector
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        assert only(objects, kind)["spec"]["selector"]["matchLabels"] == selector
    assert only(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == selector


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("drivetrain", {}, "drivetrain"),
        ("robots", {}, "robots-drivetrain"),
        ("robots", {"nameOverride": "dt"}, "robots-dt"),
        ("robots", {"fullnameOverride": "operator"}, "operator"),
        ("r" * 53, {}, "r" * 50),
    ],
)
def test_the_name(helm: Helm, release: str, values: Object, name: str) -> None:
    objects = helm.template(values, release=release)

    assert only(objects, "Deployment")["metadata"]["name"] == name
    assert only(objects, "ClusterRoleBinding")["metadata"]["name"] == f"{NAMESPACE}-{name}"
    assert environment(objects)["DRIVETRAIN_OPERATOR_LEASE_NAME"] == name


def test_releases_in_two_namespaces_share_no_name(helm: Helm) -> None:
    def names(namespace: str) -> set[tuple[str, str, str]]:
        objects = helm.template({"crds": {"install": False}}, namespace=namespace)
        return {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
            for item in objects
        }

    assert names("a") & names("b") == set()


# -- the definition ------------------------------------------------------------------------


def test_the_definition_is_the_generated_one(default: list[Object]) -> None:
    found = only(default, "CustomResourceDefinition")

    assert found["spec"] == crd.custom_resource_definition()["spec"]
    assert found["metadata"]["name"] == crd.CRD_NAME
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert (ROOT / crd.CHART_COPY).is_relative_to(CHART)


def test_the_definition_is_kept_only_where_asked(helm: Helm) -> None:
    found = only(helm.template({"crds": {"keep": False}}), "CustomResourceDefinition")

    assert "annotations" not in found["metadata"]


# -- the operator --------------------------------------------------------------------------


def test_the_environment_is_what_the_operator_reads(default: list[Object]) -> None:
    given = environment(default)
    place = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert given.pop("DRIVETRAIN_OPERATOR_LEASE_NAMESPACE") == place
    names = {variable(name): name for name in OperatorSettings.model_fields}
    left_out = {variable(name) for name in ("kubeconfig", "context", "lease_namespace")}

    assert set(given) == set(names) - left_out
    settings = OperatorSettings.read({names[key]: value for key, value in given.items()})
    defaults = OperatorSettings(
        trainer_image=f"drivetrain-trainer:{__version__}", lease_name="drivetrain"
    )
    assert settings == defaults


@pytest.mark.parametrize(
    ("values", "name", "value"),
    [
        ({"namespaces": ["a", "b"]}, "NAMESPACES", "a,b"),
        ({"namespaces": []}, "NAMESPACES", ""),
        (
            {"trainer": {"image": {"repository": "r.io/t"}}},
            "TRAINER_IMAGE",
            f"r.io/t:{__version__}",
        ),
        ({"trainer": {"image": {"tag": "2"}}}, "TRAINER_IMAGE", "drivetrain-trainer:2"),
        ({"trainer": {"shmSize": "2Gi"}}, "SHM_SIZE", "2Gi"),
        ({"trainer": {"runAsUser": 2_000_000_000}}, "RUN_AS_USER", "2000000000"),
        ({"trainer": {"tolerationSeconds": 0}}, "TOLERATION_SECONDS", "0"),
        ({"trainer": {"rendezvousPort": 30000}}, "RENDEZVOUS_PORT", "30000"),
        ({"operator": {"workers": 16}}, "WORKERS", "16"),
        ({"operator": {"resyncSeconds": 60}}, "RESYNC_SECONDS", "60"),
        ({"operator": {"progressIntervalSeconds": 5}}, "PROGRESS_INTERVAL_SECONDS", "5"),
        ({"operator": {"watchSilenceSeconds": 90}}, "WATCH_SILENCE_SECONDS", "90"),
        ({"operator": {"stuckSeconds": 60}}, "STUCK_SECONDS", "60"),
        ({"operator": {"logLevel": "debug"}}, "LOG_LEVEL", "debug"),
        ({"operator": {"logFormat": "console"}}, "LOG_FORMAT", "console"),
        ({"health": {"port": 9000}}, "HEALTH_PORT", "9000"),
        ({"metrics": {"port": 9001}}, "METRICS_PORT", "9001"),
        ({"leaderElection": {"enabled": False}}, "LEADER_ELECT", "false"),
        ({"leaderElection": {"leaseName": "one"}}, "LEASE_NAME", "one"),
    ],
    ids=str,
)
def test_each_setting(helm: Helm, values: Object, name: str, value: str) -> None:
    assert environment(helm.template(values))[f"DRIVETRAIN_OPERATOR_{name}"] == value


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, f"drivetrain-operator:{__version__}"),
        ({"tag": "2"}, "drivetrain-operator:2"),
        ({"repository": "r.io:5000/a/b"}, f"r.io:5000/a/b:{__version__}"),
        (
            {"tag": "2", "digest": f"sha256:{'a' * 64}"},
            f"drivetrain-operator@sha256:{'a' * 64}",
        ),
    ],
)
def test_the_image(helm: Helm, image: Object, expected: str) -> None:
    objects = helm.template({"image": image})

    assert pod_spec(objects)["containers"][0]["image"] == expected
    assert only(objects, "Pod")["spec"]["containers"][0]["image"] == expected


def test_extra_environment_comes_last(helm: Helm) -> None:
    extra = [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    objects = helm.template({"extraEnv": extra})

    assert pod_spec(objects)["containers"][0]["env"][-2:] == extra


def test_several_replicas(helm: Helm) -> None:
    """One acts, the others wait; an update brings the new one up before the old one goes."""
    objects = helm.template({"replicas": 3, "pdb": {"enabled": True}})
    spec = only(objects, "Deployment")["spec"]

    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert environment(objects)["DRIVETRAIN_OPERATOR_LEADER_ELECT"] == "true"
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_a_replica_without_an_election_stops_before_the_next_starts(helm: Helm) -> None:
    objects = helm.template({"leaderElection": {"enabled": False}})

    assert only(objects, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_probes_and_ports(helm: Helm) -> None:
    objects = helm.template({"health": {"port": 9000}, "metrics": {"port": 9001}})
    (container,) = pod_spec(objects)["containers"]

    assert container["command"] == ["drivetrain-operator"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "health": 9000,
        "metrics": 9001,
    }
    assert {port["name"]: port["port"] for port in only(objects, "Service")["spec"]["ports"]} == {
        "health": 9000,
        "metrics": 9001,
    }


def test_where_the_pods_go(helm: Helm) -> None:
    spec = pod_spec(helm.template(EVERYTHING))

    for key in (
        "imagePullSecrets",
        "priorityClassName",
        "nodeSelector",
        "tolerations",
        "affinity",
    ):
        assert spec[key] == EVERYTHING[key]


def test_spread_counts_the_operators_pods_unless_told_otherwise(helm: Helm) -> None:
    bare = EVERYTHING["topologySpreadConstraints"][0]
    own = {**bare, "labelSelector": {"matchLabels": {"a": "b"}}}
    objects = helm.template({"topologySpreadConstraints": [bare, own]})
    selector = only(objects, "Deployment")["spec"]["selector"]

    assert pod_spec(objects)["topologySpreadConstraints"] == [
        {**bare, "labelSelector": selector},
        own,
    ]


# -- security ------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_every_pod_satisfies_the_restricted_standard(helm: Helm, values: Object) -> None:
    objects = helm.template(values)

    for spec in (pod_spec(objects), only(objects, "Pod")["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("hostPath" not in volume for volume in spec.get("volumes", []))
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_only_the_operator_gets_a_token(default: list[Object]) -> None:
    assert only(default, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod_spec(default)["automountServiceAccountToken"] is True
    assert only(default, "Pod")["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        ({}, "drivetrain"),
        ({"name": "robot"}, "robot"),
        ({"create": False}, "default"),
        ({"create": False, "name": "robot"}, "robot"),
    ],
)
def test_the_account(helm: Helm, account: Object, expected: str) -> None:
    objects = helm.template({"serviceAccount": account})

    assert pod_spec(objects)["serviceAccountName"] == expected
    for binding in (*of_kind(objects, "RoleBinding"), *of_kind(objects, "ClusterRoleBinding")):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": expected, "namespace": NAMESPACE}
        ]


def test_the_network_policy(helm: Helm) -> None:
    spec = only(helm.template(EVERYTHING), "NetworkPolicy")["spec"]
    open_spec = only(helm.template({"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
    dns = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    api_server = {"ports": [{"port": 443}, {"port": 6443}]}

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == [dns, {**api_server, "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}]
    assert open_spec["egress"] == [dns, api_server]
    monitoring = EVERYTHING["networkPolicy"]["metricsFrom"]
    assert spec["ingress"] == [
        {"ports": [{"port": "health"}]},
        {"ports": [{"port": "metrics"}], "from": monitoring},
    ]
    assert open_spec["ingress"] == [
        {"ports": [{"port": "health"}]},
        {"ports": [{"port": "metrics"}]},
    ]


def test_the_service_monitor(helm: Helm) -> None:
    monitor = only(helm.template(EVERYTHING), "ServiceMonitor")

    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]


# -- the admission policy ------------------------------------------------------------------


def test_the_policy_looks_at_the_namespaces_of_the_release(
    helm: Helm, default: list[Object]
) -> None:
    named = only(helm.template({"namespaces": ["a", "b"]}), "ValidatingAdmissionPolicyBinding")

    assert "matchResources" not in only(default, "ValidatingAdmissionPolicyBinding")["spec"]
    (expression,) = named["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert expression == {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": ["a", "b"],
    }


def test_the_policy_refuses_in_words(default: list[Object]) -> None:
    spec = only(default, "ValidatingAdmissionPolicy")["spec"]

    assert spec["failurePolicy"] == "Fail"
    assert all(rule["message"] and rule["reason"] == "Forbidden" for rule in spec["validations"])


# -- notes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        ({}, ["all namespaces", "kubectl get trun -n default -w", "helm test"], ["WARNING"]),
        ({"namespaces": ["a", "b"]}, ["the TrainingRuns of a, b", "kubectl get trun -n a -w"], []),
        ({"tests": {"enabled": False}}, ["rollout status deployment/drivetrain"], ["helm test"]),
        ({"crds": {"keep": False}}, ["WARNING: crds.keep is false"], []),
        ({"crds": {"keep": False, "install": False}}, [], ["WARNING"]),
        ({"admissionPolicy": {"enabled": False}}, ["WARNING: admissionPolicy.enabled"], []),
        (
            {"image": {"repository": "r.io/o"}},
            ["trainer.image.repository is drivetrain-trainer, of no registry"],
            ["\nimage.repository"],
        ),
        ({"rbac": {"create": False}}, ["give the account drivetrain its permissions"], []),
    ],
    ids=str,
)
def test_the_notes_say_what_comes_next(
    helm: Helm, values: Object, said: list[str], unsaid: list[str]
) -> None:
    text = notes(helm, values)

    assert all(words in text for words in said), text
    assert not any(words in text for words in unsaid), text


def test_the_manifest_in_the_notes_is_valid(helm: Helm) -> None:
    text = notes(helm, {}).partition("<<EOF\n")[2].partition("EOF")[0]

    assert parse_run(yaml.safe_load(text)).metadata.name == "half-cheetah-sac"


def notes(helm: Helm, values: Object) -> str:
    arguments = ("install", "drivetrain", str(CHART), "--namespace", NAMESPACE)
    return helm.run(*arguments, "--dry-run=client", values=merged(values)).partition("NOTES:")[2]
