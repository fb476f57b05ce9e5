from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drivetrain_api import labels
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.job import FailureRule, attempt_job
from drivetrain_operator.manifests.settings import Settings

MakeRun = Callable[..., TrainingRun]


def built(run: TrainingRun, **settings: Any) -> dict[str, Any]:
    return attempt_job(run, 2, Settings(**settings))


def pod_spec(run: TrainingRun, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = built(run, **settings)["spec"]["template"]["spec"]
    return found


def trainer(run: TrainingRun, **settings: Any) -> dict[str, Any]:
    (container,) = pod_spec(run, **settings)["containers"]
    assert isinstance(container, dict)
    return container


def test_the_job_fails_as_a_whole_and_replaces_no_pod(make_run: MakeRun) -> None:
    spec = built(make_run(topology={"nodes": 3, "ranksPerNode": 2}))["spec"]
    del spec["template"]
    assert spec == {
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 3,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": "trainer",
                        "operator": "In",
                        "values": [2, 3],
                    },
                },
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "trainer", "operator": "In", "values": [75]},
                },
            ]
        },
    }


def test_the_index_of_a_rule_is_what_its_name_says(make_run: MakeRun) -> None:
    rules = built(make_run())["spec"]["podFailurePolicy"]["rules"]
    assert "onPodConditions" in rules[FailureRule.DISRUPTED]
    assert rules[FailureRule.FOR_GOOD]["onExitCodes"]["values"] == [2, 3]
    assert rules[FailureRule.STOPPED]["onExitCodes"]["values"] == [75]


def test_a_queue_holds_the_job_from_its_birth(make_run: MakeRun) -> None:
    job = built(make_run(queueName="lab-queue"))
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab-queue"
    assert "suspend" not in built(make_run())["spec"]


def test_no_rule_of_a_queued_job_takes_a_suspended_pods_leave_for_a_failure(
    make_run: MakeRun,
) -> None:
    rules = built(make_run(queueName="lab-queue"))["spec"]["podFailurePolicy"]["rules"]
    assert rules == built(make_run())["spec"]["podFailurePolicy"]["rules"][: FailureRule.STOPPED]


def test_pods_are_found_by_run_and_attempt(make_run: MakeRun) -> None:
    marks = built(make_run())["spec"]["template"]["metadata"]["labels"]
    assert marks[labels.RUN_UID] == "run-uid-1"
    assert marks[labels.ATTEMPT] == "2"


def test_a_pod_is_fit_for_the_restricted_policy(make_run: MakeRun) -> None:
    run = make_run(accelerator={"gpusPerNode": 1})
    spec, container = pod_spec(run, user=4321), trainer(run)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 4321,
        "runAsGroup": 4321,
        "fsGroup": 4321,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostPID", "hostIPC", "hostNetwork"} & set(spec)
    assert all("hostPath" not in volume for volume in spec["volumes"])


def test_a_pod_stops_in_its_grace_period_and_leaves_a_dead_node_soon(make_run: MakeRun) -> None:
    spec = pod_spec(make_run(gracePeriodSeconds=77), toleration_seconds=12)
    assert spec["restartPolicy"] == "Never"
    assert spec["terminationGracePeriodSeconds"] == 77
    assert [(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 12),
        ("node.kubernetes.io/unreachable", "NoExecute", 12),
    ]
    assert Settings().toleration_seconds == 30


def test_the_launcher_is_told_everything_by_its_environment(make_run: MakeRun) -> None:
    run = make_run(topology={"nodes": 3, "ranksPerNode": 2})
    container = trainer(run, rendezvous_port=1234)
    assert container["command"] == ["drivetrain-launcher"]
    values = {v["name"]: v.get("value") for v in container["env"]}
    assert values == {
        labels.ENV_SPEC_FILE: "/etc/drivetrain/run.json",
        labels.ENV_STORAGE: "/var/lib/drivetrain",
        labels.ENV_SCRATCH: "/run/drivetrain",
        labels.ENV_PROGRESS_SINK: "configmap:walk-progress",
        labels.ENV_TERMINATION_LOG: "/dev/termination-log",
        "HOME": "/tmp",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "walk-a2-0.walk-a2",
        "PET_MASTER_PORT": "1234",
        "PET_NODE_RANK": None,
    }
    rank = next(v for v in container["env"] if v["name"] == "PET_NODE_RANK")
    path = rank["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert container["terminationMessagePath"] == values[labels.ENV_TERMINATION_LOG]
    assert container["terminationMessagePolicy"] == "File"


def test_the_master_is_the_hostname_of_index_0_in_the_pods_subdomain(make_run: MakeRun) -> None:
    run = make_run()
    assert pod_spec(run)["subdomain"] == "walk-a2"
    assert built(run)["metadata"]["name"] == "walk-a2"


def test_everything_that_is_written_has_a_mount(make_run: MakeRun) -> None:
    run = make_run()
    mounts = {m["mountPath"]: m for m in trainer(run)["volumeMounts"]}
    volumes = {v["name"]: v for v in pod_spec(run, shm_size="2Gi")["volumes"]}
    assert {path: m["name"] for path, m in mounts.items()} == {
        "/etc/drivetrain": "spec",
        "/var/lib/drivetrain": "storage",
        "/run/drivetrain": "scratch",
        "/dev/shm": "shm",
        "/tmp": "tmp",
    }
    assert mounts["/etc/drivetrain"]["readOnly"] is True
    assert volumes == {
        "spec": {"name": "spec", "configMap": {"name": "walk-a2"}},
        "storage": {"name": "storage", "emptyDir": {}},
        "scratch": {"name": "scratch", "emptyDir": {}},
        "shm": {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        "tmp": {"name": "tmp", "emptyDir": {}},
    }


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        ({}, None),
        ({"accelerator": {"gpusPerNode": 4}}, {"nvidia.com/gpu": "4"}),
        (
            {"accelerator": {"gpusPerNode": 1, "resourceName": "amd.com/gpu"}},
            {"amd.com/gpu": "1"},
        ),
    ],
)
def test_gpus_are_limits(
    make_run: MakeRun, spec: dict[str, Any], limits: dict[str, str] | None
) -> None:
    assert trainer(make_run(**spec)).get("resources", {}).get("limits") == limits


@pytest.mark.parametrize(("spec", "image"), [({}, "site:1"), ({"image": "mine:2"}, "mine:2")])
def test_the_runs_image_goes_before_the_operators(
    make_run: MakeRun, spec: dict[str, Any], image: str
) -> None:
    assert trainer(make_run(**spec), image="site:1")["image"] == image


def test_a_scheduler_is_named_where_the_run_names_one(make_run: MakeRun) -> None:
    assert pod_spec(make_run(schedulerName="gang"))["schedulerName"] == "gang"
    assert "schedulerName" not in pod_spec(make_run())


def test_pods_of_a_gang_name_the_runs_group_in_every_attempt(make_run: MakeRun) -> None:
    run = make_run(schedulerName="gang", topology={"nodes": 2})
    for attempt in (1, 7):
        metadata = attempt_job(run, attempt, Settings())["spec"]["template"]["metadata"]
        assert metadata["labels"]["scheduling.x-k8s.io/pod-group"] == "walk"
        assert metadata["annotations"] == {"scheduling.k8s.io/group-name": "walk"}


@pytest.mark.parametrize(
    "spec",
    [
        {"topology": {"nodes": 2}},
        {"topology": {"nodes": 2}, "schedulerName": "default-scheduler"},
        {"schedulerName": "gang"},
    ],
    ids=["no scheduler", "the default one", "one node"],
)
def test_pods_that_need_no_gang_name_no_group(make_run: MakeRun, spec: dict[str, Any]) -> None:
    metadata = built(make_run(**spec))["spec"]["template"]["metadata"]
    assert set(metadata) == {"labels"}
    assert "scheduling.x-k8s.io/pod-group" not in metadata["labels"]


def test_a_run_may_name_another_group_or_none(make_run: MakeRun) -> None:
    overlay = {
        "metadata": {
            "labels": {"scheduling.x-k8s.io/pod-group": "mine"},
            "annotations": {"scheduling.k8s.io/group-name": None},
        }
    }
    run = make_run(schedulerName="gang", topology={"nodes": 2}, podTemplate=overlay)
    metadata = built(run)["spec"]["template"]["metadata"]
    assert metadata["labels"]["scheduling.x-k8s.io/pod-group"] == "mine"
    assert metadata["annotations"] == {}


def test_the_pod_template_of_the_run_is_laid_over(make_run: MakeRun) -> None:
    overlay = {
        "metadata": {"annotations": {"team": "legs"}, "labels": {"cost": "42"}},
        "spec": {
            "nodeSelector": {"zone": "a"},
            "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "8Gi"}}],
            "containers": [
                {
                    "name": "trainer",
                    "resources": {"limits": {"memory": "8Gi"}},
                    "env": [{"name": "HOME", "value": "/scratch"}, {"name": "NEW", "value": "1"}],
                }
            ],
        },
    }
    run = make_run(podTemplate=overlay, accelerator={"gpusPerNode": 2})
    template = built(run)["spec"]["template"]
    assert template["metadata"]["annotations"] == {"team": "legs"}
    assert template["metadata"]["labels"]["cost"] == "42"
    assert template["metadata"]["labels"][labels.ATTEMPT] == "2"
    spec = template["spec"]
    assert spec["nodeSelector"] == {"zone": "a"}
    (shm,) = [v for v in spec["volumes"] if v["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    container = trainer(run)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2", "memory": "8Gi"}
    values = {v["name"]: v.get("value") for v in container["env"]}
    assert (values["HOME"], values["NEW"]) == ("/scratch", "1")
    assert values["PET_NNODES"] == "1"


WANDB_KEY = {
    "name": "WANDB_API_KEY",
    "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "api-key", "optional": True}},
}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"logger": "wandb"}, [WANDB_KEY]),
        ({"logger": "tensorboard, wandb"}, [WANDB_KEY]),
        ({"logger": "tensorboard"}, []),
        ({"logger": "none"}, []),
        ({"logger": "wandb", "wandbMode": "offline"}, []),
        ({"logger": "wandb", "wandbMode": "disabled"}, []),
    ],
)
def test_the_trainer_alone_is_given_the_key_of_weights_and_biases_where_it_needs_it(
    make_run: MakeRun, training: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    run = make_run(training=training | {"wandbApiKeySecretRef": {"name": "wandb"}})
    found = [entry for entry in trainer(run)["env"] if entry["name"] == "WANDB_API_KEY"]
    assert found == expected


def test_the_key_comes_from_the_key_of_the_secret_that_the_run_names(make_run: MakeRun) -> None:
    reference = {"name": "lab-secrets", "key": "wb"}
    run = make_run(training={"logger": "wandb", "wandbApiKeySecretRef": reference})
    source = trainer(run)["env"][-1]["valueFrom"]["secretKeyRef"]
    assert source == reference | {"optional": True}


def test_a_pod_template_may_bring_the_key_instead(make_run: MakeRun) -> None:
    own = {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "own", "key": "k"}}}
    run = make_run(
        training={"logger": "wandb"},
        podTemplate={"spec": {"containers": [{"name": "trainer", "env": [own]}]}},
    )
    assert trainer(run)["env"][-1] == own
