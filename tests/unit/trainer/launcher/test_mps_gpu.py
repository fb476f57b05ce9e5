"""The real nvidia-cuda-mps-control and a real CUDA process; run by hand where there is a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain_api.artifacts.mps_evidence import MpsEvidence
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.launcher.mps.gpus import gpu_uuids
from drivetrain_trainer.launcher.mps.mode import InContainerMps
from drivetrain_trainer.launcher.mps.start import start_mps
from drivetrain_trainer.launcher.processes import reap
from drivetrain_trainer.launcher.scratch import Scratch

pytestmark = pytest.mark.gpu

RANK = """
import os, sys, time
import torch
total = torch.ones(1 << 20, device="cuda:0")
while not os.path.exists(sys.argv[1]):
    total = total * 1.0
    torch.cuda.synchronize()
    time.sleep(0.01)
print(int(total.sum().item()))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(f"/tmp/mps-gpu-{os.getpid()}")
    made.mkdir()
    yield made
    shutil.rmtree(made)


def test_a_cuda_process_is_proven_to_be_a_client_of_the_real_daemon(folder: Path) -> None:
    gpu = gpu_uuids(os.environ)[0]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    spec = TrainingRunSpec.model_validate(
        {
            "algo": {"name": "sac"},
            "task": {"name": "half_cheetah"},
            "accelerator": {
                "gpusPerNode": 1,
                "mps": {
                    "mode": "InContainer",
                    "activeThreadPercentage": 50,
                    "pinnedMemoryLimit": "4G",
                },
            },
        }
    )
    scratch = Scratch(folder)
    mps = start_mps(spec, environ, scratch=scratch, ranks=range(1))
    assert isinstance(mps, InContainerMps)
    (daemon,) = mps.daemons
    try:
        pipe = str(daemon.pipe.directory)
        rank = subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder / "stop")],
            env={**environ, "CUDA_MPS_PIPE_DIRECTORY": pipe, "RANK": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert rank.stdout is not None
        scratch.started(0).write_text(pipe)
        codes: dict[int, int] = {}
        ends = time.monotonic() + 120
        while not (mps.report and mps.report.ready):
            assert time.monotonic() < ends, mps.checks[0].problem
            assert mps.poll(codes) is None, mps.report
            time.sleep(0.05)
            codes |= reap()
            assert rank.pid not in codes
        (folder / "stop").touch()
        assert rank.communicate(timeout=60)[0] == f"{1 << 20}\n"
    finally:
        mps.stop()
        (folder / "stop").touch()
    evidence = MpsEvidence.from_json(scratch.mps_evidence(0).read_text())
    assert (evidence.validated, evidence.learner_gpu_uuid) == (True, gpu)
    assert not daemon.pipe.directory.exists()
