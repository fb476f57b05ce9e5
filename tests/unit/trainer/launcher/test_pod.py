"""The launcher as a pod has it: PID 1, a read-only root, an API server, a grace period."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stand_in_api_server import Answer, Request, StandInApiServer

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, decode

STOP = ["wait", "outcome=75", "exit=75"]


@pytest.fixture
def cluster_pod(pod: Any, server: StandInApiServer) -> Any:
    """A pod whose progress goes to a ConfigMap, by IP and with its account."""
    pod.environ = {**server.environ, "DRIVETRAIN_PROGRESS_SINK": "configmap:run-progress"}
    return pod


def reports(server: StandInApiServer) -> list[Digest]:
    found = [decode(request.progress, PROGRESS_LIMIT) for request in server.requests]
    assert None not in found
    return [digest for digest in found if digest is not None]


@pytest.mark.parametrize(
    ("spec", "ranks", "code"),
    [
        pytest.param({}, [["progress", "outcome=0"]], 0, id="done"),
        pytest.param({}, [["kill=SIGKILL"]], 1, id="rank killed"),
        pytest.param({}, [["outcome=3", "exit=3"]], 3, id="broken"),
        pytest.param({"checkpoint": {"resumeFrom": "nowhere"}}, [[]], 2, id="refused"),
    ],
)
def test_every_end_is_in_the_configmap_before_the_termination_message(
    cluster_pod: Any,
    server: StandInApiServer,
    spec: dict[str, Any],
    ranks: list[list[str]],
    code: int,
) -> None:
    message = cluster_pod.folder / "termination"
    there: list[bool] = []

    def look(_: Request) -> None:
        there.append(message.exists())

    server.on_request = look
    cluster_pod.spec = spec
    assert cluster_pod.run(*ranks) == code, cluster_pod.stderr
    assert reports(server)[-1] == cluster_pod.termination
    assert cluster_pod.termination.exit_code == code
    assert not any(there)
    assert '"event": "this pod has"' in cluster_pod.stderr


def test_a_rank_that_cannot_be_left_by_its_scratch_folder_is_still_told(
    cluster_pod: Any, server: StandInApiServer
) -> None:
    cluster_pod.scratch_folder = Path("/proc/none")
    assert cluster_pod.run([]) == 2
    assert reports(server) == [cluster_pod.termination]
    assert cluster_pod.termination.message.startswith("DRIVETRAIN_SCRATCH: /proc/none cannot be")


@pytest.mark.slow
def test_an_api_server_that_hangs_leaves_time_for_the_termination_message(
    cluster_pod: Any, server: StandInApiServer
) -> None:
    cluster_pod.spec = {"gracePeriodSeconds": 15}
    server.script([Answer(0)] * 1000)
    cluster_pod.start(["progress", "ignore", "sleep=1000"])
    cluster_pod.until("up0")
    began = time.time()
    cluster_pod.send(signal.SIGTERM)
    assert cluster_pod.wait() == 1
    written = (cluster_pod.folder / "termination").stat().st_mtime
    assert written - began < 15
    assert "did not stop within 14 s and was killed" in cluster_pod.termination.message
    assert "the last report may not have arrived" in cluster_pod.stderr


def test_an_api_server_that_refuses_costs_a_warning_never_the_run(
    cluster_pod: Any, server: StandInApiServer
) -> None:
    server.script([Answer(403, "no")] * 2 + [Answer(503)])
    assert cluster_pod.run(["progress", "outcome=0"]) == 0
    assert "are the run's Role and RoleBinding there? (it said: no)" in cluster_pod.stderr
    assert cluster_pod.stderr.count("Role and RoleBinding") == 1
    assert reports(server)[-1] == cluster_pod.termination


NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
READ_ONLY = """
set -e
mount --make-rprivate /
mount --bind "$FOLDER" "$FOLDER"
mount -o remount,bind,ro /
! touch /read-only 2>/dev/null
exec "$@"
"""


def unshared(*command: str) -> list[str]:
    """`command` as PID 1 under a root that cannot be written, but for the pod's own folder."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, *NAMESPACES, "sh", "-c", READ_ONLY, "sh", *command]


def test_pid_1_under_a_read_only_root(cluster_pod: Any, server: StandInApiServer) -> None:
    pod = cluster_pod
    probe = subprocess.run(
        unshared("true"),
        env={**os.environ, "FOLDER": str(pod.folder)},
        check=False,
        capture_output=True,
        text=True,
    )
    if probe.returncode != 0 and "not permitted" in probe.stderr:
        pytest.skip(f"this kernel does not let us make namespaces: {probe.stderr.strip()}")
    assert probe.returncode == 0, probe.stderr
    home = pod.folder / "tmp"
    home.mkdir()
    pod.ranks = 2
    pod.environ |= {"HOME": str(home), "TMPDIR": str(home), "FOLDER": str(pod.folder)}
    pod.command = unshared(sys.executable, "-m", "stand_in_launcher")
    pod.start(["child", *STOP], STOP)
    pod.until("up0")
    pod.until("up1")
    os.kill(first_child(pod.process.pid), signal.SIGTERM)
    assert pod.wait() == 75, pod.stderr
    assert '"pid": 1' not in pod.stderr  # torchrun is not PID 1: the launcher is
    assert pod.termination.message.startswith("stopped by SIGTERM after a checkpoint at 640")
    assert reports(server)[-1] == pod.termination
    assert pod.processes() == []
    assert list(home.iterdir()) == []


def first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
