from __future__ import annotations

import os
from pathlib import Path

import pytest

from drivetrain_trainer.telemetry.facts import MpsStatus
from drivetrain_trainer.training import mps_status as module
from drivetrain_trainer.training.mps_status import mps_status


@pytest.fixture
def pipes(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "control")
    return tmp_path


@pytest.mark.parametrize(
    ("cuda", "validated", "expected"),
    [
        (True, True, MpsStatus.ON),
        (True, False, MpsStatus.AMBIENT),
        (False, False, MpsStatus.OFF),
        (False, True, MpsStatus.OFF),
    ],
)
def test_status_beside_a_daemon(
    pipes: Path, cuda: bool, validated: bool, expected: MpsStatus
) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    assert mps_status(environ, cuda=cuda, validated=validated) is expected


def test_without_a_daemon_it_is_off(tmp_path: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert mps_status(environ, cuda=True) is MpsStatus.OFF
    (tmp_path / "control").write_text("no pipe")
    assert mps_status(environ, cuda=True) is MpsStatus.OFF


def test_a_daemon_at_the_default_place_serves_without_being_named(
    pipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEFAULT_PIPE_DIRECTORY", str(pipes))
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    assert mps_status(cuda=True) is MpsStatus.AMBIENT
