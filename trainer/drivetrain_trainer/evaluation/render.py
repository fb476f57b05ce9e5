"""Draws a recording off screen into an MP4: the program of a process of its own.

``python -m drivetrain_trainer.evaluation.render FOLDER OUTPUT WIDTH HEIGHT`` with
``MUJOCO_GL`` set. A graphics library that is missing, or that crashes, ends this process
and nothing else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import imageio_ffmpeg
import mujoco
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MODEL_FILE = "model.mjb"
STATES_FILE = "states.npz"
TRACKING_CAMERA = "track"
"""Camera that a model has where its body moves away."""
ROOM = 1.4
"""Distance of the free camera, in diagonals of what moves."""
SHADOW_PIXELS = 1024
"""Edge of the shadow map; with no multisampling a frame costs a third in software."""


def main(arguments: list[str]) -> None:
    """Draw every state of the recording in `arguments[0]`."""
    folder, output = Path(arguments[0]), Path(arguments[1])
    width, height = int(arguments[2]), int(arguments[3])
    with np.load(folder / STATES_FILE) as states:
        qpos, qvel, fps = states["qpos"], states["qvel"], float(states["fps"])
    model = mujoco.MjModel.from_binary_path(str(folder / MODEL_FILE))
    draft = output.with_name(f".{output.stem}.partial.mp4")
    writer = imageio_ffmpeg.write_frames(
        str(draft), (width, height), fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    writer.send(None)
    for frame in frames(model, qpos, qvel, width, height):
        writer.send(np.ascontiguousarray(frame))
    writer.close()
    os.replace(draft, output)  # noqa: PTH105 - the atomic call by its own name


def frames(
    model: mujoco.MjModel,
    qpos: NDArray[np.float64],
    qvel: NDArray[np.float64],
    width: int,
    height: int,
) -> Iterator[NDArray[np.uint8]]:
    """(height, width, 3) images of the states, in order."""
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
    model.vis.global_.offheight = max(model.vis.global_.offheight, height)
    model.vis.quality.offsamples = 0
    model.vis.quality.shadowsize = SHADOW_PIXELS
    data = mujoco.MjData(model)
    camera = _camera(model, data, qpos)
    with mujoco.Renderer(model, height, width) as renderer:
        for data.qpos[:], data.qvel[:] in zip(qpos, qvel, strict=True):
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera=camera)
            yield renderer.render()


def _camera(
    model: mujoco.MjModel, data: mujoco.MjData, qpos: NDArray[np.float64]
) -> int | mujoco.MjvCamera:
    """The tracking camera, else the model's first one, else one that sees all that moves."""
    found = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, TRACKING_CAMERA)
    if found >= 0 or model.ncam:
        return max(int(found), 0)
    moving = model.geom_bodyid > 0
    reach = model.geom_rbound[moving, None]
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for data.qpos[:] in qpos:
        mujoco.mj_kinematics(model, data)
        low = np.minimum(low, (data.geom_xpos[moving] - reach).min(axis=0))
        high = np.maximum(high, (data.geom_xpos[moving] + reach).max(axis=0))
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    camera.lookat[:] = (low + high) / 2
    camera.distance = ROOM * float(np.linalg.norm(high - low))
    return camera


if __name__ == "__main__":
    main(sys.argv[1:])
