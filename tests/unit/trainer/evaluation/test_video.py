from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from torch import nn

from drivetrain_api.tasks import TaskSpec, load_task
from drivetrain_api.training import TaskConfig
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.evaluation import video
from drivetrain_trainer.evaluation.evaluator import EvaluationError, EvaluationResult, Evaluator
from drivetrain_trainer.evaluation.recording import MAX_FPS, MAX_SECONDS, Recording, record_episode
from drivetrain_trainer.evaluation.video import (
    Drawing,
    GlBackend,
    VideoError,
    draw_with_any,
    make_video,
)


def make_policy(task: TaskSpec) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(task.observation_dim, task.action_dim), nn.Tanh())


def evaluate_once(name: str) -> EvaluationResult:
    task = load_task(TaskConfig(name=name))
    return Evaluator(task, episodes=1, seed=0).evaluate(make_policy(task))


def record(name: str) -> Recording:
    task = load_task(TaskConfig(name=name))
    policy = make_policy(task)
    env = make_env(task, num_envs=1, seed=0)
    try:
        return record_episode(env, policy)
    finally:
        env.close()


def test_a_recording_plays_one_episode_at_real_speed() -> None:
    recording = record("reacher")
    assert recording.qpos.shape == (25, 4)
    assert recording.qvel.shape == (25, 4)
    assert recording.fps == pytest.approx(25.0)
    assert recording.seconds == pytest.approx(1.0)


def test_states_between_frames_are_left_out() -> None:
    recording = record("walker2d")
    assert recording.fps <= MAX_FPS * 1.05
    assert recording.fps == pytest.approx(1 / (0.008 * 4))


def test_a_recording_holds_no_state_of_the_next_episode() -> None:
    recording = record("inverted_double_pendulum")
    assert 3 <= len(recording.qpos) < 20
    assert np.abs(np.diff(recording.qpos, axis=0)).max() < 0.5
    (length,) = evaluate_once("inverted_double_pendulum").lengths
    assert len(recording.qpos) == length


def test_a_recording_ends_before_a_long_episode() -> None:
    assert record("half_cheetah").seconds == pytest.approx(MAX_SECONDS)


def test_a_task_without_anything_to_draw_is_refused(script: Callable[..., Any]) -> None:
    env = make_env(script([[5]]).spec, num_envs=1, seed=0)
    with pytest.raises(EvaluationError, match="nothing to draw"):
        record_episode(env, nn.Linear(2, 1))


class Draws:
    """Stands in for drawing processes: how each graphics library's ends."""

    def __init__(self, **ends: Drawing) -> None:
        self.ends = ends
        self.tried: list[str] = []

    def __call__(
        self, _command: Sequence[str], environment: Mapping[str, str], _limit_s: float
    ) -> Drawing:
        backend = environment["MUJOCO_GL"]
        self.tried.append(backend)
        return self.ends[backend]


DRAWN = Drawing(0, "")
FAILED = Drawing(1, "Traceback ...\nRuntimeError: no display\n")
CRASHED = Drawing(-signal.SIGSEGV, "")


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    installed = {"EGL", "OSMesa"}
    monkeypatch.setattr(
        video.ctypes.util, "find_library", lambda name: name if name in installed else None
    )
    return installed


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("egl", "requested", "tried"),
    [
        (DRAWN, "", ["egl"]),
        (FAILED, "", ["egl", "osmesa"]),
        (CRASHED, "", ["egl", "osmesa"]),
        (DRAWN, "osmesa", ["osmesa"]),
        (DRAWN, "EGL", ["egl"]),
        (DRAWN, "glfw", ["egl"]),
    ],
)
def test_graphics_libraries_are_tried_in_turn(
    egl: Drawing, requested: str, tried: list[str]
) -> None:
    draws = Draws(egl=egl, osmesa=DRAWN)
    drawn_by = draw_with_any(["draw"], 1.0, requested=requested, draw=draws)
    assert draws.tried == tried
    assert drawn_by is GlBackend(tried[-1])


def test_what_is_missing_and_how_to_go_on_is_said(libraries: set[str]) -> None:
    libraries.remove("OSMesa")
    with pytest.raises(VideoError) as error:
        draw_with_any(["draw"], 1.0, draw=Draws(egl=CRASHED, osmesa=FAILED))
    assert str(error.value).splitlines() == [
        "no video: off-screen OpenGL is not available",
        "  MUJOCO_GL=egl: drawing crashed with SIGSEGV",
        "  MUJOCO_GL=osmesa: the library libOSMesa.so is not installed",
        "install one of these Debian packages and play again:",
        "  apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri   (for MUJOCO_GL=egl)",
        "  apt-get install libosmesa6   (for MUJOCO_GL=osmesa)",
    ]


@pytest.mark.usefixtures("libraries")
def test_a_library_that_is_there_but_fails_is_quoted() -> None:
    with pytest.raises(VideoError, match="MUJOCO_GL=egl: RuntimeError: no display"):
        draw_with_any(["draw"], 1.0, draw=Draws(egl=FAILED, osmesa=Drawing(3, "")))


@pytest.mark.usefixtures("libraries")
def test_a_library_that_does_not_load_is_named() -> None:
    unloaded = Drawing(1, "AttributeError: 'NoneType' object has no attribute 'eglQueryString'")
    with pytest.raises(VideoError, match=r"egl: the library libEGL\.so\.1 cannot be loaded"):
        draw_with_any(["draw"], 1.0, draw=Draws(egl=unloaded, osmesa=FAILED))


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed with SIGSEGV"),
        ("import time; time.sleep(60)", "no end after 0 s"),
        ("raise RuntimeError('broken driver')", "RuntimeError: broken driver"),
    ],
)
def test_a_drawing_process_that_dies_is_survived(code: str, reason: str) -> None:
    with pytest.raises(VideoError, match=reason):
        draw_with_any([sys.executable, "-c", code], 0.3 if "sleep" in code else 60.0)


@pytest.mark.slow
def test_a_video_is_drawn_where_opengl_is_available(tmp_path: Path) -> None:
    output = tmp_path / "play_video.mp4"
    try:
        make_video(record("pusher"), output, size=(160, 120))
    except VideoError as error:
        pytest.skip(str(error))
    assert imageio_ffmpeg.count_frames_and_secs(str(output)) == (100, 5.0)
    decode = ["-i", str(output), "-f", "rawvideo", "-pix_fmt", "rgb24", "-loglevel", "error", "-"]
    raw = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), *decode], capture_output=True, check=True
    ).stdout
    images = np.frombuffer(raw, np.uint8).reshape(-1, 120, 160, 3)
    assert len(images) == 100
    assert images[0].std() > 5
    assert np.abs(images[-1].astype(int) - images[0].astype(int)).max() > 30
    assert [path.name for path in tmp_path.iterdir()] == ["play_video.mp4"]
