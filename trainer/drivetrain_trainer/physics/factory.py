"""Which class serves which simulator name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.physics.capabilities import capabilities_of
from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics

if TYPE_CHECKING:
    from drivetrain_api.training import Simulator
    from drivetrain_trainer.physics.port import Physics, SimulationSetup


def make_physics(simulator: Simulator, setup: SimulationSetup) -> Physics:
    """Worlds of a simulator.

    Raises:
        PhysicsError: the simulator is not part of this release, or refuses the set-up.
    """
    capabilities_of(simulator)
    return MujocoPhysics(setup)
