"""A task that composes; its factory is never called."""

from __future__ import annotations

from drivetrain_api.tasks import TaskSpec

TASK = TaskSpec("stand_in", "stand_in_task:none", observation_dim=3, action_dim=1, episode_length=9)
