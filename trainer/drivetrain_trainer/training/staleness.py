"""The age of the policy behind sampled replay rows, without a version stored in each of them.

The ring is first in, first out, and every tick of a rank adds a row for each of its
environments. How many rows were written after a sampled one therefore tells its tick, and the
tick the iteration that served it, which is the version of the policy that chose its action. A
world that diverged leaves its row out, and an attempt that was stopped by a signal serves one
tick beyond its iteration: each moves older rows by less than a tick, or by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import torch

from drivetrain_trainer.stats.staleness import NO_VERSION, record_staleness

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.settings import RuntimeSettings
    from drivetrain_trainer.stats import StatsTracker
    from drivetrain_trainer.training.schedule import Cursor

ACTOR: Final = "sac_actor"


@dataclass(frozen=True)
class ReplayAges:
    """Reads versions off the places of sampled rows."""

    num_envs: int
    """Rows that a tick adds to a rank's ring."""
    env_steps_per_sync: int
    """Ticks an iteration."""
    learning_starts: int
    """Ticks whose actions no policy chose."""

    @classmethod
    def of(cls, settings: RuntimeSettings) -> Self:
        """From the runtime settings."""
        return cls(
            num_envs=settings.num_envs,
            env_steps_per_sync=settings.env_steps_per_sync,
            learning_starts=settings.learning_starts,
        )

    def behaviour_versions(self, ages: Tensor, cursor: Cursor) -> Tensor:
        """The iteration that served each row; `NO_VERSION` for random actions of the warm-up.

        Args:
            ages: (n,) int64 rows written after each sampled one.
            cursor: After the iteration that sampled them, whose last tick was not in replay yet.
        """
        ticks = ages // self.num_envs
        newest = cursor.tick - 2
        versions = self.published_version(cursor) - (ticks + 1) // self.env_steps_per_sync
        random = newest - ticks < self.learning_starts
        return torch.where(random, NO_VERSION, versions)

    def published_version(self, cursor: Cursor) -> int:
        """The policy's version during the updates of the iteration just finished."""
        return cursor.iteration - 1

    def record(self, tracker: StatsTracker, ages: Tensor | None, cursor: Cursor) -> None:
        """Record ``sac_actor/update/version_stats/`` of the rows that the iteration learnt from.

        Args:
            tracker: Takes the figures.
            ages: As of `ReplayRing.sampled_ages`; None where nothing was sampled.
            cursor: See `behaviour_versions`.
        """
        if ages is not None:
            record_staleness(
                tracker,
                behaviour_version=self.behaviour_versions(ages, cursor),
                published_version=self.published_version(cursor),
                actor=ACTOR,
            )
