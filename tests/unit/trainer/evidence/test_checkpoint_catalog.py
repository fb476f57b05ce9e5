"""A path that a person wrote leads to the checkpoint that was meant, or to a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.compose import compose
from drivetrain_api.tasks import TaskSpec
from drivetrain_api.training import Simulator
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.evidence.checkpoint import CheckpointStore
from drivetrain_trainer.evidence.checkpoint_catalog import Preference, resolve_checkpoint
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointError, CheckpointSubject
from drivetrain_trainer.evidence.fence import Fence

SUBJECT = CheckpointSubject(AlgoName.SAC, "hopper", Simulator.MUJOCO, {})
LATEST, BEST = Preference.LATEST, Preference.BEST


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Checkpoints at 10, 20 (the best) and 30."""
    fence = Fence(tmp_path / "run" / "private" / "attempts", 1)
    fence.take()
    store = CheckpointStore(tmp_path / "run/checkpoints", subject=SUBJECT, keep=5, fence=fence)
    for step in (10, 20, 30):
        draft = store.draft(step)
        draft.write("agent", {})
        store.commit(draft, parts=["agent"], iteration=0, best=step == 20)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("path", "prefer", "env_steps"),
    [
        ("checkpoints/step_000000000010", LATEST, 10),
        ("checkpoints/step_000000000010", BEST, 10),
        (".", LATEST, 30),
        (".", BEST, 20),
        ("checkpoints", LATEST, 30),
        ("checkpoints", BEST, 20),
    ],
)
def test_finds_what_was_meant(run: Path, path: str, prefer: Preference, env_steps: int) -> None:
    assert resolve_checkpoint(run / path, prefer, SUBJECT).env_steps == env_steps


def test_without_a_best_the_latest_is_taken(run: Path) -> None:
    (run / "checkpoints/best.json").unlink()
    assert resolve_checkpoint(run, BEST).env_steps == 30


def test_what_leads_nowhere_is_explained(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="absent: is not there"):
        resolve_checkpoint(tmp_path / "absent", LATEST)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"neither a checkpoint .* nor a run directory"):
        resolve_checkpoint(tmp_path / "empty", LATEST)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="neither a checkpoint"):
        resolve_checkpoint(tmp_path / "file", LATEST)
    other = CheckpointSubject(AlgoName.SAC, "ant", Simulator.MUJOCO, {})
    with pytest.raises(CheckpointError, match="is of task hopper; this run trains ant"):
        resolve_checkpoint(run, LATEST, other)


def test_the_subject_of_a_spec_holds_what_shapes_its_parameters() -> None:
    task = TaskSpec("hopper", "m:f", observation_dim=11, action_dim=3, episode_length=1000)

    def subject(**algo: object) -> CheckpointSubject:
        spec = {
            "algo": {"name": "sac", **algo},
            "task": {"name": "hopper"},
            "training": {"total_env_steps": 1},
        }
        return CheckpointSubject.of(compose(TrainingRunSpec.model_validate(spec), task), task)

    base = subject()
    assert base.sizes["observation_dim"] == 11
    assert base.sizes["num_atoms"] == 101
    assert subject(gamma=0.5, batch_size=64) == base
    for algo in (
        {"actor_hidden": [32]},
        {"critic_hidden": [32]},
        {"num_atoms": 51},
        {"critic": "twin_q"},
        {"layer_norm": False},
        {"activation": "elu"},
        {"observation_normalization": False},
    ):
        assert subject(**algo) != base
