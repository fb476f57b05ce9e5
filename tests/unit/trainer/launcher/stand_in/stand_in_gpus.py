"""GPUs that this machine does not have: STAND_IN_GPUS names them, by UUID.

STAND_IN_USE_SECONDS shortens the time in which ranks must be seen as clients of MPS.
"""

from __future__ import annotations

import functools
import os

from drivetrain_api.machine import CudaDevices
from drivetrain_trainer.launcher import preflight
from drivetrain_trainer.launcher.mps import gpus, start


def cuda_devices(*_: object) -> CudaDevices:
    return CudaDevices(tuple(os.environ["STAND_IN_GPUS"].split(",")), "stand-in")


def pretend() -> None:
    preflight.cuda_devices = cuda_devices
    gpus.cuda_devices = cuda_devices
    seconds = float(os.environ.get("STAND_IN_USE_SECONDS", "300"))
    start.InContainerMps = functools.partial(start.InContainerMps, use_seconds=seconds)
