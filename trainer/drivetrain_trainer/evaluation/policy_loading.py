"""From a run directory or a checkpoint folder to a policy that acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.run_config import RunConfig
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_api.errors import SpecError
from drivetrain_api.tasks import TaskSpec, UnknownTaskError, load_task
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.evaluation.evaluator import EvaluationError
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_catalog import Preference, resolve_checkpoint
from drivetrain_trainer.evidence.checkpoint_manifest import (
    LEARNER_PART,
    Checkpoint,
    CheckpointError,
    CheckpointSubject,
    open_checkpoint,
)
from drivetrain_trainer.evidence.run_directory import RUN_CONFIG
from drivetrain_trainer.physics.port import PhysicsError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

POLICY_REFUSALS: Final = (
    CheckpointError,
    EvaluationError,
    EnvError,
    PhysicsError,
    SpecError,
    OSError,
)
"""What can be wrong with a path, its task or its policy, for a person to mend."""
_CONFIG_LIMIT = 1 << 20


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy and what it was trained on."""

    policy: nn.Module
    """(..., o) float32 raw observations -> (..., a) actions in [-1, 1]; evaluation mode, CPU."""
    task: TaskSpec
    config: RunConfig
    checkpoint: Checkpoint
    run_directory: Path


def load_policy(path: Path, *, latest: bool = False) -> LoadedPolicy:
    """The policy of a run directory or of one checkpoint folder.

    Of a run directory the best checkpoint is taken, or the latest one where asked for, or
    where none was marked as the best.

    The run directory's ``run_config.json`` says what the network is; a checkpoint of
    another task or of other sizes than that is refused.

    Raises:
        CheckpointError: naming the file or folder, and what is missing, damaged or of
            something else.
    """
    prefer = Preference.LATEST if latest else Preference.BEST
    checkpoint = resolve_checkpoint(path, prefer)
    run_directory = checkpoint.path.resolve().parent.parent
    config = _read_config(run_directory / RUN_CONFIG)
    try:
        task = load_task(config.task)
    except UnknownTaskError as error:
        raise CheckpointError(run_directory / RUN_CONFIG, str(error)) from error
    checkpoint = open_checkpoint(checkpoint.path, CheckpointSubject.of(config, task))
    state = load_part(checkpoint, LEARNER_PART)
    try:
        policy = SacAgent.policy_from_checkpoint(
            config.algo, task.observation_dim, task.action_dim, state["agent"]
        )
    except (KeyError, RuntimeError) as error:
        raise CheckpointError(
            checkpoint.path, f"{LEARNER_PART}.pt holds no policy of these sizes: {error}"
        ) from error
    return LoadedPolicy(policy.eval(), task, config, checkpoint, run_directory)


def _read_config(path: Path) -> RunConfig:
    try:
        return RunConfig.from_json(read_bounded(path, _CONFIG_LIMIT))
    except FileNotFoundError:
        raise CheckpointError(
            path,
            "is missing: a checkpoint is read with the run_config.json of the run directory "
            "that it lies in (<run directory>/checkpoints/step_...)",
        ) from None
    except (UnreadableFileError, ArtifactError) as error:
        raise CheckpointError(path, str(error)) from error
