"""``drivetrain play``: what a checkpoint is worth, and what it looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.evaluation.evaluator import EvaluationResult, Evaluator
from drivetrain_trainer.evaluation.policy_loading import POLICY_REFUSALS, LoadedPolicy, load_policy
from drivetrain_trainer.evaluation.recording import record_episode
from drivetrain_trainer.evaluation.video import VIDEO_FILE, GlBackend, VideoError, make_video
from drivetrain_trainer.telemetry.backends.wandb_link import WandbError
from drivetrain_trainer.telemetry.backends.wandb_session import send_video

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "REFUSALS",
    "PlayedVideo",
    "UploadError",
    "VideoError",
    "describe",
    "evaluate",
    "film",
    "load",
    "upload",
]


class UploadError(Exception):
    """The video is there, and was not added to the run's page."""


REFUSALS: Final = (*POLICY_REFUSALS, VideoError, UploadError)
"""Errors that a person can mend."""
load = load_policy


@dataclass(frozen=True)
class PlayedVideo:
    """A video that was made."""

    path: Path
    seconds: float
    backend: GlBackend


def evaluate(loaded: LoadedPolicy, *, episodes: int, seed: int) -> EvaluationResult:
    """Evaluate a loaded policy on its own task, simulator and overrides."""
    return Evaluator(
        loaded.task,
        episodes=episodes,
        seed=seed,
        sim=loaded.config.sim,
        overrides=loaded.config.task.overrides,
    ).evaluate(loaded.policy)


def film(loaded: LoadedPolicy, *, seed: int, output: Path | None = None) -> PlayedVideo:
    """Film one episode; into the run directory unless `output` names another file.

    Raises:
        VideoError: if there is no off-screen OpenGL.
        EvaluationError: if the task has nothing to draw.
    """
    env = make_env(
        loaded.task,
        num_envs=1,
        seed=seed,
        sim=loaded.config.sim,
        overrides=loaded.config.task.overrides,
    )
    try:
        recording = record_episode(env, loaded.policy)
    finally:
        env.close()
    path = output or loaded.run_directory / VIDEO_FILE
    backend = make_video(recording, path)
    return PlayedVideo(path, recording.seconds, backend)


def upload(loaded: LoadedPolicy, video: PlayedVideo) -> str | None:
    """Add the video to the run of Weights & Biases that the policy was trained in.

    Returns:
        Where it can be seen, or how to send it; None where there is no such run.

    Raises:
        UploadError: it was refused, or the service cannot be reached.
    """
    name = VIDEO_FILE.removesuffix(".mp4")
    steps = loaded.checkpoint.env_steps
    try:
        return send_video(loaded.run_directory, video.path, name=name, env_steps=steps)
    except (OSError, WandbError) as error:
        raise UploadError(f"the video was not sent to Weights & Biases: {error}") from error


def describe(loaded: LoadedPolicy, result: EvaluationResult) -> str:
    """The figures as a person reads them."""
    trained = f"{loaded.config.algo.name} at step {loaded.checkpoint.env_steps:,}"
    spread = f"min {min(result.returns):,.2f}   max {max(result.returns):,.2f}"
    lengths = f"min {min(result.lengths):,}   max {max(result.lengths):,}"
    lines = [
        f"{loaded.task.name} ({loaded.config.sim}), {trained}: {len(result.returns)} episodes",
        f"  return  {result.mean:,.2f} ± {result.sd:,.2f}   {spread}",
        f"  length  {result.mean_length:,.1f}   {lengths}",
    ]
    if result.repeated:
        lines.append(f"  {result.repeated} episodes were repeated: their world diverged")
    return "\n".join(lines)
