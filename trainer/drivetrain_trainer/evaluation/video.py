"""A recording as ``play_video.mp4``, or an exact account of why there is none."""

from __future__ import annotations

import ctypes.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drivetrain_trainer.evaluation.recording import Recording

VIDEO_FILE = "play_video.mp4"
SIZE = (640, 480)
"""Width and height in pixels."""
START_S = 60.0
"""Seconds that a drawing process may take beside its frames."""
FRAME_S = 2.0
"""Seconds that a frame may take; software rendering needs about 0.1."""


class GlBackend(StrEnum):
    """Values of ``MUJOCO_GL`` that draw without a screen."""

    EGL = "egl"
    OSMESA = "osmesa"


_LIBRARIES = {GlBackend.EGL: ("EGL", "libEGL.so.1"), GlBackend.OSMESA: ("OSMesa", "libOSMesa.so")}
_PACKAGES = {
    GlBackend.EGL: "libegl1 libegl-mesa0 libgl1-mesa-dri",
    GlBackend.OSMESA: "libosmesa6",
}


_NOT_LOADED = "'NoneType' object has no attribute"
"""What the OpenGL binding makes of a library that the loader did not give it."""


class VideoError(RuntimeError):
    """No video could be made; the message says what is missing and how to go on."""


@dataclass(frozen=True)
class Drawing:
    """How a drawing process ended."""

    returncode: int
    stderr: str


Draw = Callable[[Sequence[str], Mapping[str, str], float], Drawing]
"""Runs a command with an environment and a time limit in seconds."""


def make_video(recording: Recording, output: Path, *, size: tuple[int, int] = SIZE) -> GlBackend:
    """Draw a recording in a process of its own, with the first graphics library that works.

    ``MUJOCO_GL`` is honoured where it is set to ``egl`` or ``osmesa``.

    Returns:
        The library that drew it.

    Raises:
        VideoError: if no library works; what each said, and the Debian packages to install.
    """
    with tempfile.TemporaryDirectory(prefix="drivetrain-video-") as folder:
        recording.save(Path(folder))
        command = [
            sys.executable,
            "-m",
            "drivetrain_trainer.evaluation.render",
            folder,
            str(output.absolute()),
            *map(str, size),
        ]
        limit = START_S + FRAME_S * len(recording.qpos)
        return draw_with_any(command, limit, requested=os.environ.get("MUJOCO_GL", ""))


def draw_with_any(
    command: Sequence[str], limit_s: float, *, requested: str = "", draw: Draw | None = None
) -> GlBackend:
    """Try the graphics libraries in turn.

    Raises:
        VideoError: as for `make_video`.
    """
    run = draw or _draw
    wanted = requested.lower()
    candidates = [GlBackend(wanted)] if wanted in set(GlBackend) else list(GlBackend)
    reasons: dict[GlBackend, str] = {}
    for backend in candidates:
        ended = run(command, {**os.environ, "MUJOCO_GL": backend.value}, limit_s)
        if ended.returncode == 0:
            return backend
        reasons[backend] = _reason(backend, ended)
    raise VideoError(_explain(reasons))


def _draw(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Drawing:
    try:
        ended = subprocess.run(  # noqa: S603 - our own interpreter and module
            command,
            env=dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Drawing(1, f"no end after {limit_s:.0f} s")
    return Drawing(ended.returncode, ended.stderr)


def _reason(backend: GlBackend, ended: Drawing) -> str:
    stem, library = _LIBRARIES[backend]
    if ctypes.util.find_library(stem) is None:
        return f"the library {library} is not installed"
    if ended.returncode < 0:
        return f"drawing crashed with {signal.Signals(-ended.returncode).name}"
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    if not lines:
        return f"drawing ended with exit code {ended.returncode}"
    if _NOT_LOADED in lines[-1]:
        return f"the library {library} cannot be loaded"
    return lines[-1]


def _explain(reasons: Mapping[GlBackend, str]) -> str:
    tried = "\n".join(f"  MUJOCO_GL={backend}: {reason}" for backend, reason in reasons.items())
    install = "\n".join(
        f"  apt-get install {_PACKAGES[backend]}   (for MUJOCO_GL={backend})" for backend in reasons
    )
    return (
        f"no video: off-screen OpenGL is not available\n{tried}\n"
        f"install one of these Debian packages and play again:\n{install}"
    )
