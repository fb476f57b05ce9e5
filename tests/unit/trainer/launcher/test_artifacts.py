"""Artifacts are listed with what a reader needs to find and verify them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.training import Simulator
from drivetrain_trainer.evidence.checkpoint import CheckpointStore
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointSubject
from drivetrain_trainer.evidence.fence import Fence
from drivetrain_trainer.launcher.artifacts import list_artifacts


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "logs" / "run"
    fence = Fence(directory / "private" / "attempts", 1)
    fence.take()
    subject = CheckpointSubject(AlgoName.SAC, "hopper", Simulator.MUJOCO, {})
    store = CheckpointStore(directory / "checkpoints", subject=subject, keep=3, fence=fence)
    for step in (10, 20):
        draft = store.draft(step)
        draft.write("learner", {"x": step})
        store.commit(draft, parts=["learner"], iteration=0, best=step == 10)
    (directory / "run_summary.json").write_text("{}")
    (directory / "events.out.tfevents.1").write_text("not listed")
    return directory


def test_what_is_there_is_listed(run: Path, tmp_path: Path) -> None:
    found = {artifact.name: artifact for artifact in list_artifacts(run, tmp_path)}
    assert set(found) == {"best_checkpoint", "last_checkpoint", "run_summary"}
    assert found["run_summary"].uri == "logs/run/run_summary.json"
    assert found["run_summary"].bytes == 2
    assert found["run_summary"].sha256 == hashlib.sha256(b"{}").hexdigest()
    best = run / "checkpoints/step_000000000010"
    assert found["best_checkpoint"].uri == str(best.relative_to(tmp_path))
    assert found["best_checkpoint"].bytes == (best / "learner.pt").stat().st_size
    manifest = hashlib.sha256((best / "manifest.json").read_bytes()).hexdigest()
    assert found["best_checkpoint"].sha256 == manifest
    assert found["last_checkpoint"].uri.endswith("step_000000000020")


def test_a_damaged_checkpoint_is_not_offered(run: Path, tmp_path: Path) -> None:
    (run / "checkpoints/step_000000000020/learner.pt").unlink()
    names = [artifact.name for artifact in list_artifacts(run, tmp_path)]
    assert names == ["best_checkpoint", "run_summary"]


def test_an_empty_directory_lists_nothing(tmp_path: Path) -> None:
    assert list_artifacts(tmp_path, tmp_path) == ()
