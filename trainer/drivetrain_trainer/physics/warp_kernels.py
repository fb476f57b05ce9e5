"""Kernels of our own, beside mujoco-warp's; imported once `warp_runtime.load_warp` was called."""

from __future__ import annotations

from typing import Final

import warp as wp
from mujoco_warp import OverflowType

FLAGS: Final = ("BADQPOS", "BADQVEL", "BADQACC", "BADCTRL", "CONTACTFULL", "CNSTRFULL")
"""Columns of the flags, by MuJoCo's names of its warnings."""

DIVERGED: Final = tuple(name.startswith("BAD") for name in FLAGS)
"""Whether the world is to be reset."""

CONTACT_OVERFLOWS: Final = int(
    OverflowType.BROADPHASE | OverflowType.NARROWPHASE | OverflowType.CCD | OverflowType.HFIELD
)
CONSTRAINT_OVERFLOWS: Final = int(OverflowType.NEFC | OverflowType.NJMAX_NNZ)


@wp.kernel(enable_backward=False)  # type: ignore[untyped-decorator]  # Warp has no types
def flag_worlds(  # noqa: PLR0917 - a kernel's arguments have no names at its launch
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    qacc: wp.array2d[float],
    ctrl: wp.array2d[float],
    overflow: wp.array[int],
    limit: float,
    contact_overflows: int,
    constraint_overflows: int,
    flags: wp.array2d[int],
) -> None:
    """Say which worlds are unsound, and why, and forget their overflows.

    The first cause alone: an acceleration without meaning takes velocity and position along. A
    control that is none is clamped by mujoco-warp in silence, where MuJoCo warns.
    """
    world = wp.tid()
    for column in range(6):
        flags[world, column] = 0
    if _unsound(ctrl, world, limit):
        flags[world, 3] = 1
    elif _unsound(qacc, world, limit):
        flags[world, 2] = 1
    elif _unsound(qvel, world, limit):
        flags[world, 1] = 1
    elif _unsound(qpos, world, limit):
        flags[world, 0] = 1
    if overflow[world] & contact_overflows:
        flags[world, 4] = 1
    if overflow[world] & constraint_overflows:
        flags[world, 5] = 1
    overflow[world] = 0


@wp.func  # type: ignore[untyped-decorator]  # likewise
def _unsound(values: wp.array2d[float], world: int, limit: float) -> bool:
    for column in range(values.shape[1]):  # noqa: SIM110 - a kernel has no generators
        # Written so that NaN, which compares as false, is unsound.
        if not (wp.abs(values[world, column]) < limit):
            return True
    return False
