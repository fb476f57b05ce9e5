"""What a rank is started with, and the figures that follow from it alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from drivetrain_api.compose import derived_seed
from drivetrain_trainer.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_api.attempt import AttemptSpec
    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.launcher.scratch import Scratch


@dataclass(frozen=True)
class RankInput:
    """Input of a rank; `spec` is composed."""

    attempt: AttemptSpec
    spec: TrainingRunSpec
    task: TaskSpec
    storage: Path
    scratch: Scratch | None
    """Folder that the launcher reads; None where there is no launcher."""

    @cached_property
    def settings(self) -> RuntimeSettings:
        """The tensor runtime's settings.

        Raises:
            SpecError: naming each value that is refused.
        """
        return RuntimeSettings.from_spec(self.spec)

    @property
    def target_env_steps(self) -> int:
        """Environment steps over all ranks at which the run is complete."""
        training = self.spec.training
        if training.total_env_steps is not None:
            return training.total_env_steps
        assert training.iterations is not None, "compose refuses a run without a length"
        per_iteration = self.spec.algo.num_envs * training.env_steps_per_sync
        return training.iterations * per_iteration * self.spec.topology.world_size

    @property
    def algo_seed(self) -> int:
        """Seed of the algorithm's streams."""
        assert self.spec.algo.seed is not None, "compose resolves it"
        return self.spec.algo.seed

    def env_seed(self, purpose: str) -> int:
        """Seed of one stream of the environments, such as ``collector/0``."""
        assert self.spec.env.seed is not None, "compose resolves it"
        return derived_seed(self.spec.env.seed, purpose)
