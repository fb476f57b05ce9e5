"""The devices of this machine, as Torch sees them; `runtime.devices` has the rules."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from drivetrain_api.errors import SpecError, Violation
from drivetrain_trainer.physics.capabilities import capabilities_of
from drivetrain_trainer.physics.port import PhysicsError
from drivetrain_trainer.runtime.devices import DeviceInventory, resolve_devices

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.devices import ResolvedDevices
    from drivetrain_trainer.training.inputs import RankInput


def machine_inventory() -> DeviceInventory:
    """Ask Torch."""
    return DeviceInventory(
        cuda_devices=torch.cuda.device_count() if torch.cuda.is_available() else 0,
        hip=torch.version.hip is not None,
        mps=torch.backends.mps.is_available(),
    )


def rank_devices(
    given: RankInput, local_rank: int, inventory: DeviceInventory | None = None
) -> ResolvedDevices:
    """Concrete devices of a rank.

    Args:
        given: Its input.
        local_rank: Its number on this machine.
        inventory: What the machine has; Torch is asked where this is None.

    Raises:
        SpecError: see `resolve_devices`; or the task names a backend that cannot be loaded.
    """
    try:
        capabilities = capabilities_of(given.spec.sim, given.task.backend)
    except PhysicsError as error:
        raise SpecError((Violation("sim", str(error)),)) from error
    return resolve_devices(
        given.spec,
        local_rank,
        inventory if inventory is not None else machine_inventory(),
        capabilities,
        os.environ,
    )
