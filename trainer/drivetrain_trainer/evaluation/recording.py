"""The states of one episode, to be drawn later by another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from drivetrain_trainer.evaluation.evaluator import EvaluationError, act, evaluating
from drivetrain_trainer.evaluation.render import MODEL_FILE, STATES_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from drivetrain_trainer.envs.vector_env import VectorEnv

MAX_FPS = 30.0
"""Frames a second that a video has at most; states between them are left out."""

MAX_SECONDS = 30.0
"""A recording ends here, though its episode goes on."""


@dataclass(frozen=True)
class Recording:
    """One episode of the first environment."""

    model: mujoco.MjModel
    qpos: NDArray[np.float64]
    """(frames, nq)."""
    qvel: NDArray[np.float64]
    """(frames, nv)."""
    fps: float
    """Frames a second at which it plays in real time."""

    @property
    def seconds(self) -> float:
        """How long it plays."""
        return len(self.qpos) / self.fps

    def save(self, folder: Path) -> None:
        """Write the compiled model and the states into a folder."""
        mujoco.mj_saveModel(self.model, str(folder / MODEL_FILE))
        np.savez(folder / STATES_FILE, qpos=self.qpos, qvel=self.qvel, fps=self.fps)


def record_episode(env: VectorEnv, policy: nn.Module) -> Recording:
    """Run one episode of the first environment and keep the states to be drawn.

    At most `MAX_SECONDS` of it: software rendering takes longer than the episode.

    Raises:
        EvaluationError: if the task has nothing to draw, or the policy cannot act.
    """
    stride = max(1, round(1.0 / (MAX_FPS * env.step_seconds)))
    longest = round(MAX_SECONDS / env.step_seconds)
    observation = env.reset()
    first = env.render_state()
    if first is None:
        raise EvaluationError("the task has nothing to draw")
    qpos, qvel = [first.qpos.numpy()], [first.qvel.numpy()]
    with evaluating(policy):
        for step in range(1, min(env.episode_length, longest)):
            outcome = env.step(act(policy, observation, env.action_dim))
            over = outcome.terminated | outcome.truncated | outcome.invalid
            state = env.render_state()
            if bool(over[0]) or state is None:  # what can be drawn now is the next episode
                break
            if step % stride == 0:
                qpos.append(state.qpos.numpy())
                qvel.append(state.qvel.numpy())
            observation = outcome.observation
    return Recording(
        model=first.model,
        qpos=np.stack(qpos),
        qvel=np.stack(qvel),
        fps=1.0 / (env.step_seconds * stride),
    )
