from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drivetrain_operator.local.pod_layout import temporary_folder
from drivetrain_operator.local.processes import owned
from drivetrain_operator.manifests.children import children
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.reconcile.decision import (
    Create,
    DeleteChild,
    DeleteJob,
    DeletePod,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Cluster
    from drivetrain_api.trainingrun import TrainingRun

    MakeRun = Callable[..., TrainingRun]


def test_a_pod_that_ends_well_completes_its_job(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(), "message=done+exit=0")
    ended = cluster.ended()
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert json.loads(ended["message"])["message"] == "done"
    assert cluster.pod()["status"]["phase"] == "Succeeded"
    assert not temporary_folder(cluster.pod()["metadata"]["uid"]).exists()
    assert cluster.conditions() == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }
    assert cluster.job()["status"]["succeeded"] == 1
    assert not cluster.backend.live()


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("exit=1", (1, "BackoffLimitExceeded", "reached the specified backoff limit")),
        ("exit=2", (2, "PodFailurePolicy", "exit code 2 matching FailJob rule at index 1")),
        ("exit=3", (3, "PodFailurePolicy", "exit code 3 matching FailJob rule at index 1")),
        ("exit=75", (75, "PodFailurePolicy", "exit code 75 matching FailJob rule at index 2")),
        ("die=SIGKILL", (137, "BackoffLimitExceeded", "backoff limit")),
        ("die=SIGSEGV", (139, "BackoffLimitExceeded", "backoff limit")),
    ],
)
def test_failures_fail_the_job_as_its_policy_says(
    cluster: Cluster, make_run: MakeRun, plan: str, expected: tuple[int, str, str]
) -> None:
    code, reason, words = expected
    cluster.launch(make_run(), plan)
    ended = cluster.ended()
    assert (ended["exitCode"], ended["reason"]) == (code, "Error")
    assert cluster.conditions() == {"FailureTarget": reason, "Failed": reason}
    assert ended.get("signal") == (code - 128 if code > 128 else None)
    failed = [c for c in cluster.job()["status"]["conditions"] if c["type"] == "Failed"]
    assert words in failed[0]["message"]
    assert cluster.job()["status"]["failed"] == 1


def test_a_failed_pod_ends_its_peers_by_sigterm(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(topology={"nodes": 2}), "0:hang+1:progress=5+1:exit=1")
    cluster.until(lambda: "Failed" in cluster.conditions())
    assert [p["metadata"]["name"] for p in cluster.backend.pods()] == ["cheetah-a1-1"]
    assert cluster.job()["status"]["failed"] == 2
    assert cluster.job()["status"]["terminating"] == 0


def test_failure_is_told_before_the_peers_are_gone(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(topology={"nodes": 2}), "0:stubborn+1:exit=1")
    cluster.until(lambda: "FailureTarget" in cluster.conditions())
    assert "Failed" not in cluster.conditions()
    assert cluster.job()["status"]["terminating"] == 1
    cluster.seconds += 6
    cluster.until(lambda: "Failed" in cluster.conditions())


def test_sigkill_follows_when_the_grace_is_over(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "brood+stubborn")
    cluster.ready()
    pod = cluster.pod()["metadata"]
    backend.apply(DeletePod(pod["name"], pod["uid"]))
    backend.tick()
    assert cluster.pod()["metadata"]["deletionGracePeriodSeconds"] == 5
    cluster.until(lambda: len(cluster.processes()) == 3)
    assert backend.wake_after() == pytest.approx(5)
    cluster.seconds += 5
    cluster.until(lambda: not backend.pods())
    assert cluster.processes() == []
    assert cluster.job()["status"]["failed"] == 1


def test_what_a_pod_leaves_running_dies_with_it(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(), "brood+exit=0")
    cluster.ended()
    assert cluster.processes() == []


def test_a_deletion_forced_later_does_not_wait(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "stubborn")
    cluster.ready()
    pod = cluster.pod()["metadata"]
    backend.apply(DeletePod(pod["name"], pod["uid"]))
    backend.apply(DeletePod(pod["name"], pod["uid"], grace_seconds=0))
    cluster.until(lambda: not backend.pods())


def test_a_stale_uid_deletes_nothing(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "hang")
    backend.apply(DeletePod("cheetah-a1-0", "another"))
    backend.apply(DeleteJob("cheetah-a1", "another"))
    backend.apply(DeleteChild(ChildKind.CONFIG_MAP, "cheetah-a1", "another"))
    backend.tick()
    assert "deletionTimestamp" not in cluster.pod()["metadata"]
    assert len(backend.jobs()) == 1
    assert len(backend.config_maps()) == 2


def test_deleting_the_job_ends_its_pods_gently(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "progress=7+hang")
    cluster.ready()
    backend.apply(DeleteJob("cheetah-a1", cluster.job()["metadata"]["uid"]))
    cluster.until(lambda: not backend.pods())
    assert backend.jobs() == ()
    progress = next(m for m in backend.config_maps() if m["metadata"]["name"].endswith("progress"))
    assert json.loads(progress["data"]["progress"])["exitCode"] == 75


def test_create_is_once(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "hang")
    uid = cluster.job()["metadata"]["uid"]
    backend.apply(Create(ChildKind.JOB, "cheetah-a1", cluster.job()))
    assert cluster.job()["metadata"]["uid"] == uid


def test_a_queue_admits_at_once(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(queueName="gpu"), "exit=0")
    assert cluster.ended()["exitCode"] == 0


def test_the_pod_sees_local_folders(
    cluster: Cluster, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_RDZV_ENDPOINT", "somebody else's")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("DRIVETRAIN_SOAK_SECONDS", "30")  # of `drivetrain soak` above it
    monkeypatch.setenv("DRIVETRAIN_STRAY", "nobody's")
    overlay = {
        "spec": {
            "containers": [
                {
                    "name": "trainer",
                    "env": [
                        {"name": "WHERE", "value": "a:/var/lib/drivetrain/x:/etc/drivetrained"},
                        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "BOTH", "value": "$(WHO) $$(WHO) $(NOBODY)"},
                    ],
                }
            ]
        }
    }
    run = make_run(topology={"nodes": 2}, podTemplate=overlay)
    cluster.launch(run, "facts+hang")
    cluster.ready(0)
    cluster.ready(1)
    found = [facts_of(cluster, index) for index in (0, 1)]
    environment = found[1]["environment"]
    assert found[1]["folder"] == str(cluster.storage)
    assert environment["PET_NODE_RANK"] == "1"
    assert environment["PET_MASTER_ADDR"] == "127.0.0.1"
    assert environment["PET_MASTER_PORT"] == found[0]["environment"]["PET_MASTER_PORT"] != "29500"
    assert environment["DRIVETRAIN_STORAGE"] == str(cluster.storage)
    assert environment["WHERE"] == f"a:{cluster.storage}/x:/etc/drivetrained"
    assert environment["BOTH"] == "cheetah-a1-1 $(WHO) $(NOBODY)"
    assert "PET_RDZV_ENDPOINT" not in environment
    assert environment["MUJOCO_GL"] == "egl"
    assert environment["DRIVETRAIN_SOAK_SECONDS"] == "30"
    assert "DRIVETRAIN_STRAY" not in environment
    assert environment["HOME"] == os.environ["HOME"]
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert environment["DRIVETRAIN_SCRATCH"] != found[0]["environment"]["DRIVETRAIN_SCRATCH"]
    spec = Path(environment["DRIVETRAIN_SPEC_FILE"])
    assert json.loads(spec.read_text())["uid"] == cluster.runs[0].metadata.uid
    temporary = Path(environment["TMPDIR"])
    assert temporary == temporary_folder(cluster.pod(1)["metadata"]["uid"])
    assert temporary.stat().st_mode & 0o777 == 0o700
    assert os.getsid(found[0]["pid"]) == found[0]["pid"]


def facts_of(cluster: Cluster, index: int) -> dict[str, Any]:
    folder = cluster.store.folder("cheetah") / f"pods/cheetah-a1-{index}/volumes/scratch"
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    return facts


def test_a_pod_that_is_gone_leaves_its_logs_alone(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "noise+hang")
    cluster.ready()
    uid = cluster.pod()["metadata"]["uid"]
    backend.apply(DeleteJob("cheetah-a1", cluster.job()["metadata"]["uid"]))
    cluster.until(lambda: not backend.pods())
    logs = cluster.store.folder("cheetah") / "logs"
    assert (logs / "cheetah-a1-0.stdout.log").read_text() == "to standard output\n"
    assert (logs / "cheetah-a1-0.stderr.log").read_text() == "to standard error\n"
    assert not temporary_folder(uid).exists()
    assert list((cluster.store.folder("cheetah") / "pods").iterdir()) == []


def test_pod_0_writes_to_the_terminal(cluster: Cluster, make_run: MakeRun, tmp_path: Path) -> None:
    with (tmp_path / "terminal").open("wb") as terminal:
        run = make_run(topology={"nodes": 2})
        cluster.launch(run, "noise+exit=0", terminal=terminal.fileno())
        cluster.until(lambda: "Complete" in cluster.conditions())
    assert (tmp_path / "terminal").read_text() == "to standard output\n"
    logs = cluster.store.folder("cheetah") / "logs"
    assert (logs / "cheetah-a1-1.stdout.log").read_text() == "to standard output\n"
    assert (logs / "cheetah-a1-0.stderr.log").read_text() == "to standard error\n"


def test_a_command_that_is_missing_is_a_start_error(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.connect(make_run(), "")
    object.__setattr__(cluster.node._settings, "launcher", ("no-such-launcher",))
    cluster.backend = backend
    launch_children(cluster)
    assert cluster.state()["terminated"]["exitCode"] == 128
    assert cluster.state()["terminated"]["reason"] == "StartError"
    assert (
        '"no-such-launcher": executable file not found' in cluster.state()["terminated"]["message"]
    )


def launch_children(cluster: Cluster) -> None:
    for child in children(cluster.runs[-1], 1):
        cluster.backend.apply(Create(child.kind, child.name, child.manifest))
    cluster.backend.tick()


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        (
            {"volumes": [{"name": "tmp", "nfs": {"server": "x", "path": "/"}}]},
            None,
        ),
        (
            {
                "containers": [
                    {
                        "name": "trainer",
                        "env": [
                            {
                                "name": "WANDB_API_KEY",
                                "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}},
                            }
                        ],
                    }
                ]
            },
            "set WANDB_API_KEY in the environment of the command instead",
        ),
        (
            {
                "volumes": [{"name": "data", "nfs": {"server": "x", "path": "/"}}],
                "containers": [
                    {"name": "trainer", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
                ],
            },
            "volume 'data' (nfs) has no counterpart here",
        ),
    ],
)
def test_what_one_machine_has_not_is_said(
    cluster: Cluster, make_run: MakeRun, overlay: dict[str, Any], words: str | None
) -> None:
    cluster.launch(make_run(podTemplate={"spec": overlay}), "exit=0")
    if words is None:
        assert cluster.ended()["exitCode"] == 0
        return
    ended = cluster.state()["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "ContainerCannotRun")
    assert words in ended["message"]
    assert not temporary_folder(cluster.pod()["metadata"]["uid"]).exists()


def test_gpus_that_are_not_there_leave_the_pod_unschedulable(
    cluster: Cluster, make_run: MakeRun
) -> None:
    cluster.launch(make_run(accelerator={"gpusPerNode": 16}), "exit=0")
    condition = cluster.pod()["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert "1 Insufficient nvidia.com/gpu. Pods up to this one want 16" in condition["message"]
    assert "/dev/nvidia*" in condition["message"]
    assert "nodeName" not in cluster.pod()["spec"]
    cluster.backend.apply(DeleteJob("cheetah-a1", cluster.job()["metadata"]["uid"]))
    cluster.backend.tick()
    assert cluster.backend.pods() == ()


def test_suspending_a_job_fails_nothing(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "hang")
    cluster.ready()
    job = cluster.job()
    backend._put({**job, "spec": {**job["spec"], "suspend": True}})
    cluster.until(lambda: not backend.pods())
    assert cluster.conditions() == {"Suspended": "JobSuspended"}
    assert cluster.job()["status"]["failed"] == 0
    assert "startTime" not in cluster.job()["status"]
    backend._put({**cluster.job(), "spec": job["spec"]})
    cluster.until(backend.pods)
    assert cluster.conditions() == {}
    assert "startTime" in cluster.job()["status"]


def test_an_executor_that_was_killed_disrupts_its_pods(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(), "brood+stubborn")
    cluster.ready()
    cluster.until(lambda: len(cluster.processes()) == 3)
    # What SIGKILL leaves: processes and files, and nobody who waits for them.
    node, uid = cluster.node, cluster.runs[0].metadata.uid
    assert node._guard is not None
    os.kill(node._guard.pid, signal.SIGKILL)
    again = cluster.connect(make_run(), "hang")
    assert cluster.runs[1].metadata.uid == uid
    assert temporary_folder(cluster.pod()["metadata"]["uid"]).exists()
    assert again.recover() == 1
    assert not temporary_folder(cluster.pod()["metadata"]["uid"]).exists()
    assert list(owned(uid)) == []
    again.tick()
    assert cluster.state()["terminated"]["exitCode"] == 137
    assert cluster.conditions() == {
        "FailureTarget": "PodFailurePolicy",
        "Failed": "PodFailurePolicy",
    }
    failed = cluster.job()["status"]["conditions"][-1]["message"]
    assert "has condition DisruptionTarget matching FailJob rule at index 0" in failed


def test_recovering_twice_changes_nothing(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(), "exit=0")
    cluster.ended()
    assert cluster.connect(make_run(), "exit=0").recover() == 0
    assert cluster.ended()["exitCode"] == 0


def test_progress_is_what_the_file_holds(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(), "progress=41+hang")
    cluster.ready()
    assert backend.progress_changed()
    assert not backend.progress_changed()
    progress = next(m for m in backend.config_maps() if m["metadata"]["name"].endswith("progress"))
    assert json.loads(progress["data"]["progress"])["progress"]["envSteps"] == 41


def test_an_oom_kill_is_the_reason(
    cluster: Cluster, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.launch(make_run(), "die=SIGKILL")
    monkeypatch.setattr(type(cluster.node._memory), "oom_kills", lambda _: 10_000_001)
    ended = cluster.ended()
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    assert "memory cgroup killed" in ended["message"]


def test_a_bus_error_tells_of_shared_memory(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.launch(make_run(), "die=SIGBUS")
    ended = cluster.ended()
    assert ended["exitCode"] == 135
    assert re.fullmatch(r"bus error: \d+ bytes of /dev/shm are free", ended["message"])


def test_kill_ends_everything_at_once(cluster: Cluster, make_run: MakeRun) -> None:
    backend = cluster.launch(make_run(topology={"nodes": 2}), "brood+stubborn")
    cluster.ready(0)
    cluster.ready(1)
    backend.kill()
    cluster.until(lambda: not backend.live())
    assert cluster.processes() == []
