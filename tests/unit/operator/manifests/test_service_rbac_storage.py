from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drivetrain_api import labels
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.job import attempt_job
from drivetrain_operator.manifests.rbac import role, role_binding, service_account
from drivetrain_operator.manifests.service import headless_service
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.manifests.storage import claim, claim_in_use, storage_volume

MakeRun = Callable[..., TrainingRun]


def test_the_service_resolves_the_pods_of_one_attempt_before_they_are_ready(
    make_run: MakeRun,
) -> None:
    run, settings = make_run(), Settings(rendezvous_port=1234)
    spec = headless_service(run, 2, settings)["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert spec["ports"] == [{"name": "rendezvous", "port": 1234}]
    marks = attempt_job(run, 2, settings)["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= marks.items()
    other = attempt_job(run, 3, settings)["spec"]["template"]["metadata"]["labels"]
    assert not spec["selector"].items() <= other.items()
    assert labels.RUN_UID in spec["selector"]


def test_the_account_may_get_and_patch_its_one_config_map(make_run: MakeRun) -> None:
    run = make_run()
    assert role(run)["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["walk-progress"],
            "verbs": ["get", "patch"],
        }
    ]
    binding = role_binding(run)
    assert binding["roleRef"]["name"] == role(run)["metadata"]["name"]
    account = service_account(run)["metadata"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    pod = attempt_job(run, 1, Settings())["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]


STORAGES = [
    ({}, None, {"emptyDir": {}}),
    ({"emptyDir": True}, None, {"emptyDir": {}}),
    ({"claimName": "lab-data"}, "lab-data", {"persistentVolumeClaim": {"claimName": "lab-data"}}),
    (
        {"size": "5Gi"},
        "walk-storage",
        {"persistentVolumeClaim": {"claimName": "walk-storage"}},
    ),
]


@pytest.mark.parametrize(("storage", "name", "source"), STORAGES)
def test_storage_is_a_claim_or_goes_with_the_pod(
    make_run: MakeRun, storage: dict[str, Any], name: str | None, source: dict[str, Any]
) -> None:
    run = make_run(storage=storage)
    assert claim_in_use(run) == name
    assert storage_volume(run, "v") == {"name": "v"} | source
    assert (claim(run) is not None) == ("size" in storage)


@pytest.mark.parametrize(("nodes", "mode"), [(1, "ReadWriteOnce"), (2, "ReadWriteMany")])
@pytest.mark.parametrize("class_", [None, "fast"])
def test_a_claim_is_as_large_and_as_shared_as_the_run_needs(
    make_run: MakeRun, nodes: int, mode: str, class_: str | None
) -> None:
    storage = {"size": "5Gi"} | ({"storageClassName": class_} if class_ else {})
    made = claim(make_run(storage=storage, topology={"nodes": nodes}))
    assert made is not None
    assert made["spec"]["accessModes"] == [mode]
    assert made["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    assert made["spec"].get("storageClassName") == class_
