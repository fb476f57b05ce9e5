"""The whole launcher with MPS: real torchrun, stand-in ranks, stand-in daemons."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.artifacts.mps_evidence import MpsEvidence
from drivetrain_api.trainingrun import MpsMode

GPUS = (
    "GPU-00000000-1111-2222-3333-444444444444",
    "GPU-00000000-1111-2222-3333-555555555555",
)
STOP = ["mps", "wait", "outcome=75", "exit=75"]


@pytest.fixture
def gpu_pod(make_pod: Callable[[Path], Any], tmp_path: Path, mps_program: Path) -> Iterator[Any]:
    """A pod with two GPUs and two ranks; its scratch folder has a path short enough."""
    scratch = Path(f"/tmp/mps-pod-{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    pod = make_pod(tmp_path)
    pod.ranks = 2
    pod.scratch_folder = scratch
    pod.spec = {
        "accelerator": {
            "gpusPerNode": 2,
            "mps": {"mode": "InContainer", "activeThreadPercentage": 50, "pinnedMemoryLimit": "4G"},
        }
    }
    pod.environ = {
        "PATH": f"{mps_program}:{os.environ['PATH']}",
        "STAND_IN_GPUS": ",".join(GPUS),
        "CUDA_VISIBLE_DEVICES": ",".join(GPUS),
    }
    yield pod
    shutil.rmtree(scratch, ignore_errors=True)


def daemon_pid(pod: Any, index: int) -> int:
    return int((pod.scratch / f"mps/{index}/pipe/nvidia-cuda-mps-control.pid").read_text())


def nothing_runs(pod: Any) -> None:
    assert pod.processes() == []
    assert list(pod.scratch.glob("mps/*/pipe")) == []


def test_each_rank_is_served_by_its_gpus_daemon_and_that_is_proven(gpu_pod: Any) -> None:
    gpu_pod.start(
        ["mps", "await=mps-rank0.json", "progress", "outcome=0"],
        ["mps", "await=mps-rank1.json", "outcome=0"],
    )
    gpu_pod.until("up0")
    assert gpu_pod.sink.mps is not None  # told before the ranks connect
    assert gpu_pod.wait() == 0, gpu_pod.stderr
    for digest in (gpu_pod.sink, gpu_pod.termination):
        assert digest.exit_code == 0
        assert (digest.mps.mode, digest.mps.ready) == (MpsMode.IN_CONTAINER, True)
        assert digest.mps.daemons == 2
        assert digest.mps.message == "2 daemon(s) serve 2 rank(s), each seen as client"
    for rank, gpu in enumerate(GPUS):
        text = (gpu_pod.scratch / f"mps-rank{rank}.json").read_text()
        evidence = MpsEvidence.from_json(text)
        assert evidence.validated
        assert (evidence.rank, evidence.world_size) == (rank, 2)
        assert evidence.learner_gpu_uuid == gpu
        assert evidence.pipe_directory == str(gpu_pod.scratch / f"mps/{rank}/pipe")
        assert (gpu_pod.scratch / f"gpu{rank}").read_text() == gpu
        log = (gpu_pod.scratch / f"mps/{rank}/log/control.log").read_text()
        assert "Cmd:set_default_active_thread_percentage 50" in log
        assert "Cmd:set_default_device_pinned_mem_limit 0 4G" in log
        assert log.endswith("Exit\n")
    nothing_runs(gpu_pod)


def test_a_daemon_that_dies_ends_the_attempt_after_a_checkpoint(gpu_pod: Any) -> None:
    gpu_pod.start(STOP, STOP)
    gpu_pod.until("mps-rank1.json")
    os.kill(daemon_pid(gpu_pod, 1), signal.SIGKILL)
    assert gpu_pod.wait() == 1
    digest = gpu_pod.termination
    assert digest == gpu_pod.sink
    assert digest.message.startswith(
        f"the MPS daemon of {GPUS[1]} was killed by signal 9 during training; its log says: "
    )
    assert not digest.mps.ready
    for rank in range(2):  # they were stopped in order
        outcome = json.loads((gpu_pod.scratch / f"outcome-rank{rank}.json").read_text())
        assert outcome["exit_code"] == 75
    nothing_runs(gpu_pod)


def test_ranks_that_do_not_use_it_are_refused(gpu_pod: Any) -> None:
    gpu_pod.environ["STAND_IN_USE_SECONDS"] = "1"
    assert gpu_pod.run(STOP, ["wait", "outcome=75", "exit=75"]) == 2
    digest = gpu_pod.termination
    assert "the daemons run, but are not in use: rank 1 is no client" in digest.message
    assert "rank 0" not in digest.message
    assert not digest.mps.ready
    nothing_runs(gpu_pod)


def test_a_stop_is_still_a_stop(gpu_pod: Any) -> None:
    gpu_pod.start(STOP, STOP)
    gpu_pod.until("gpu0")
    gpu_pod.until("gpu1")
    gpu_pod.send(signal.SIGTERM)
    assert gpu_pod.wait() == 75
    assert gpu_pod.termination.message.startswith("stopped by SIGTERM after a checkpoint")
    nothing_runs(gpu_pod)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"STAND_IN_MPS": "exit"}, "ended at once with code 1; its log says: "),
        ({"STAND_IN_MPS": "forget"}, "was told 50 % of the threads, and keeps '100.0'"),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/mps"}, "set External to use that one"),
    ],
)
def test_one_that_cannot_be_had_is_refused_before_a_rank_starts(
    gpu_pod: Any, environ: dict[str, str], message: str
) -> None:
    gpu_pod.environ.update(environ)
    assert gpu_pod.run(STOP, STOP) == 2
    digest = gpu_pod.termination
    assert digest.message.startswith("accelerator.mps.mode: ")
    assert message in digest.message
    assert not digest.mps.ready
    assert message in digest.mps.message
    assert gpu_pod.sink == digest
    assert "torchrun started" not in gpu_pod.stderr
    nothing_runs(gpu_pod)


def test_an_injected_daemon_is_used_and_left_alone(gpu_pod: Any) -> None:
    pipes, logs = gpu_pod.scratch.with_suffix(".ext"), gpu_pod.folder / "logs"
    for folder in (pipes, logs):
        folder.mkdir()
    environ = {
        **os.environ,
        "PATH": gpu_pod.environ["PATH"],
        "CUDA_VISIBLE_DEVICES": GPUS[0],
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_LOG_DIRECTORY": str(logs),
    }
    daemon = subprocess.Popen(["nvidia-cuda-mps-control", "-f"], env=environ)
    try:
        while not (pipes / "nvidia-cuda-mps-control.pid").exists():
            assert daemon.poll() is None
        gpu_pod.spec["accelerator"]["mps"]["mode"] = "External"
        gpu_pod.environ["CUDA_MPS_PIPE_DIRECTORY"] = str(pipes)
        assert gpu_pod.run(["mps", "outcome=0"], ["mps", "outcome=0"]) == 0, gpu_pod.stderr
        report = gpu_pod.termination.mps
        assert (report.mode, report.ready, report.daemons) == (MpsMode.EXTERNAL, True, 1)
        assert "it has no server yet" in report.message
        assert (gpu_pod.scratch / "gpu0").read_text() == ",".join(GPUS)
        assert daemon.poll() is None
        assert "quit" not in (logs / "control.log").read_text()
        assert not (gpu_pod.scratch / "mps").exists()
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(pipes)
    assert gpu_pod.processes() == []
