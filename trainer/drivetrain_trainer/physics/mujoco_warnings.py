"""MuJoCo's warnings: which make a step worthless, and where their text goes."""

from __future__ import annotations

import logging

import mujoco

_logger = logging.getLogger(__name__)

WARNING_NAMES: tuple[str, ...] = tuple(
    mujoco.mjtWarning(index).name.removeprefix("mjWARN_")
    for index in range(int(mujoco.mjtWarning.mjNWARNING))
)
"""In the order of the counters: INERTIA, CONTACTFULL, CNSTRFULL, BADQPOS..."""

DIVERGED: tuple[bool, ...] = tuple(name.startswith("BAD") for name in WARNING_NAMES)
"""Whether the world is to be reset. After BADQPOS, BADQVEL and BADQACC MuJoCo itself put it
back to the reference state within the step, after BADCTRL its controls were taken as zero;
the others (a full contact buffer, a singular inertia) are counted and the world goes on."""


def redirect_warnings() -> None:
    """Send MuJoCo's warning texts to `logging`, at debug level.

    By default MuJoCo appends them to ``MUJOCO_LOG.TXT`` in the working directory, as it does
    on loading some models. A handler that somebody else installed is left alone. The handler
    runs on the simulator's threads.
    """
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(message: str) -> None:
    _logger.debug("MuJoCo: %s", message)
